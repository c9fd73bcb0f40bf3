# SPDX-License-Identifier: Apache-2.0
"""Python inside ``__call__``: a traced kernel does what Python does."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.kernels import in_python, in_simulator

from tilus import int32, uint32


def straight_line(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    a = n + 1
    b = a * m
    a = a - b  # b keeps the value that a had
    self.use(a)
    self.use(b)
    a, b = b, a
    self.use(a)
    self.use(-a // 3)
    self.use(a % 5)
    self.use(b >> 1)
    self.use(n / 2.0)


def loops(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    total = 0
    for i in range(n):
        for j in self.range(i, 10, 3):
            if j == m:
                continue
            if total > 60:
                break
            total += i * j
        self.use(total)
    for i in range(3, -3, -2):
        self.use(i + total)
    a, b = 0, 1
    for _ in range(m):
        a, b = b, a + b
    self.use(a)
    i = n
    while i > 0 and total >= 0:
        i -= 2
        self.use(i)


def conditions(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    x = 5
    if n < m:
        x = n
        y = 1
    elif n == m:
        y = m
        x += 10
    else:
        y = n * m
    self.use(x)
    self.use(y)
    self.use(0 < n <= m)
    self.use(n if n > m else m)
    self.use(not n)
    self.use(1 if (n and m) or n == 3 else 0)
    self.use(min(n, m, 4) + max([n, m]) + abs(n - m))


def early_return(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    if n > m:
        self.use(1)
        return
    self.use(2)
    for i in range(m):
        if i == 2:
            return
        self.use(i)
    self.use(3)


def loop_counter_assigned(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    for i in range(n):
        self.use(i)
        i = i * 2 + m
        if i > m:
            i += 1
        self.use(i)


def snapshots(self, n: int32, m: int32):
    """Values that names, lists and tuples hold do not follow a variable that changes later."""
    self.attrs.blocks, self.attrs.warps = 1, 1
    x: int32 = n
    old, pair, nested = x, (x, x + 1), [x, [x * 2]]
    for _ in range(3):
        x += m
    self.use(x)
    self.use(old)
    self.use(pair[0] + pair[1])
    self.use(nested[1][0])


def stop_is_evaluated_once(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    limit: int32 = n
    for i in range(limit):
        limit += m
        self.use(i)
    self.use(limit)


def compile_time_sequences(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    total = n
    for i, (word, size) in enumerate(zip(["a", "b", "c"], (1, 2, 3), strict=True)):
        if word == "b":
            continue
        if size > 5:
            break
        total = total * size + i
    self.use(total)
    i = m
    table = [i * i for i in range(5) if i % 2 == 0]
    self.use(i)
    self.use(sum(table) + len(table) + n)
    self.use({"k": m, **{"z": n}}["z"])
    self.use(len({k for k in (1, 1, 2)}) + int(f"{len(table):03d}") + n)


def register_elements(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    phases = self.register_tensor(dtype=uint32, shape=[3], init=1)
    stage = 0
    for _ in self.range(n, unroll=3):
        before = phases[stage]
        phases[stage] ^= 1
        self.use(before)
        self.use(phases[stage])
        stage = (stage + 1) % 3
    phases[0] = 7
    self.use(phases[0] + phases[stage])


def divergent_but_legal(self, n: int32, m: int32):
    """Each group has its own copy of a variable declared outside, as every thread has."""
    self.attrs.blocks, self.attrs.warps = 1, 2
    x: int32 = n
    y: int32 = 0
    with self.single_warp(0):
        for _ in range(m):
            x += 1
        self.use(x)
    with self.single_warp(1), self.single_thread():
        for _ in range(m):
            y += 1
            self.use(y)
    y = m  # by all threads: now they agree again
    x = y
    self.use(x)


def containers_keep_values(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    kept, cells, named = [], [0, 0], {"first": n}
    x: int32 = n
    kept.append(x)
    kept.extend([x + 1, m])
    cells[1] = x
    named.update(second=x)
    display = {"x": x, "pair": (x, x + m)}
    x += 5
    for value in [*kept, *cells, *named.values(), display["x"], display["pair"][1], x]:
        self.use(value)
    turns = []
    for t in (0, 1, 2):
        y: int32 = n + t
        z = y
        turns.append(z)
    for value in turns:
        self.use(value)


def and_or_of_numbers(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.use(n or 5)
    self.use(n and m)
    self.use((n > 2 or m) + 1)
    self.use((m and n > 2) + 1)
    self.use(n or m or 7)
    if n and m:
        self.use(1)
    flag = n > m
    self.use(-flag)
    self.use(flag << 2)
    self.use(flag + flag)


def phases_in_a_word(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    bits: uint32 = 5
    stage: int32 = 0
    for _ in range(n):
        self.use(bits >> stage & 1)
        bits ^= 1 << stage
        stage = stage + 1 if stage < 3 else 0
    self.use(bits)


def methods_return_early(self, n: int32, m: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.use(self.clamp(n, 0, 5))
    self.use(self.clamp(self.clamp(m, n, 9), 1, 4) + self.sign(m))
    total = 0
    for i in range(n):
        a, b, c = self.order(i, m)
        total += a * 3 + b + c
        self.report_if_positive(i - m)
    self.use(total)
    self.use(self.clamp(3, 4, 5))


PROGRAMS = [
    methods_return_early,
    phases_in_a_word,
    containers_keep_values, and_or_of_numbers,
    straight_line, loops, conditions, early_return, loop_counter_assigned, snapshots,
    stop_is_evaluated_once, compile_time_sequences, register_elements, divergent_but_legal,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(-7, 12), m=st.integers(-4, 9))
@example(n=3, m=3)
@example(n=0, m=0)
def test_program_does_what_python_does(program, n, m):
    assert in_simulator(program, n, m) == in_python(program, n, m)
