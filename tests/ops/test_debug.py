# SPDX-License-Identifier: Apache-2.0
"""Printing and promises: what the simulator says, and what NVRTC takes."""

import re

import numpy as np
import pytest

import tilus
from tilus import SimulationError, compiler, float16, float32, int32, uint32
from tilus.emitter import emit

FORMAT = 'n=%d\t%5.1f|%x %u%% "%+d"\n'


class Printf(tilus.Script):
    """Print numbers from a warp, then from one thread of another one."""

    def __call__(self, n: int32, f: float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        with self.single_warp(1):
            self.printf(FORMAT, n, f, n, n - 3, n > 2)
        with self.single_thread():
            self.printf("one %g\n", f + 1)
        self.printf("all\n")


class PrintTensor(tilus.Script):
    """Print a tensor of each memory, run-time offsets and transposed views among them."""

    def __call__(self, n: int32, p: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 1
        view = self.global_view(p, dtype=float16, shape=[n, 8])
        tile = self.register_tensor(dtype=float32, shape=[8, 8], init=0.5)
        counts = self.register_tensor(dtype=uint32, shape=[3], init=2)
        shared = self.shared_tensor(dtype=float32, shape=[2, 8, 8])
        self.store_shared(shared[n - 3].transpose(), tile)
        self.sync()
        self.print_tensor(view)
        self.print_tensor(tile, "half")
        self.print_tensor(counts)
        self.print_tensor(shared[n - 3].transpose())


class Assume(tilus.Script):
    """Promise that n is a multiple of eight."""

    def __call__(self, n: int32, p: ~int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.assume(n % 8 == 0)
        self.assume(True)


def cuda(kernel) -> str:
    lowered = kernel.lower()
    compiler.build(lowered)
    return emit(lowered)


def test_printf_prints_once_a_group(device, capsys):
    device("sim")
    Printf()(-1, 2.25)
    out = capsys.readouterr().out.splitlines()
    assert out == ['n=-1\t  2.2|ffffffff 4294967292% "+0"', "one 3.25", "all"]


def test_printf_compiles_and_one_thread_prints():
    text = cuda(Printf())
    assert text.count("if ((threadIdx.x - 32) == 0) {") == 1
    assert r'printf("n=%lld\t%5.1f|%llx %llu%% \"%+lld\"\n", (long long)n' in text
    assert re.search(r"elect_one\(\)\) \{\n[^{}]*\{\n *printf\(\"one %g", text)


def test_print_tensor_shows_every_element(device, capsys):
    device("sim")
    values = np.arange(32, dtype=np.float16).reshape(4, 8)
    PrintTensor()(4, values)
    out = capsys.readouterr().out
    assert f"view float16[4, 8]\n{values}" in out
    assert "half float32[8, 8]\n[[0.5 0.5" in out and "counts uint32[3]\n[2 2 2]" in out
    assert "shared float32[8, 8]\n[[0.5" in out


def test_print_tensor_compiles():
    text = cuda(PrintTensor())
    assert r'printf("view[%d, %d] = %g\n", i0, i1, (double)(from_half(p[' in text
    assert r'printf("half[%d, %d] = %g\n"' in text
    assert r'printf("counts[%d] = %lld\n", 2, (long long)(counts[2]));' in text
    places = re.findall(r'printf\("shared.*, (\d+), (\d+), .*\) \+ (\d+)\)\)\);', text)
    assert [int(x) for x in places[8 * 2 + 3]] == [2, 3, 4 * (3 * 8 + 2)]


def test_assume_is_checked_and_believed(device):
    device("sim")
    Assume()(16, np.zeros(32, np.int32))
    with pytest.raises(SimulationError, match=r"protocol: .*assume: the condition must hold"):
        Assume()(17, np.zeros(32, np.int32))
    assert cuda(Assume()).count("__builtin_assume((floor_mod(n, 8) == 0));") == 1
