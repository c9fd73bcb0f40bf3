# SPDX-License-Identifier: Apache-2.0
"""Which schedules there are for a product, which of them fit, and what each is expected to cost.

The estimate is good for ranking: it says which few of many hundred schedules are worth measuring,
and which of the measured ones to take for sizes that nobody has measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import log2
from typing import Any

Size = tuple[int, int, int]
"""M, N, K."""

BLOCK_K = 64  # elements of 16 bits: one row of the widest swizzle
SHARED_BYTES = 232448  # of a block on every Hopper GPU
SLACK_BYTES = 2048  # alignment and barriers
MULTIPROCESSORS = 132
REGISTERS = {1: 200, 2: 200, 3: 96}
"""A thread's registers that an accumulator may take, by the number of consumer groups."""
DIRECT_SPARE = 24
"""How many fewer where results leave from registers: addresses need some."""
MOST_STAGES = 8
MOST_SPLIT = 16
OF_A_KIND = 3
"""Schedules of one kind that are measured for a size."""
LEAST_STEPS = 6
"""Steps of K that a part of a split product has at least."""

# What one multiprocessor does in a microsecond, all of them busy and the GPU near its power cap;
# what L2 and device memory give all of them; what a launch, a tile's end (alone, or while another
# group multiplies) and the launch of a sum take. Fitted to what the schedules of schedules.json
# took on an H200: a test holds them to it.
MFLOP = 6.6
L2_MBYTES = 17.5
DRAM_MBYTES = 3.9
LAUNCH_US, TILE_US, TURNS_US, SUMS_US = 2.5, 1.0, 0.2, 3.3
A_COLUMNS = 12  # how many columns' products the rows of A cost, which WGMMA reads for all columns
NARROWEST = 48  # columns that a product of WGMMA takes time for at least
OUTSIDE_US = 0.0034  # what a row of a box takes that lies beyond the matrix, which TMA fills itself
LATENCY_US = 1.2  # until device memory has answered: as many steps as there are stages take that
UNEVEN = 2.8
"""How much longer rows take to come that begin between lines of the cache: as at K = 2008.

Those that a block asks for are counted, not those that another one sends it.
"""
LINE = 64  # elements


@dataclass(frozen=True)
class Order:
    """How arrays lie in memory: ``a_mn``: A as [k, m]; ``b_mn``: B as [k, n]; ``direct``: C so that
    TMA cannot store it."""

    a_mn: bool = False
    b_mn: bool = False
    direct: bool = False

    def values(self) -> dict[str, bool]:
        """Return the values by name, as the kernel takes them."""
        return asdict(self)


USUAL = Order()
"""Rows of A, of weights and of C one after another."""


@dataclass(frozen=True)
class Schedule:
    """What :class:`~tilus.kernels.product.Product` is built with, apart from its operands' order,
    or, with clusters of two blocks, :class:`~tilus.kernels.pairs.Pairs`.

    ``block_m`` and ``block_n`` are those of the kernel: with ``swapped`` the first counts columns
    of C.
    """

    block_m: int
    block_n: int
    num_stages: int
    num_blocks: int = MULTIPROCESSORS
    group_m: int = 8
    consumers: int = 2
    split_k: int = 1
    swapped: bool = False
    turns: bool = False
    cluster: int = 1

    def values(self) -> dict[str, Any]:
        """Return the values by name; a block alone is no cluster, and has no such value."""
        return {name: x for name, x in asdict(self).items() if (name, x) != ("cluster", 1)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Schedule:
        """Return the schedule with these values; others than its own are left out."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})

    def tiles(self, size: Size) -> int:
        """Return the number of tiles of C, with those beyond its edge that fill a cluster."""
        x, y = self.sides(size)
        return up(x, self.block_m) * up(y, self.block_n * self.cluster) * self.cluster

    def sides(self, size: Size) -> tuple[int, int]:
        """Return how many rows and columns of C the tile's rows and columns are to cover."""
        m, n, _ = size
        return (n, m) if self.swapped else (m, n)

    def once(self, size: Size) -> bool:
        """Say whether some operand's elements are read by one block each, from device memory."""
        x, y = self.sides(size)
        return x <= self.block_m or y <= self.block_n

    def outside(self, size: Size) -> int:
        """Return how many rows of a step's boxes no tile has inside the matrices."""
        x, y = self.sides(size)
        return max(0, self.block_m - x) + max(0, self.block_n - y)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block takes, about."""
        stage = (self.block_m + self.block_n) * BLOCK_K * 2
        staged = self.consumers * 64 * self.block_n * 2 if self.split_k == 1 else 0
        return self.num_stages * stage + staged + SLACK_BYTES

    @property
    def registers(self) -> int:
        """A thread's registers that the accumulator takes."""
        return self.block_m // self.sharers * self.block_n // 128

    @property
    def sharers(self) -> int:
        """Consumer groups that share the rows of a tile."""
        return 1 if self.turns else self.consumers

    @property
    def kind(self) -> Schedule:
        """What is common to schedules that differ in sizes, not in what the kernel does."""
        parts = min(self.split_k, 2)
        return replace(self, block_n=0, num_stages=0, num_blocks=0, group_m=0, split_k=parts)

    @property
    def pairs(self) -> bool:
        """Whether it is one of blocks in pairs."""
        alike = (self.cluster, self.consumers, self.split_k, self.num_blocks % 2) == (2, 2, 1, 0)
        return alike and not self.swapped and not self.turns

    def fits(self, size: Size, order: Order = USUAL) -> bool:
        """Say whether a product of this size can be made so, its operands lying in this order."""
        steps = up(size[2], BLOCK_K)
        parts_filled = (self.split_k - 1) * up(steps, self.split_k) < steps
        y_mn = order.a_mn if self.swapped else order.b_mn
        spare = DIRECT_SPARE if order.direct and self.split_k == 1 else 0
        return (
            self.block_m % (64 * self.sharers) == 0
            and not (self.turns and (self.consumers, self.split_k) != (2, 1))
            and (self.cluster == 1 or self.pairs)
            and self.block_m <= 256
            and self.block_n % (64 if y_mn else 8) == 0
            and 8 <= self.block_n <= 256
            and self.registers <= REGISTERS[self.consumers] - spare
            and self.num_stages >= 2
            and self.shared_bytes <= SHARED_BYTES
            and steps >= 1
            and parts_filled
        )

    def suited(self, size: Size) -> Schedule:
        """Return the same without clusters where they win nothing: where no row of K is uneven."""
        return self if uneven(size) else replace(self, cluster=1)

    def deepened(self) -> Schedule:
        """Return the same with as many stages as there is room for."""
        stage = (self.block_m + self.block_n) * BLOCK_K * 2
        room = SHARED_BYTES - replace(self, num_stages=0).shared_bytes
        return replace(self, num_stages=min(MOST_STAGES, room // stage))


def up(x: int, step: int) -> int:
    """Return how many steps it takes to cover x."""
    return -(-x // step)


def uneven(size: Size) -> bool:
    """Say whether rows of K elements begin between lines of the cache."""
    return size[2] % LINE != 0


def predicted_us(schedule: Schedule, size: Size, blocks: int = MULTIPROCESSORS) -> float:
    """Return about how many microseconds a product takes: its waves of tiles, or its traffic."""
    m, n, k = size
    blocks = min(blocks, schedule.num_blocks)
    parts = schedule.tiles(size) * schedule.split_k
    steps = up(up(k, BLOCK_K), schedule.split_k)
    deep = steps * BLOCK_K
    rows, columns = schedule.block_m, schedule.block_n
    compute = 2e-6 * rows * (max(columns, NARROWEST) + A_COLUMNS) * deep / MFLOP
    asked = UNEVEN * (rows / schedule.cluster + columns) if uneven(size) else 0
    fetch = 2e-6 * max(rows + columns, asked) * deep / (L2_MBYTES / min(blocks, parts))
    fetch += OUTSIDE_US * schedule.outside(size) * steps
    answers = LATENCY_US * steps / schedule.num_stages if schedule.once(size) else 0
    end = TURNS_US if schedule.turns else TILE_US
    waves = up(parts, blocks) * ((compute**6 + fetch**6 + answers**6) ** (1 / 6) + end)
    memory = 2e-6 * (m * k + n * k + m * n) / DRAM_MBYTES
    product: float = LAUNCH_US + (waves**4 + memory**4) ** (1 / 4)
    if schedule.split_k == 1:
        return product
    return product + SUMS_US + 8e-6 * m * n * schedule.split_k / L2_MBYTES


def candidates(size: Size, order: Order = USUAL) -> Iterator[Schedule]:
    """Yield every schedule that is thought of for a size and fits."""
    steps = up(size[2], BLOCK_K)
    most = max(1, min(MOST_SPLIT, steps // LEAST_STEPS))
    for shape in tiles(size):
        for split in range(1, 2 if shape.turns else most + 1):
            schedule = replace(shape, split_k=split).deepened()
            if schedule.fits(size, order):
                yield schedule


def tiles(size: Size) -> Iterator[Schedule]:
    """Yield a schedule for every tile that is thought of for a size."""
    for consumers, rows in ((2, 128), (2, 256), (3, 192), (1, 64)):
        for columns in range(64, 257, 8):
            yield Schedule(rows, columns, 2, consumers=consumers)
            if consumers == 2 and rows == 128:
                yield Schedule(rows, columns, 2, turns=True)
            if consumers == 2 and uneven(size):
                yield Schedule(rows, columns, 2, cluster=2)
    narrow = up(min(size[0], 256), 8) * 8
    if size[0] <= 256:
        for rows in (128, 256):
            yield Schedule(rows, narrow, 2, swapped=True)


def ranked(size: Size, order: Order = USUAL) -> list[Schedule]:
    """Return the schedules that are thought of for a size, what should be fastest first."""
    return sorted(candidates(size, order), key=lambda s: predicted_us(s, size))


def shortlist(size: Size, count: int, order: Order = USUAL) -> list[Schedule]:
    """Return the ``count`` schedules that are worth measuring: the best ones, of several kinds."""
    chosen: list[Schedule] = []
    kinds: Counter[Schedule] = Counter()
    for s in ranked(size, order):
        if kinds[s.kind] < OF_A_KIND and len(chosen) < count:
            kinds[s.kind] += 1
            chosen.append(s)
    return chosen


def distance(size: Size, other: Size) -> float:
    """Return how far apart two sizes are: the sum of the binary logarithms of their ratios."""
    return sum(abs(log2(x / y)) for x, y in zip(size, other, strict=True))
