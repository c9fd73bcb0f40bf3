# SPDX-License-Identifier: Apache-2.0
"""What lies where in a block's shared memory, and how the swizzle spreads a tile over the banks.

The places are the plan's, the offsets the layout's: what both backends use. On a page: ``.. chart::
shared_map.v3`` (``v0`` to ``v7``) and ``.. chart:: shared_map.swizzle``, both with ``:badge:
computed from the kernel``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

import simulated
from style import WIDTH, Theme, theme
from tilus import ir
from tilus.layout import SharedLayout, Swizzle
from tilus.passes.placement import BARRIER_BYTES

CHUNK, LINE = 16, 128  # bytes: what a swizzle moves as one; all banks, once
ROWS = 8
NARROW = 0.06  # of the whole: a name does not fit into such a box, but upright


@dataclass(frozen=True)
class Part:
    """Bytes of shared memory: one tile of a buffer, or one mbarrier."""

    name: str
    begin: int
    nbytes: int
    barrier: bool = False


def parts(plan: ir.Plan) -> list[Part]:
    """Return every tile and every mbarrier by its place, in bytes from the start."""
    found = (p for thing in plan.places for p in _parts(plan, thing))
    return sorted(found, key=lambda p: p.begin)


def _parts(plan: ir.Plan, thing: ir.SharedBuffer | ir.BarrierArray) -> Iterator[Part]:
    place = plan.places[thing]
    if isinstance(thing, ir.BarrierArray):
        for i in range(len(thing)):
            yield Part(f"{thing.name}[{i}]", place + i * BARRIER_BYTES, BARRIER_BYTES, True)
        return
    indices = list(product(*(range(n) for n in thing.shape[:-2])))
    nbytes = thing.nbytes // len(indices)
    for i, index in enumerate(indices):
        name = f"{thing.name}[{', '.join(map(str, index))}]" if index else thing.name
        yield Part(name, place + i * nbytes, nbytes)


TILES = {"v6": {"block_n": 256, "num_stages": 3}, "v7": {"block_n": 200, "num_stages": 3}}
"""What the plans of these steps are drawn for: tiles as large as shared memory lets them be."""


def memory(name: str, version: str) -> None:
    """Draw the tiles of one block to scale, and its mbarriers one by one."""
    script = simulated.step(version, **TILES.get(version, {}))
    k = simulated.TILES * script.block_k
    found = parts(script.lower(n_size=script.block_n, k_size=k).plan)
    tiles = [p for p in found if not p.barrier]
    barriers = [p for p in found if p.barrier]
    with theme(name) as colours:
        _, (above, below) = plt.subplots(2, 1, figsize=(WIDTH, 2.4), layout="constrained")
        buffers = list(dict.fromkeys(_stem(p) for p in tiles))
        fills = dict(zip(buffers, (colours.load, colours.compute, colours.other), strict=False))
        for part in tiles:
            _box(above, part, barriers[0].begin, fills[_stem(part)], colours)
        ticks = sorted({p.begin for p in tiles} | {barriers[0].begin})
        above.set_xticks(ticks, [f"{t / 1024:g}" for t in ticks])
        above.set_xlabel("KiB from the start of shared memory")
        above.set_title("tiles: " + ", ".join(buffers), loc="left", fontsize=9.5)
        arrays = list(dict.fromkeys(_stem(p) for p in barriers))
        for part in barriers:
            fill = (colours.other, colours.muted)[arrays.index(_stem(part)) % 2]
            shown = replace(part, name=part.name.removeprefix(_stem(part)))
            _box(below, shown, sum(p.nbytes for p in barriers), fill, colours)
        ticks = [p.begin for p in barriers]
        below.set_xticks(ticks, [f"{t}" for t in ticks], fontsize=8)
        below.set_title("mbarriers: " + ", ".join(arrays), loc="left", fontsize=9.5)
        below.set_xlabel("bytes from the start")
        for ax in (above, below):
            ax.autoscale(axis="x", tight=True)
            ax.set_yticks([])
            ax.spines["left"].set_visible(False)


def _stem(part: Part) -> str:
    return part.name.partition("[")[0]


def _box(ax: Axes, part: Part, whole: int, fill: str, colours: Theme) -> None:
    ax.barh(0, part.nbytes, 1, left=part.begin, fc=fill, ec=colours.page, lw=0.8)
    text = {"ha": "center", "va": "center", "color": colours.on_bar, "fontsize": 7.5}
    narrow = part.nbytes < NARROW * whole
    name = part.name if narrow else part.name.replace("[", "\n[").strip()
    ax.text(part.begin + part.nbytes / 2, 0, name, rotation=90 if narrow else 0, **text)


def chunks(layout: SharedLayout, rows: int = ROWS) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (row, chunk) -> (line of 128 bytes, bank group) for the first rows of a tile."""
    per = CHUNK // layout.element_bytes
    starts = layout.offsets()[:rows, ::per] * layout.element_bytes
    return {
        (row, chunk): (int(at) // LINE, int(at) % LINE // CHUNK)
        for row, line in enumerate(starts)
        for chunk, at in enumerate(line)
    }


def swizzle(name: str, version: str = "v1") -> None:
    """Draw where the 16-byte chunks of a tile's first rows lie, without and with the swizzle."""
    script = simulated.step(version)
    plan = script.lower(n_size=script.block_n, k_size=script.block_k).plan
    layout = next(iter(plan.shared.values()))
    plain = replace(layout, swizzle=Swizzle.NONE)
    titles = ("row by row", f"{int(layout.swizzle)}-byte swizzle")
    with theme(name) as colours:
        figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.9), layout="constrained")
        for ax, title, used in zip(axes, titles, (plain, layout), strict=True):
            _banks(ax, title, used, colours)
        axes[0].set_ylabel("line of 128 bytes")
        figure.supxlabel("group of four banks, 16 bytes", fontsize=9.5)


def _banks(ax: Axes, title: str, layout: SharedLayout, colours: Theme) -> None:
    found = chunks(layout)
    for (row, chunk), (line, group) in found.items():
        first = chunk == 0
        fill = colours.compute if first else colours.faint
        ax.barh(line, 1, 1, left=group - 0.5, fc=fill, ec=colours.page, lw=0.8)
        ink = colours.on_bar if first else colours.ink
        label = {"ha": "center", "va": "center_baseline", "fontsize": 7, "color": ink}
        ax.text(group, line, f"{row}.{chunk}", **label)
    groups = len({group for (_, chunk), (_, group) in found.items() if chunk == 0})
    ax.set_title(f"{title}\na column of chunks: {groups} of {LINE // CHUNK} groups", fontsize=9.5)
    lines = sorted({line for line, _ in found.values()})
    ax.set_xticks(range(LINE // CHUNK))
    ax.set_yticks(lines)
    ax.set_ylim(lines[-1] + 0.5, -0.5)
    ax.set_xlim(-0.5, LINE // CHUNK - 0.5)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


v0, v1, v2, v3, v4, v5, v6, v7 = (partial(memory, version=v) for v in simulated.SCHEDULES)
