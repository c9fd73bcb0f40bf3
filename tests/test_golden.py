# SPDX-License-Identifier: Apache-2.0
"""Golden CUDA: what the emitter writes, kept as text, so that a change of it shows in review.

``pytest tests/test_golden.py --update-golden`` writes the files anew.
"""

import pytest
from tests.kernels import V3_FILE, load_v3
from tests.ops.tiles import OneTile
from tests.products import version

import tilus
from tilus import float16, int32, loader, uint32
from tilus.emitter import emit
from tilus.printer import show


def v3(**sizes):
    return load_v3()(num_stages=3, block_m=128, block_n=128, block_k=64).lower(**sizes)


class Scalars(tilus.Script):
    """Every kind of scalar statement and expression."""

    def __call__(self, n: int32, c_ptr: ~float16):
        self.attrs.blocks = 4
        self.attrs.warps = 8
        counts = self.register_tensor(dtype=uint32, shape=[3], init=5)
        bits = self.register_tensor(dtype=uint32, shape=[3], init=0)
        barriers = self.mbarrier.alloc([32, 32])
        total: int32 = self.blockIdx.x - n
        i: int32 = 0
        while i < n:
            counts[i % 3] += 1
            bits[i % 3] = 1 if counts[i % 3] > 7 else 0
            if total // 3 == i:
                break
            elif total % 3 != 0 and not n > 4:
                i += 2
                continue
            i = max(i + 1, total >> 1)
        with self.thread_group(thread_begin=128, num_threads=128, registers=40):
            self.sync()
        with self.thread_group(thread_begin=0, num_threads=128, registers=232):
            with self.single_warp(2):
                self.mbarrier.arrive(barriers[bits[0]])
            self.sync()


def v0(**sizes):
    return version("v0")(block_m=128, block_n=64, block_k=32, warps=4).lower(**sizes)


def first(name):
    """Return an example's kernel."""
    return loader.find(V3_FILE.parents[1] / "first_kernels" / f"{name}.py", tilus.Script)().lower()


CASES = {
    "cluster_multicast": lambda: first("cluster_multicast"),
    "tma_store": lambda: first("tma_store"),
    "v0": lambda: v0(n_size=904, k_size=520),
    "v3_8192": lambda: v3(n_size=8192, k_size=8192),
    "v3_short_k": lambda: v3(n_size=904, k_size=64),
    "one_tile": lambda: OneTile(64, 8, 32).lower(n=8, k=32),
    "scalars": lambda: Scalars().lower(),
}


@pytest.mark.parametrize("name", CASES)
def test_cuda_is_golden(name, golden):
    golden(f"{name}.cu", emit(CASES[name]()))


@pytest.mark.parametrize("name", ["v3_short_k", "scalars"])
def test_ir_is_golden(name, golden):
    golden(f"{name}.txt", show(CASES[name]().function))


def test_places_are_named_without_folders():
    assert "// matmul_v3.py:" in emit(v3(n_size=64, k_size=64))
    assert str(V3_FILE.parent) not in emit(v3(n_size=64, k_size=64))


def test_golden_fails_on_a_difference(golden, monkeypatch, request):
    monkeypatch.setattr(request.config.option, "update_golden", False)
    with pytest.raises(AssertionError, match="--update-golden"):
        golden("scalars.txt", "something else")
