# SPDX-License-Identifier: Apache-2.0
"""WGMMA: products of every shape family, overwriting and adding, and what is refused."""

import numpy as np
import pytest
from tests.kernels import load_v3
from tests.ops.tiles import Fetching, OneTile, integers, poisoned, product

import tilus
from tilus import LanguageError, bfloat16, compiler, float16, float32, int32
from tilus.disasm import sass


def run(backend, m, n, k, **schedule):
    a, b, c = integers(m, k), integers(n, k, seed=1), poisoned(m, n)
    backend.run(OneTile(m, n, k, **schedule), m, n, k, a, b, c)
    return a, b, c


@pytest.mark.parametrize("m, n, k", [(64, 8, 16), (64, 24, 32), (128, 64, 64), (64, 256, 64)])
def test_mma_is_exact_on_integers(backend, m, n, k):
    a, b, c = run(backend, m, n, k)
    assert np.array_equal(c, product(a, b))


@pytest.mark.parametrize("n", [64, 128])
def test_mma_that_never_adds_is_compiled_without_waits(n):
    """ptxas serialises products where it sees that nothing is ever added to: K of one step."""
    compiler.build(load_v3()(2, 128, n, 16).lower(n_size=n, k_size=16))


def test_mma_over_panels(backend):
    """A K-block of 128 elements lies in two 128-byte panels, one of 48 in three of 32 bytes."""
    for k in (128, 48):
        a, b, c = run(backend, 64, 32, k)
        assert np.array_equal(c, product(a, b))


def test_mma_adds_after_the_first_product(backend):
    a, b, c = run(backend, 64, 32, 64, products=3)
    assert np.array_equal(c, 3 * product(a, b))


def test_mma_without_a_product_leaves_zeros(backend):
    _, _, c = run(backend, 64, 32, 64, products=0)
    assert np.array_equal(c, np.zeros_like(c))


def form(dtype, *options):
    """Return the kernel below for operands of a type."""

    class Form(Fetching):
        """C = A · B for one tile, in any form of the instruction: operands by TMA, A also by way of
        registers, either as it is or transposed."""

        def __init__(self, acc_dtype, a_place, b_stored):
            self.acc_dtype, self.a_place, self.b_stored = acc_dtype, a_place, b_stored

        def __call__(
            self, m: int, n: int, k: int, a_ptr: ~dtype, b_ptr: ~dtype, c_ptr: ~float32, x: int32
        ):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            a_shape = [k, m] if self.a_place == "transposed" else [m, k]
            b_shape = [k, n] if self.b_stored == "kn" else [n, k]
            ga = self.global_view(a_ptr, dtype=dtype, shape=a_shape)
            gb = self.global_view(b_ptr, dtype=dtype, shape=b_shape)
            gc = self.global_view(c_ptr, dtype=float32, shape=[m, n])
            sa = self.shared_tensor(dtype=dtype, shape=a_shape)
            sb = self.shared_tensor(dtype=dtype, shape=b_shape)
            acc = self.register_tensor(dtype=self.acc_dtype, shape=[m, n], init=0.0)
            self.fetch(ga, sa, gb, sb)
            a = sa.transpose() if self.a_place == "transposed" else sa
            a = self.load_shared(sa) if self.a_place == "registers" else a
            b = sb if self.b_stored == "kn" else sb.transpose()
            for _ in self.range(x):
                self.wgmma.fence()
                self.wgmma.mma(a, b, acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
            self.store_global(gc, self.cast(acc, dtype=float32), offsets=[0, 0])

    return Form(*options)


FORMS = [
    (float16, float32, "shared", "nk"),
    (bfloat16, float32, "shared", "nk"),
    (float16, float16, "shared", "nk"),
    (float16, float32, "registers", "nk"),
    (bfloat16, float32, "registers", "kn"),
    (float16, float32, "shared", "kn"),
    (float16, float32, "transposed", "nk"),
    (float16, float16, "transposed", "kn"),
]


@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (128, 128, 64), (128, 96, 32), (64, 256, 128)])
@pytest.mark.parametrize("dtype, acc_dtype, a_place, b_stored", FORMS)
def test_every_form_of_mma_is_exact_on_integers(
    backend, dtype, acc_dtype, a_place, b_stored, m, n, k
):
    a, b, c = integers(m, k), integers(k, n, seed=1), poisoned(m, n)
    stored_a = np.ascontiguousarray(a.T if a_place == "transposed" else a)
    stored_b = np.ascontiguousarray(b if b_stored == "kn" else b.T)
    operands = [x.astype(dtype.numpy) for x in (stored_a, stored_b)]
    backend.run(form(dtype, acc_dtype, a_place, b_stored), m, n, k, *operands, c, 2)
    assert np.array_equal(c, 2 * (a.astype(np.float32) @ b.astype(np.float32)))


@pytest.mark.parametrize("dtype, acc_dtype, a_place, b_stored", FORMS)
def test_every_form_of_mma_compiles_without_local_memory(dtype, acc_dtype, a_place, b_stored):
    """NVRTC's checks refuse local memory, spills and serialised products."""
    kernel = form(dtype, acc_dtype, a_place, b_stored).lower(m=128, n=128, k=64)
    program = compiler.build(kernel)
    text = sass(program.cubin.code)
    assert "HGMMA" in text and "LDL" not in text and "STL" not in text
    assert ("BF16" in text) == (dtype == bfloat16)
    # PTX ISA, "wgmma.mma_async": behind scale-d come the signs, then whether a and b are
    # transposed; a in registers has no such flag.
    a_flag = {"shared": "0, ", "transposed": "1, ", "registers": ""}[a_place]
    assert f'p, 1, 1, {a_flag}{int(b_stored == "kn")}; }}"' in program.cuda


class Misused(tilus.Script):
    """One WGMMA instruction in a place or with operands it does not take."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        sb = self.shared_tensor(dtype=float16, shape=[32, 64])
        wide = self.shared_tensor(dtype=float32, shape=[32, 64])
        threads = 64 if self.fault == "half a warp group" else 128
        with self.thread_group(
            thread_begin=32 if self.fault == "begin" else 0, num_threads=threads
        ):
            columns = 24 if self.fault == "shape" else 32
            acc = self.register_tensor(dtype=float32, shape=[64, columns], init=0.0)
            if self.fault == "wait":
                self.wgmma.wait_group(8)
            if self.fault in ("half a warp group", "begin"):
                self.wgmma.fence()
            if self.fault == "half a warp group commit":
                self.wgmma.commit_group()
            if self.fault == "b not transposed":
                self.wgmma.mma(sa, sb, acc)
            if self.fault == "b in registers":
                self.wgmma.mma(sa, acc, acc)
            if self.fault == "dtype":
                self.wgmma.mma(sa, wide.transpose(), acc)
            if self.fault == "shape":
                self.wgmma.mma(sa, sb.transpose(), acc)


@pytest.mark.parametrize(
    "fault, message",
    [
        ("b not transposed", r"mma: b must be of shape \[64, n\], got \[32, 64\]"),
        ("dtype", r"mma: b must be of type float16 or bfloat16, got float32"),
        ("b in registers", r"mma: b must be a tile in shared memory, got one in registers"),
        ("shape", r"mma: acc must be of shape \[64, 32\], got \[64, 24\]"),
    ],
)
def test_mma_refuses(fault, message):
    with pytest.raises(LanguageError, match=message):
        Misused(fault).lower()


@pytest.mark.parametrize("fault", ["half a warp group", "begin"])
def test_fence_needs_an_aligned_warp_group(fault):
    with pytest.raises(LanguageError, match=r"fence: the current group must be 128 threads"):
        Misused(fault).lower()


def test_wait_group_refuses_more_than_seven():
    with pytest.raises(LanguageError, match=r"wait_group: n must be .* from 0 to 7, got 8"):
        Misused("wait").lower()


def test_commit_group_closes_the_group(backend):
    """Without the commit a wait for groups waits for nothing; the simulator says so."""
    kernel = Uncommitted()
    c = poisoned(64, 8)
    if backend.name == "cuda":
        pytest.skip("what hardware does without a commit is undefined")
    with pytest.raises(tilus.SimulationError):
        backend.run(kernel, integers(64, 16), integers(8, 16), c)


class Uncommitted(Fetching):
    """OneTile without commit_group."""

    def __call__(self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 16])
        gb = self.global_view(b_ptr, dtype=float16, shape=[8, 16])
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 8])
        sa = self.shared_tensor(dtype=float16, shape=[64, 16])
        sb = self.shared_tensor(dtype=float16, shape=[8, 16])
        acc = self.register_tensor(dtype=float32, shape=[64, 8], init=0.0)
        self.fetch(ga, sa, gb, sb)
        self.wgmma.fence()
        self.wgmma.mma(sa, sb.transpose(), acc)
        self.wgmma.wait_group(0)
        self.store_global(gc, acc, offsets=[0, 0])
