# SPDX-License-Identifier: Apache-2.0
"""Which tile each block computes, and what the blocks that run together read of A and B.

The order is the kernel's: its own expressions for the place of its tile are evaluated for every
block. On a page: ``.. chart:: raster.v4`` with ``:badge: computed from the kernel``, and
``raster.v7`` with ``:record: v7``, whose schedules it takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

import simulated
from measured import Problem, problems
from style import WIDTH, Theme, theme
from tilus import ir, records
from tilus.ops.memory import store_global
from tilus.ops.tma import global_to_shared

SIZE = 8192
SMS = 132  # of the H200; as many blocks make a wave where one fits an SM
LARGEST: Problem = (SIZE, SIZE, SIZE, "burst")
ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "plots" / "published.json"

Tile = tuple[int, int]
"""Row and column of a tile of C, in tiles."""


@dataclass(frozen=True)
class WorkingSet:
    """What some blocks read: panels of whole rows of A, and of whole rows of B."""

    a_panels: int
    b_panels: int
    nbytes: int


def order(kernel: ir.Kernel, m: int, block: Tile) -> Iterator[Tile]:
    """Yield each block's tile in the order of launch, x fastest; tiles of C are ``block`` large.

    Persistent blocks walk all tiles together: those of a round follow each other.
    """
    function = kernel.function
    sizes = {p.var: m for p in function.params if not p.pointer}
    loops = (s for s in ir.walk(function.body) if isinstance(s, ir.For))
    walk = next((s for s in loops if isinstance(s.start, ir.Builtin)), None)
    if walk is not None:
        yield from _walked(walk, dict(sizes), block)
        return
    store = next(s for s in ir.walk(function.body) if isinstance(s, store_global))
    x, y, z = function.grid(sizes)
    for k, j, i in product(range(z), range(y), range(x)):
        known: dict[object, ir.Scalar] = {v: n for v, n in sizes.items()}
        known |= {"blockIdx.x": i, "blockIdx.y": j, "blockIdx.z": k}
        for stmt in function.body:
            if isinstance(stmt, ir.Declare):
                known[stmt.var] = _value(stmt.value, known)
        row, column = (int(_value(offset, known)) for offset in store.offsets)
        yield row // block[0], column // block[1]


def _walked(walk: ir.For, known: dict[object, ir.Scalar], block: Tile) -> Iterator[Tile]:
    """Yield the tiles of the loop in which a producer walks them, by the places that it loads."""
    a, b = (s for s in ir.walk(walk.body) if isinstance(s, global_to_shared))
    for tile in range(int(_value(walk.stop, known))):
        known[walk.var] = tile
        for stmt in walk.body:
            if isinstance(stmt, ir.Declare):
                known[stmt.var] = _value(stmt.value, known)
        row, column = (int(_value(copy.offsets[0], known)) for copy in (a, b))
        yield row // block[0], column // block[1]


def _value(x: ir.ExprLike, known: dict[object, ir.Scalar]) -> ir.Scalar:
    return ir.evaluate(x, lambda v: known[v.name if isinstance(v, ir.Builtin) else v])


def visits(version: str, size: int = SIZE, **changes: int) -> tuple[Tile, ...]:
    """Return the tiles of a square C in the order in which a step's blocks compute them."""
    return _visits(simulated.step(version, **changes), size)


def _visits(script: Any, size: int) -> tuple[Tile, ...]:
    kernel = script.lower(n_size=size, k_size=size)
    return tuple(order(kernel, size, (script.block_m, script.block_n)))


def working_set(tiles: Sequence[Tile], block: Tile, k: int) -> WorkingSet:
    """Return what blocks of ``tiles`` read of float16 matrices whose rows have ``k`` elements."""
    rows, columns = ({t[i] for t in tiles} for i in (0, 1))
    nbytes = 2 * k * (len(rows) * block[0] + len(columns) * block[1])
    return WorkingSet(len(rows), len(columns), nbytes)


def draw(name: str, **scripts: Any) -> None:
    """Draw the order of each version side by side, in the colours of the page ``name``."""
    l2 = json.loads(PUBLISHED.read_text())["h200_l2"]
    with theme(name) as colours:
        figure, axes = plt.subplots(
            1, len(scripts), figsize=(WIDTH, 3.7), layout="constrained", squeeze=False
        )
        for ax, (version, script) in zip(axes[0], scripts.items(), strict=True):
            _map(ax, version, script, colours)
        axes[0, 0].set_ylabel("rows of C: panels of A")
        figure.supxlabel(f"the L2 cache holds {l2['value']} {l2['unit']}", fontsize=9.5)


def _map(ax: Axes, version: str, step: Any, colours: Theme) -> None:
    tiles = _visits(step, SIZE)
    across = 1 + max(column for _, column in tiles)
    down = 1 + max(row for row, _ in tiles)
    image = np.zeros((down, across, 4))
    for i, tile in enumerate(tiles):
        image[tile] = to_rgba(colours.muted, 0.10 + 0.16 * (i // SMS % 2))
    for i, tile in enumerate(tiles[:SMS]):
        image[tile] = to_rgba(colours.compute, 0.35 + 0.65 * i / SMS)
    # Larger than it needs to be, so that a browser that smooths it leaves the tiles sharp.
    ax.imshow(image.repeat(8, 0).repeat(8, 1), extent=(-0.5, across - 0.5, down - 0.5, -0.5))
    wave = tiles[:SMS]
    strip = {"color": colours.load, "clip_on": False, "lw": 0}
    for row in {t[0] for t in wave}:
        ax.barh(row, 2, 1, left=-4, **strip)
    for column in {t[1] for t in wave}:
        ax.bar(column, 2, 1, bottom=-4, **strip)
    read = working_set(wave, (step.block_m, step.block_n), SIZE)
    ax.set_xlim(-4.5, across)
    ax.set_ylim(down, -4.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_title(version.upper(), fontweight="bold", fontsize=10)
    panels = f"{read.a_panels} panels of A, {read.b_panels} of B"
    ax.set_xlabel(f"first {SMS} blocks read\n{panels}:\n{read.nbytes / 1e6:.0f} MB")


def v4(name: str) -> None:
    """Draw V3's order, which is that of a 2-D grid, beside V4's."""
    draw(name, v3=simulated.step("v3"), v4=simulated.step("v4"))


def v7(name: str, path: str) -> None:
    """Draw V6's order beside V7's, with the schedules of the record at ``path``."""
    record = records.load(ROOT / path)
    known = [v for v in ("v6", "v7") if problems(record, v)]
    chosen = {v: record.summary(v, *LARGEST).schedule or {} for v in known}
    draw(name, **{v: simulated.step(v, **schedule) for v, schedule in chosen.items()})
