# SPDX-License-Identifier: Apache-2.0
"""Groups that share machine code: found where they are alike, and then right for each of them."""

from dataclasses import fields, replace

import numpy as np
import pytest
from tests.kernels import script
from tests.products import SMALL, execute, version

from tilus import compiler, float32, int32, ir
from tilus.emitter import emit


def groups(kernel):
    """Return the thread groups that hold code of their own, and the twins of each."""
    found = [s for s in ir.walk(kernel.function.body) if isinstance(s, ir.Group) and not s.elect]
    return found, [kernel.plan.twins.get(group) for group in found]


def apart(kernel):
    """Return the kernel with the shared body written out for each of its groups."""
    registers, parts = dict(kernel.plan.registers), {}
    for twins in kernel.plan.twins.values():
        for number, group in enumerate(twins.groups):
            by, tiles = group.threads.begin - twins.groups[0].threads.begin, {}
            body = tuple(moved(stmt, by, tiles) for stmt in twins.body)
            registers |= {new: kernel.plan.registers[old] for old, new in tiles.items()}
            value = ir.as_expr(number, int32)
            member = ir.Declare(location=group.location, var=twins.member, value=value)
            parts[group] = replace(group, body=(member, *body))
    body = tuple(parts.get(stmt, stmt) for stmt in kernel.function.body)
    plan = replace(kernel.plan, registers=registers)
    return replace(kernel, plan=plan, function=replace(kernel.function, body=body))


def moved(x, by, tiles):
    """Return a part of a program for threads that begin ``by`` later, with tiles of their own."""
    match x:
        case ir.Threads():
            return replace(x, begin=x.begin + by)
        case ir.RegisterTensor():
            return tiles.setdefault(x, replace(x, threads=moved(x.threads, by, tiles)))
        case tuple() | list():
            return type(x)(moved(part, by, tiles) for part in x)
        case ir.Stmt() | ir.Element() | ir.Operation() | ir.Select() | ir.Cast():
            parts = {f.name: getattr(x, f.name) for f in fields(x)}
            return replace(x, **{name: moved(part, by, tiles) for name, part in parts.items()})
    return x


@pytest.mark.parametrize("name", ["v4", "v5"])
def test_the_shared_code_is_right_for_both_consumer_groups(name):
    kernel = compiler.lower(version(name)(**SMALL[name]), {"n_size": 24, "k_size": 80})
    shared = apart(kernel)
    assert len(kernel.plan.twins) == 1
    changed = [a is not b for a, b in zip(kernel.function.body, shared.function.body, strict=True)]
    assert sum(changed) == 2
    for schedule in ("timed", "late", "random"):
        execute(shared, 200, 24, 80, schedule=schedule)


@pytest.mark.parametrize("name", ["v4", "v5"])
def test_shared_code_is_written_once(name):
    source = emit(compiler.lower(version(name)(**SMALL[name]), {"n_size": 24, "k_size": 80}))
    assert source.count("  wait_group") == (1 if name == "v4" else 2)
    assert "warp / 4" in source and "member" in source


def pair(*, columns=(8, 8), scale=(2, 2), first=(0, 1), begin=(0, 32), swapped=False):
    """Return a kernel of two groups that store a tile each; the arguments make them differ."""

    def kernel(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 8])
        for half in (0, 1):
            with self.thread_group(thread_begin=begin[half], num_threads=32):
                tile = self.register_tensor(dtype=float32, shape=[32, columns[half]], init=1.0)
                value: int32 = self.blockIdx.x * scale[half] + first[half]
                other: int32 = self.blockIdx.x
                if (other if swapped and half else value) // 2 > 5:
                    tile = tile + 1.0
                self.store_global(gc, tile, offsets=[32 * half, 0])

    return script(kernel).lower()


def test_alike_groups_are_twins():
    found, twins = groups(pair())
    assert twins[0].groups == tuple(found) and twins[1] is None


def test_a_factor_may_step_like_any_number():
    assert pair(scale=(2, 3)).plan.twins


@pytest.mark.parametrize(
    "difference",
    [
        {"columns": (8, 16)},
        {"begin": (0, 64)},
        {"first": (1, -2)},  # C's division is Python's for the first one's value alone
        {"swapped": True},
    ],
    ids=["tile", "apart", "sign", "variable"],
)
def test_groups_that_differ_are_none(difference):
    assert not pair(**difference).plan.twins


def test_each_twin_meets_at_a_barrier_of_its_own(backend):
    def kernel(self, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 6
        gc = self.global_view(c_ptr, dtype=float32, shape=[6, 32])
        s = self.shared_tensor(dtype=float32, shape=[3, 2, 32])
        for i in (0, 1, 2):
            with self.thread_group(thread_begin=64 * i, num_threads=64):
                value: int32 = self.blockIdx.x + i
                self.store_shared(
                    s[i], self.register_tensor(dtype=float32, shape=[2, 32], init=1.0)
                )
                self.sync()
                rows = self.load_shared(s[i].transpose())  # what other threads of the group wrote
                self.store_shared(s[i].transpose(), rows + value)
                self.sync()
                self.store_global(gc, self.load_shared(s[i]), offsets=[2 * i, 0])

    lowered = script(kernel).lower()
    assert [len(t.groups) for t in lowered.plan.twins.values()] == [3]
    assert '"r"(member == 0 ? 1 : member == 1 ? 2 : 3)' in emit(lowered)
    c = np.full((6, 32), np.nan, np.float32)
    backend.run(script(kernel), c)
    assert (c == np.repeat([1.0, 2.0, 3.0], 2)[:, None]).all()


def test_an_instruction_with_scratch_memory_keeps_groups_apart():
    def kernel(self, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        gc = self.global_view(c_ptr, dtype=float32, shape=[2, 1])
        for i in (0, 1):
            with self.thread_group(thread_begin=64 * i, num_threads=64):
                tile = self.register_tensor(dtype=float32, shape=[1, 128], init=1.0)
                total = self.sum(tile, dim=1, keepdim=True)  # across warps, through shared memory
                self.store_global(gc, total, offsets=[i, 0])

    lowered = script(kernel).lower()
    assert lowered.plan.scratch and not lowered.plan.twins


@pytest.mark.parametrize("numbers", [(1, 4, 7, 10), (1, 4, 8, 2)], ids=["equal", "unequal"])
def test_groups_whose_numbers_step_equally_share_their_code(backend, numbers):
    def quarters(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        gc = self.global_view(c_ptr, dtype=float32, shape=[4, 32])
        for i, first in enumerate(numbers):
            with self.thread_group(thread_begin=32 * i + 32, num_threads=32):
                tile = self.register_tensor(dtype=float32, shape=[1, 32], init=0.0)
                number: int32 = first
                while number > 0:
                    tile = tile + 2.0
                    number -= 1
                self.store_global(gc, tile, offsets=[i, 0])

    kernel = script(quarters)
    shared = [len(t.groups) for t in kernel.lower().plan.twins.values()]
    assert shared == ([4] if numbers == (1, 4, 7, 10) else [])
    c = np.full((4, 32), np.nan, np.float32)
    backend.run(kernel, c)
    assert (c == 2 * np.array(numbers)[:, None]).all()
