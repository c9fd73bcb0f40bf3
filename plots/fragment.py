# SPDX-License-Identifier: Apache-2.0
"""Which thread holds which element of a tile, and in which register: fragments of the tensor cores.

The layouts are the plan's, which the compiler emits. On a page: ``.. chart:: fragment.wgmma`` or
``.. chart:: fragment.mma``, both with ``:badge: computed from the kernel``.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

import simulated
from style import WIDTH, Theme, theme
from tilus import ir
from tilus.layout import RegisterLayout

Holder = tuple[int, int]
"""Thread and register."""


def holders(layout: RegisterLayout) -> dict[tuple[int, ...], list[Holder]]:
    """Return who holds each element of the tile."""
    found: dict[tuple[int, ...], list[Holder]] = {}
    coordinates = layout.coordinates()
    for thread in range(layout.threads):
        for register in range(layout.registers):
            element = tuple(map(int, coordinates[thread, register]))
            found.setdefault(element, []).append((thread, register))
    return found


def tile(version: str, name: str) -> RegisterLayout:
    """Return the layout of the register tile that a step's kernel calls ``name``."""
    script = simulated.step(version)
    kernel = script.lower(n_size=script.block_n, k_size=script.block_k)
    layouts = kernel.plan.registers
    return next(layouts[t] for t in layouts if isinstance(t, ir.RegisterTensor) and t.name == name)


def _warps(ax: Axes, layout: RegisterLayout, rows: int, colours: Theme) -> None:
    """Draw which warp holds which rows of the tile."""
    owner = {element: held[0][0] // 32 for element, held in holders(layout).items()}
    for row in range(rows):
        warp = owner[(row, 0)]
        fill = to_rgba(_shade(warp, colours), 0.85)
        ax.barh(row, 1, 1, left=0, fc=fill, lw=0)
    for warp in sorted(set(owner.values())):
        mine = [r for r in range(rows) if owner[(r, 0)] == warp]
        text = {"ha": "center", "va": "center", "color": colours.on_bar, "fontsize": 8}
        ax.text(0.5, sum(mine) / len(mine), f"warp\n{warp}", **text)
    ax.set_xlim(0, 1)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.set_xticks([])
    ax.set_yticks([0, 16, 32, 48, rows - 1])
    ax.spines[:].set_visible(False)
    ax.set_title(f"{rows} rows", fontsize=9.5)


def _shade(warp: int, colours: Theme) -> str:
    return (colours.compute, colours.load, colours.other, colours.muted)[warp % 4]


def _zoom(ax: Axes, layout: RegisterLayout, rows: int, columns: int, colours: Theme) -> None:
    """Draw thread and register of each element of the tile's corner; one thread's stand out."""
    held, fills = holders(layout), np.zeros((rows, columns, 4))
    for row in range(rows):
        for column in range(columns):
            thread, register = held[(row, column)][0]
            mine = thread == 0
            pale = to_rgba(colours.muted, 0.12 + 0.16 * (thread % 2))
            fills[row, column] = to_rgba(colours.compute) if mine else pale
            ink = colours.on_bar if mine else colours.ink
            text = {"ha": "center", "va": "center_baseline", "fontsize": 6.5, "color": ink}
            ax.text(column + 0.5, row + 0.5, f"{thread}.{register}", **text)
    ax.pcolormesh(fills, edgecolors=colours.page, lw=0.6)
    ax.set_ylim(rows, 0)
    ax.set_xticks(np.arange(columns) + 0.5, range(columns))
    ax.set_yticks(np.arange(rows) + 0.5, range(rows))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=8)
    ax.set_title("thread.register", fontsize=9.5)


def wgmma(name: str) -> None:
    """Draw the accumulator of WGMMA: the warps' rows, and the corner of warp 0."""
    layout = tile("v1", "acc")
    with theme(name) as colours:
        _, (left, right) = plt.subplots(
            1, 2, figsize=(WIDTH, 3.9), width_ratios=(1, 9), layout="constrained"
        )
        _warps(left, layout, 64, colours)
        _zoom(right, layout, 16, 16, colours)


def mma(name: str) -> None:
    """Draw the operands of mma.sync, the corner of warp 0; its accumulator lies as WGMMA's."""
    with theme(name) as colours:
        _, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.9), layout="constrained")
        for ax, operand, dims in zip(axes, "ab", (("m", "k"), ("k", "n")), strict=True):
            _zoom(ax, tile("v0", operand), 16, 8, colours)
            ax.set_title(f"{operand}: thread.register", fontsize=9.5)
            ax.set_ylabel(dims[0])
            ax.set_xlabel(dims[1])
