# SPDX-License-Identifier: Apache-2.0
"""What becomes of a kernel, as text."""

# ruff: noqa: F841, SIM108

from __future__ import annotations

import textwrap

from tests.kernels import Probe, load_v3, script

import tilus
from tilus import boolean, float16, float32, frontend, int32, int64, ir, uint32
from tilus.printer import show
from tilus.utils import cdiv


def text(function, **constants):
    """Return the traced body of a kernel as text."""
    lines = show(frontend.trace(script(function), constants)).splitlines()
    return textwrap.dedent("\n".join(lines[1:]))


def expect(found: str, wanted: str) -> None:
    assert found == textwrap.dedent(wanted).strip("\n")


def test_compile_time_values_leave_no_trace():
    def kernel(self, n: int32, k: int, wide: bool):
        self.attrs.blocks, self.attrs.warps = cdiv(n, 128), 4
        sizes = [k // 2**i for i in range(2)]
        label = "wide" if wide else "narrow"
        if label == "wide" and len(sizes) == 2:
            extra = max(sizes)
        else:
            extra = 0
        self.use(n + extra)

    expect(text(kernel, k=64, wide=True), "kernels._use(x=(n + 64))")
    expect(text(kernel, k=64, wide=False), "kernels._use(x=n)")


def test_number_becomes_variable_where_run_time_code_changes_it():
    def kernel(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        x = 1
        x = x + 1  # still a compile-time value
        for i in self.range(n):
            x = x + i
            half = x // 2
            self.use(half)
        self.use(x)

    expect(
        text(kernel),
        """
        x: int32 = 2
        for i in range(0, n, 1):
            x = (x + i)
            half: int32 = (x // 2)
            kernels._use(x=half)
        kernels._use(x=x)
        """,
    )


def test_branches_choose_a_new_variable():
    def kernel(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        if n > 3:
            y = 1
        elif n < 0:
            return
        else:
            y = n
        self.use(y)

    expect(
        text(kernel),
        """
        y: int32 = 0
        if (n > 3):
            y = 1
        else:
            y: int32 = 0
            if (n < 0):
                return
            else:
                y = n
            y = y
        kernels._use(x=y)
        """,
    )


def test_instruction_is_named_after_its_variable():
    def kernel(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        sa = self.make()
        tiles = [self.make(16) for _ in range(1)]
        self.use(sa.nbytes + tiles[0][1].nbytes)

    expect(
        text(kernel),
        """
        sa = kernels._make(rows=8)
        _make = kernels._make(rows=16)
        kernels._use(x=768)
        """,
    )


def test_groups_narrow_the_threads():
    def kernel(self):
        self.attrs.blocks, self.attrs.warps = (1, 2, 3), 12
        with self.thread_group(thread_begin=128, num_threads=256, registers=232):
            with self.warp_group(2, num_warps=4), self.single_thread():
                self.use(1)
            with self.single_warp(7):
                self.use(2)
            with self.single_thread(5):
                self.use(3)

    expect(
        text(kernel),
        """
        group warps 4-11, registers=232:
            group warps 6-9:
                group thread 192 (elected):
                    kernels._use(x=1)
            group warp 11:
                kernels._use(x=2)
            group thread 133:
                kernels._use(x=3)
        """,
    )


class Ring(tilus.Class):
    """A stage and a parity that advance together."""

    use = Probe.use

    def __init__(self, stages, start=0):
        super().__init__()
        self.stages = stages
        self.tiles = [self.use(stages)] * 0
        self.stage: int32 = start
        self.parity: uint32 = 0

    def advance(self, by=1):
        self.stage = (self.stage + by) % self.stages
        self.parity ^= self.stage == 0
        return self.stage

    @property
    def last(self):
        return self.stages - 1


def test_class_holds_variables_and_its_methods_are_inlined():
    def kernel(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        ring = Ring(3)
        with self.single_warp():
            for _ in self.range(n):
                self.use(ring.stage + ring.advance(by=2) + ring.last)

    expect(
        text(kernel),
        """
        kernels._use(x=3)
        stage: int32 = 0
        parity: uint32 = 0
        group warp 0:
            for _ in range(0, n, 1):
                value: int32 = stage
                stage = ((stage + 2) % 3)
                parity = (parity ^ uint32((stage == 0)))
                advance: int32 = stage
                kernels._use(x=((value + advance) + 2))
        """,
    )


class Helped(Probe):
    """A script that calls methods of its own."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def scaled(self, x, *, twice=False):
        """A docstring is no statement."""
        if twice:
            return self.scaled(self.scaled(x))
        x = x * self.scale
        return x

    def __call__(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.offset = n  # on a copy: the script itself stays as it is
        self.use(self.scaled(self.offset, twice=True))


def test_methods_of_the_script_are_inlined():
    kernel = Helped(scale=3)
    assert "kernels._use(x=((n * 3) * 3))" in show(frontend.trace(kernel, {}))
    assert vars(kernel).keys() == {"scale", "_launcher", "_schedule", "_made"}


def test_launch_attributes():
    def kernel(self, n: int32, k: int):
        self.attrs.blocks = [cdiv(n, 64), k]
        self.attrs.warps = k
        self.attrs.cluster_blocks = 2
        self.use(self.attrs.warps + self.blockIdx.z + self.gridDim.x)

    function = frontend.trace(script(kernel), {"k": 4})
    assert [show(b) for b in function.blocks] == ["(((n + 64) - 1) // 64)", "4", "1"]
    assert (function.warps, function.cluster) == (4, (2, 1, 1))
    assert [(p.name, p.dtype) for p in function.params] == [("n", int32)]


def test_bounds_are_evaluated_once():
    def kernel(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        limit: int32 = n
        for i in range(limit):
            limit += i

    expect(
        text(kernel),
        """
        limit: int32 = n
        i_bound: int32 = limit
        for i in range(0, i_bound, 1):
            limit = (limit + i)
        """,
    )


def test_types_of_variables():
    def kernel(self, n: int64, f: float32, p: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 1
        a: uint32 = 1
        b: float32 = 2
        c = 0.5
        d = False
        for i in range(n):
            a += 1
            b += f
            c = b * c
            d = i > 3 or d
        remark: int = 7
        self.use(remark)

    body = frontend.trace(script(kernel), {}).body
    declared = [(s.var.name, s.var.dtype) for s in body if isinstance(s, ir.Declare)]
    assert declared == [("a", uint32), ("b", float32), ("c", float32), ("d", boolean)]
    loop = next(s for s in body if isinstance(s, ir.For))
    assert loop.var.dtype == int64


def test_redeclared_in_another_group_is_another_variable():
    def kernel(self):
        self.attrs.blocks, self.attrs.warps = 1, 2
        stage: int32 = 0
        with self.single_warp(0):
            stage: int32 = 1
            stage: int32 = 2  # here it is the same again
        with self.single_warp(1):
            stage: int32 = 3
        self.use(0)

    expect(
        text(kernel),
        """
        stage: int32 = 0
        group warp 0:
            stage: int32 = 1
            stage = 2
        group warp 1:
            stage: int32 = 3
        kernels._use(x=0)
        """,
    )


def test_v3_has_its_two_roles():
    kernel = load_v3()(num_stages=3, block_m=128, block_n=64, block_k=32)
    function = frontend.trace(kernel, {"n_size": 256, "k_size": 64})
    assert [show(b) for b in function.blocks] == ["(((m_size + 128) - 1) // 128)", "4", "1"]
    groups = [s for s in function.body if isinstance(s, ir.Group)]
    assert [g.threads.role for g in groups] == ["warp 4", "warps 0-3"]
    loops = [[s for s in g.body if isinstance(s, ir.For)] for g in groups]
    assert [[(show(f.stop), f.unroll) for f in found] for found in loops] == [
        [("64", 3), ("2", None)],  # the drain waits for two tiles, fewer than there are stages
        [("64", 3)],
    ]
    elected = [s for s in ir.walk(function.body) if isinstance(s, ir.Group) and s.elect]
    assert len(elected) == 1 and elected[0].threads == ir.Threads(128, 1)


def test_condition_with_instructions_runs_every_turn():
    def kernel(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        ring = Ring(4)
        while ring.advance() < n:
            self.use(ring.stage)

    found = text(kernel)
    loop = found[found.index("while") :]
    expect(
        loop,
        """
        while True:
            stage = ((stage + 1) % 4)
            parity = (parity ^ uint32((stage == 0)))
            advance: int32 = stage
            if not((advance < n)):
                break
            kernels._use(x=stage)
        """,
    )
