# SPDX-License-Identifier: Apache-2.0
"""Kernels as users write them: tiles, tensor cores and shared memory in one."""

import numpy as np
import pytest
from tests import sass
from tests.ops.tiles import Fetching, integers, product

import tilus
from tilus import compiler, disasm, float16, float32, int32


class Epilogue(Fetching):
    """relu(A · Bᵀ * alpha + bias + C) of one tile, where WGMMA's accumulator sets the layout."""

    def __call__(
        self,
        alpha: float32,
        a_ptr: ~float16,
        b_ptr: ~float16,
        bias_ptr: ~float32,
        c_ptr: ~float32,
        d_ptr: ~float16,
    ):
        self.attrs.blocks, self.attrs.warps = 1, 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 32])
        gb = self.global_view(b_ptr, dtype=float16, shape=[64, 32])
        gbias = self.global_view(bias_ptr, dtype=float32, shape=[64])
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 64])
        gd = self.global_view(d_ptr, dtype=float16, shape=[64, 64])
        sa = self.shared_tensor(dtype=float16, shape=[64, 32])
        sb = self.shared_tensor(dtype=float16, shape=[64, 32])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        self.fetch(ga, sa, gb, sb)
        self.wgmma.fence()
        self.wgmma.mma(sa, sb.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        bias = self.load_global(gbias, offsets=[0], shape=[64])
        c = self.load_global(gc, offsets=[0, 0], shape=[64, 64])
        d = self.maximum(acc * alpha + bias + c, 0.0)
        self.store_global(gd, self.cast(d, dtype=float16), offsets=[0, 0])


def test_an_epilogue_takes_the_accumulators_layout(backend):
    a, b = integers(64, 32), integers(64, 32, seed=1)
    bias, c = np.arange(64, dtype=np.float32), -np.arange(4096, dtype=np.float32).reshape(64, 64)
    d = np.zeros((64, 64), np.float16)
    backend.run(Epilogue(), 0.5, a, b, bias, c / 64, d)
    wanted = np.maximum(product(a, b) * np.float32(0.5) + bias + c / 64, 0)
    assert np.array_equal(d, wanted.astype(np.float16))


def test_an_epilogue_moves_nothing_and_stores_16_bytes_at_once():
    kernel = Epilogue().lower()
    assert not kernel.plan.scratch
    code = compiler.build(kernel).cubin.code
    assert sass.complaints(code) == []
    assert "STG.E.128" in disasm.sass(code)


class Attention(tilus.Script):
    """softmax(Q Kᵀ * scale) V for one block of queries, a block of keys at a time."""

    def __init__(self, warps, keys=64, width=64):
        super().__init__()
        self.warps, self.keys, self.width = warps, keys, width

    def load(self, view, shared, row):
        """Bring a block of rows into shared memory."""
        shape = [self.keys, self.width]
        self.store_shared(shared, self.load_global(view, offsets=[row, 0], shape=shape))

    def __call__(
        self, n: int32, scale: float32, q: ~float16, k: ~float16, v: ~float16, o: ~float16
    ):
        self.attrs.blocks, self.attrs.warps = 1, self.warps
        queries = 16 * self.warps
        gq = self.global_view(q, dtype=float16, shape=[queries, self.width])
        gk = self.global_view(k, dtype=float16, shape=[n, self.width])
        gv = self.global_view(v, dtype=float16, shape=[n, self.width])
        go = self.global_view(o, dtype=float16, shape=[queries, self.width])
        sk = self.shared_tensor(dtype=float16, shape=[self.keys, self.width])
        sv = self.shared_tensor(dtype=float16, shape=[self.keys, self.width])

        query = self.load_global(gq, offsets=[0, 0], shape=[queries, self.width])
        largest = self.register_tensor(dtype=float32, shape=[queries, 1], init=-1e30)
        total = self.register_tensor(dtype=float32, shape=[queries, 1], init=0.0)
        acc = self.register_tensor(dtype=float32, shape=[queries, self.width], init=0.0)
        for row in self.range(0, n, self.keys):
            self.sync()
            self.load(gk, sk, row)
            self.load(gv, sv, row)
            self.sync()
            s = self.dot(query, self.load_shared(sk.transpose())) * scale
            now = self.maximum(largest, self.max(s, dim=1, keepdim=True))
            p = self.exp(s - now)
            shrink = self.exp(largest - now)
            total = total * shrink + self.sum(p, dim=1, keepdim=True)
            acc = self.dot(self.cast(p, dtype=float16), self.load_shared(sv), acc * shrink)
            largest = now
        self.store_global(go, self.cast(acc / total, dtype=float16), offsets=[0, 0])


@pytest.mark.parametrize("warps", [1, 4])
def test_attention(backend, warps):
    rng = np.random.default_rng(0)
    rows = 16 * warps
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) for n in (rows, 192, 192))
    o = np.zeros_like(q)
    backend.run(Attention(warps), 192, 0.125, q, k, v, o)
    s = product(q, k) * 0.125
    p = np.exp(s - s.max(axis=1, keepdims=True))
    wanted = p / p.sum(axis=1, keepdims=True) @ v.astype(np.float32)
    assert np.abs(o.astype(np.float32) - wanted).max() < 2e-3


@pytest.mark.parametrize("warps", [1, 4])
def test_attention_stays_in_registers(warps):
    code = compiler.build(Attention(warps).lower()).cubin.code
    counts = sass.opcodes(code)
    assert counts["HMMA"] and sass.stack(code) == 0 and not {"LDL", "STL"} & set(counts)
