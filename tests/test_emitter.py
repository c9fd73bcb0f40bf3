# SPDX-License-Identifier: Apache-2.0
"""What the emitter must get right whatever a kernel's author calls things and nests."""

import re
from pathlib import Path

import pytest
from tests.kernels import script

import tilus
from tilus import LanguageError, compiler, float16, float32, int32, uint32
from tilus.emitter import RESERVED, emit, identifier

GOLDEN = Path(__file__).parent / "golden"


def cuda(kernel):
    """Return the CUDA of a kernel, which NVRTC takes."""
    lowered = kernel.lower()
    compiler.build(lowered)
    return emit(lowered)


def names(self, default: int32, r: int32, warp: int32, c_ptr: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 8
    größe: int32 = default + r
    smem: int32 = warp + 1
    c = self.global_view(c_ptr, dtype=float32, shape=[r, 64])
    barriers = self.mbarrier.alloc([1] * 8)
    with self.thread_group(thread_begin=0, num_threads=128):
        row = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
        self.store_global(c, row, offsets=[0, 0])
        for long in range(größe):
            with self.single_thread():
                self.mbarrier.arrive(barriers[(long + smem) & 7])


def test_names_do_not_meet_those_of_c_and_of_generated_code():
    text = cuda(script(names))
    assert "if (warp == 0 && elect_one())" in text
    assert "< r_0" in text and re.search(r"int +warp_0,", text)


@pytest.mark.parametrize("name", ["int", "xor", "warp", "smem", "_r", "pack"])
def test_reserved_names_are_changed(name):
    assert identifier(name) not in RESERVED


@pytest.mark.parametrize("name", ["_", "_1", "größe", "x", "__x__"])
def test_names_become_identifiers(name):
    assert re.fullmatch("[a-z]\\w*", identifier(name), re.ASCII)


def test_helpers_are_reserved_or_unlikely_names():
    text = "".join(path.read_text() for path in GOLDEN.glob("*.cu"))
    helpers = set(re.findall(r"__forceinline__ [\w ]+ \*?(\w+)\(", text))
    prefixes = ("mbarrier_", "tma_", "wgmma_", "mma_", "load_matrices_", "prefetch_")
    assert {h for h in helpers if not h.startswith(prefixes)} <= RESERVED
    assert {"pack", "elect_one"} <= helpers


class SameNames(tilus.Script):
    """Methods whose variables and views have the same names."""

    def advance(self, n):
        x: int32 = n
        x += 1
        return x

    def load(self, pointer, tile, barrier):
        view = self.global_view(pointer, dtype=float16, shape=[64, 64])
        self.tma.global_to_shared(view, tile, [0, 0], barrier)

    def __call__(self, x_1: int32, a_ptr: ~float16, b_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 4
        barriers = self.mbarrier.alloc([1] * 8)
        tiles = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
        y = self.advance(x_1) + self.advance(x_1 + 1)
        with self.single_thread():
            self.load(a_ptr, tiles[0], barriers[y & 7])
            self.load(b_ptr, tiles[1], barriers[y & 7])


def test_two_things_of_one_name_are_two_things():
    text = cuda(SameNames())
    loads = re.findall(r"tma_load_2d\(.*&(\w+),", text)
    assert loads == ["view_map", "view_map_1"]
    declared = re.findall(r"int +(x\w*)", text)
    assert len(declared) == len(set(declared)) == 3


def steps(self, n: int32, step: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    barrier = self.mbarrier.alloc(32)
    for _ in range(0, n, step):
        self.mbarrier.arrive(barrier)
    for _ in range(n, 0, -2):
        self.mbarrier.arrive(barrier)


def test_a_step_that_may_be_positive_or_negative_is_looked_at_when_the_loop_runs():
    text = cuda(script(steps))
    assert "step > 0 ? i < n : i > n; i += step" in text
    assert "i_1 > 0; i_1 += (-2)" in text


def one_in_one(self):
    self.attrs.blocks, self.attrs.warps = 1, 4
    barriers = self.mbarrier.alloc([1, 1])
    with self.single_warp(1), self.single_thread():
        with self.single_thread():
            self.mbarrier.arrive(barriers[0])
        self.sync()
        with self.single_thread(0):
            self.mbarrier.arrive(barriers[1])


def test_one_thread_is_not_chosen_again_and_waits_for_nobody():
    text = cuda(script(one_in_one))
    kernel = text[text.index("__global__") :]
    assert kernel.count("if (elect_one())") == 1
    assert kernel.count("__syncwarp()") == 1
    assert "threadIdx.x == 32" not in kernel


def chain(self):
    self.attrs.blocks, self.attrs.warps = 1, 8
    with self.thread_group(0, 128):
        self.sync()
    with self.thread_group(128, 128):  # not what the first does: their code is not shared
        self.sync()
        self.sync()
    with self.thread_group(0, 64):
        self.sync()
    with self.single_thread(200):
        self.sync()
    with self.single_warp(1):
        self.sync()


def test_only_groups_apart_from_all_before_them_continue_an_if_chain():
    text = cuda(script(chain))
    heads = [line.strip() for line in text.splitlines() if re.search(r"if \((warp|thr)", line)]
    assert heads == [
        "if (warp <= 3) {",
        "else if (warp >= 4 && warp <= 7) {",
        "if (warp <= 1) {",
        "else if (threadIdx.x == 200) {",
        "if (warp == 1) {",
    ]


def elements(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 1, 4
    barriers = self.mbarrier.alloc([128] * 8)
    bits = self.register_tensor(dtype=int32, shape=[4], init=0)
    table = self.register_tensor(dtype=int32, shape=[4], init=0)
    table[table[0]] = n
    if bits[n & 3] - 1 < 0:
        self.mbarrier.arrive(barriers[(bits[1] - n) // 2])


def test_elements_have_the_type_of_their_tensor_and_an_index_is_computed_once():
    text = cuda(script(elements))
    assert "(((int)(bits >> (n & 3) & 1) - 1) < 0)" in text
    assert "const int at = table[0];" in text
    assert "table[3] = at == 3 ? chosen : table[3];" in text


def reinterpreted(self, n: int32, c_ptr: ~uint32):
    self.attrs.blocks, self.attrs.warps = 1, 4
    c = self.global_view(c_ptr, dtype=float32, shape=[n, 64])
    tile = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
    self.store_global(c, tile, offsets=[0, 0])


def test_a_view_may_have_another_type_than_its_pointer():
    assert "base = ((float *)c_ptr) + " in cuda(script(reinterpreted))


def smallest(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    barrier = self.mbarrier.alloc([32] * 2)
    x: int32 = -(2**31)
    self.mbarrier.arrive(barrier[max(x, n) // 2])


def test_the_smallest_integer_is_an_integer_of_its_type_in_c():
    assert "int x = (-2147483647 - 1);" in cuda(script(smallest))


def many_groups(self):
    self.attrs.blocks, self.attrs.warps = 1, 32
    for i in [*range(16)]:
        with self.thread_group(32 * i, 64):
            self.sync()


def test_more_groups_that_sync_than_barriers_are_refused():
    with pytest.raises(LanguageError, match=r"sync: at most 15 thread groups of several warps"):
        script(many_groups).lower()


class Budgets(tilus.Script):
    """Two groups with register budgets and nothing to do."""

    def __init__(self, warps, first, second):
        self.warps, self.first, self.second = warps, first, second

    def __call__(self):
        self.attrs.blocks, self.attrs.warps = 1, self.warps
        with self.thread_group(0, 128, registers=self.first):
            self.sync()
        with self.thread_group(128, 128, registers=self.second):
            self.sync()


@pytest.mark.parametrize(
    "warps, first, second, actions",
    [
        (8, 40, 232, ["dec", "dec"]),
        (12, 40, 232, ["dec", "inc"]),
        (12, 40, 168, ["dec", "dec"]),
        (9, 40, 200, ["dec", "inc"]),
    ],
)
def test_register_budgets_go_up_or_down_from_what_ptxas_begins_with(warps, first, second, actions):
    lowered = Budgets(warps, first, second).lower()
    begin = compiler.build(lowered).cubin.registers
    assert re.findall(r"setmaxnreg\.(\w+)", emit(lowered)) == actions
    assert [("dec", "inc")[n > begin] for n in (first, second)] == actions


def ring_of_tiles(self, a_ptr: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 4
    ga = self.global_view(a_ptr, dtype=float32, shape=[10, 128])
    tiles = self.shared_tensor(dtype=float32, shape=[4, 1, 128])
    stage: int32 = 0
    for i in self.range(0, 10, 1, unroll=4):
        self.store_shared(tiles[stage], self.load_global(ga, offsets=[i, 0], shape=[1, 128]))
        stage = (stage + 1) % 4


def test_a_tile_of_a_loop_that_is_laid_out_twice_is_declared_in_both():
    """Ten turns are two rounds of four and two turns behind them."""
    assert cuda(script(ring_of_tiles)).count("float load_global[") == 2
