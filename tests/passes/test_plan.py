# SPDX-License-Identifier: Apache-2.0
"""What the passes decide for a kernel as a whole: accumulators, places, limits, bits, signs."""

from contextlib import nullcontext
from itertools import pairwise

import pytest
from tests.kernels import script
from tests.ops.tiles import OneTile

from tilus import LanguageError, float16, float32, int32, uint32
from tilus.ops.alloc import shared_tensor
from tilus.ops.tma import global_to_shared
from tilus.passes.placement import MAX_SHARED_BYTES
from tilus.printer import show


def lowered(kernel):
    return script(kernel).lower()


def test_a_zeroed_accumulator_is_overwritten_by_the_first_product():
    text = show(OneTile(64, 8, 16).lower(n=8, k=16).function)
    assert "acc = alloc.register_tensor(dtype=float32, shape=[64, 8], init=None)" in text
    assert "scale_d=acc_live" in text
    assert text.index("if not(acc_live)") < text.index("alloc.fill(tensor=acc, value=0)")


def test_an_accumulator_with_another_value_keeps_it():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        sa = self.shared_tensor(dtype=float16, shape=[64, 16])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
        own = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        self.wgmma.mma(sa, sa.transpose(), acc)
        self.wgmma.mma(sa, sa.transpose(), own, scale_d=False)

    text = show(lowered(kernel).function)
    assert "init=1.0" in text and "init=0.0" in text and "live" not in text


def test_places_are_aligned_and_apart():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        _ = self.shared_tensor(dtype=float16, shape=[8, 16])
        tiles = self.shared_tensor(dtype=float16, shape=[3, 64, 64])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        self.mbarrier.alloc([1, 2, 3])
        self.wgmma.mma(tiles[0], tiles[1].transpose(), acc)

    plan = lowered(kernel).plan
    spans = []
    for thing, place in plan.places.items():
        nbytes = thing.nbytes if hasattr(thing, "nbytes") else 8 * len(thing)
        assert place % (plan.shared[thing].alignment if thing in plan.shared else 8) == 0
        spans.append((place, place + nbytes))
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert plan.shared_bytes == spans[-1][1] == 3 * 64 * 64 * 2 + 8 * 16 * 2 + 24


def test_shared_memory_beyond_the_limit_is_refused_with_the_sum():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        self.shared_tensor(dtype=float16, shape=[8, 128, 64])
        self.shared_tensor(dtype=float16, shape=[8, 128, 64])

    with pytest.raises(LanguageError, match=f"at most {MAX_SHARED_BYTES} bytes .* got 262144"):
        lowered(kernel)


def test_shared_memory_counts_mbarriers():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        self.mbarrier.alloc([1] * 30000)

    with pytest.raises(LanguageError, match=r"got 240000 \(alloc 240000\)"):
        lowered(kernel)


@pytest.mark.parametrize("shape", ["block", "variable", "element"])
def test_views_are_made_from_parameters(shape):
    def kernel(self, n: int32, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        size: int32 = n * 2
        sizes = self.register_tensor(dtype=int32, shape=[2], init=8)
        rows = {"block": self.blockIdx.x, "variable": size, "element": sizes[0]}
        self.global_view(c_ptr, dtype=float16, shape=[rows[shape], 64])

    with pytest.raises(LanguageError, match="global_view: shape and strides must be made from"):
        lowered(kernel)


@pytest.mark.parametrize("warps", [0, 33])
def test_warps_are_limited(warps):
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = warps

    with pytest.raises(LanguageError, match="warps"):
        lowered(kernel)


def test_scalars_are_not_float16():
    def parameter(self, x: float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1

    def variable(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x: float16 = 1.5  # noqa: F841

    for kernel in (parameter, variable):
        with pytest.raises(LanguageError, match="'x' must be of a type that scalars have"):
            lowered(kernel)


@pytest.mark.parametrize(
    "budgets, message",
    [
        ((40, 30), "multiple of 8 from 24 to 256, got 30"),
        ((256, 264), "multiple of 8 from 24 to 256, got 264"),
        ((256, 256, 256), "at most 65536, got 98304"),
    ],
)
def test_register_budgets_are_checked(budgets, message):
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 12
        for i, n in enumerate(budgets):
            with self.thread_group(thread_begin=128 * i, num_threads=128, registers=n):
                self.sync()

    with pytest.raises(LanguageError, match=message):
        lowered(kernel)


@pytest.mark.parametrize(
    "again, message",
    [
        (232, None),  # entered twice, counted once
        (200, "registers of warp 4 must stay 232, as set before, got 200"),
    ],
)
def test_a_group_entered_twice_keeps_its_budget(again, message):
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 9  # the ninth keeps its 168: 256 * 232 + 32 * 168 fit
        with self.thread_group(thread_begin=0, num_threads=128, registers=232):
            self.sync()
        for registers in (232, again):
            with self.thread_group(thread_begin=128, num_threads=128, registers=registers):
                self.sync()

    with pytest.raises(LanguageError, match=message) if message else nullcontext():
        lowered(kernel)


def test_threads_without_a_budget_keep_what_they_began_with():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 12
        with self.thread_group(thread_begin=0, num_threads=128, registers=240):
            self.sync()

    with pytest.raises(LanguageError, match="got 73728; a thread without a budget has 168"):
        lowered(kernel)


def test_register_budgets_need_whole_warp_groups():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        with self.thread_group(thread_begin=0, num_threads=32, registers=40):
            self.sync()

    with pytest.raises(LanguageError, match="whole warp groups"):
        lowered(kernel)


def test_bits_are_found_and_only_bits():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        phases = self.register_tensor(dtype=uint32, shape=[4], init=1)
        counts = self.register_tensor(dtype=uint32, shape=[4], init=0)
        at: int32 = 0
        while at < 3:
            phases[at] ^= 1
            counts[at] += phases[at]
            at += 1

    assert {t.name for t in lowered(kernel).plan.bits} == {"phases"}


def test_signs_are_found_through_loops():
    def kernel(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        up: int32 = 0
        down: int32 = 0
        like_down: int32 = 1
        for i in self.range(3):
            up = (up + 1) % 5 + i
            down = down - 1
            like_down = down + 1  # noqa: F841

    names = {v.name for v in lowered(kernel).plan.nonnegative}
    assert "up" in names and "i" in names
    assert "down" not in names and "like_down" not in names


def test_rows_that_no_swizzle_fits_are_refused():
    def kernel(self, p: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        view = self.global_view(p, dtype=float16, shape=[64, 24])
        tile = self.shared_tensor(dtype=float16, shape=[64, 24])
        full = self.mbarrier.alloc(1)
        self.tma.global_to_shared(src=view, dst=tile, offsets=[0, 0], mbarrier=full)

    with pytest.raises(LanguageError, match="rows must be a multiple of 32 bytes, got 48 bytes"):
        lowered(kernel)
    for page in (shared_tensor.__doc__, global_to_shared.__doc__):
        assert "multiple of 32 bytes" in " ".join(page.split()), "users look for the rule there"


def test_tiles_that_would_begin_inside_a_swizzle_pattern_are_refused():
    def kernel(self, p: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        view = self.global_view(p, dtype=float16, shape=[64, 64])
        tiles = self.shared_tensor(dtype=float16, shape=[2, 1, 64])
        full = self.mbarrier.alloc(1)
        self.tma.global_to_shared(src=view, dst=tiles[1], offsets=[0, 0], mbarrier=full)

    rule = "tiles behind each other must be a multiple of 256 bytes, got 128 bytes"
    with pytest.raises(LanguageError, match=rule):
        lowered(kernel)
