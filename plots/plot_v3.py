# SPDX-License-Identifier: Apache-2.0
"""The figures of V3's page: its simulated timeline, its record beside cuBLAS. Measures nothing."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matmul_v3 import MatmulWGMMAV3
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from style import WIDTH, Theme, theme
from tilus import compiler, simulator
from tilus.simulator import Event

ROOT = Path(__file__).parent.parent
STAGES, BLOCK, BLOCK_K, TILES = 4, 128, 64, 12
LANES = {
    "warp 4": "producer\nwarp 4",
    "TMA engine": "copy engine",
    "tensor cores": "tensor cores",
    "warps 0-3": "consumer\nwarps 0-3",
}


@cache
def trace() -> tuple[Event, ...]:
    """Run one block of V3 on the simulator and return what happened when."""
    script = MatmulWGMMAV3(num_stages=STAGES, block_m=BLOCK, block_n=BLOCK, block_k=BLOCK_K)
    kernel = compiler.lower(script, {"n_size": BLOCK, "k_size": TILES * BLOCK_K})
    operand = np.zeros(BLOCK * TILES * BLOCK_K, np.float16)
    arrays = {"a_ptr": operand, "b_ptr": operand, "c_ptr": np.zeros(BLOCK * BLOCK, np.float16)}
    return simulator.run(kernel, {"m_size": BLOCK, **arrays}, trace=True).events


def timeline(name: str) -> None:
    """Draw who worked and who waited, for one block with a ring of four stages."""
    with theme(name) as colours:
        _, ax = plt.subplots(figsize=(WIDTH, 3.1), layout="constrained")
        for event in trace():
            _bar(ax, event, colours)
        ax.set_yticks(range(len(LANES)), LANES.values())
        ax.invert_yaxis()
        ax.set_xlim(left=0)
        ax.set_xlabel("simulated cycles since the block began")
        _legend(ax, colours)


def _bar(ax: Axes, event: Event, colours: Theme) -> None:
    y, width = list(LANES).index(event.lane), event.end - event.start
    if event.kind in ("wait", "sync"):
        ax.barh(y, width, 0.34, event.start, fc="none", ec=colours.faint, hatch="////", lw=0.5)
        return
    fill = {"copy": colours.load, "compute": colours.compute}.get(event.kind, colours.other)
    ax.barh(y, width, 0.62, event.start, fc=fill, ec="none")


def _legend(ax: Axes, colours: Theme) -> None:
    kinds = [
        Patch(fc=colours.load, label="load of a stage"),
        Patch(fc=colours.compute, label="product"),
        Patch(fc=colours.other, label="instructions"),
        Patch(fc="none", ec=colours.faint, hatch="////", label="waiting"),
    ]
    ax.legend(handles=kinds, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=9)


def performance(name: str, path: str) -> None:
    """Draw the speeds of V3 and of cuBLAS in the record at ``path``, below the published peak."""
    measurements = json.loads((ROOT / path).read_text())["measurements"]
    peak = json.loads((ROOT / "plots" / "published.json").read_text())["h200_dense_fp16"]["value"]
    problems = list(dict.fromkeys(_problem(m) for m in measurements))
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.62 * len(problems)), layout="constrained")
        for offset, version, fill in (
            (-0.2, "v3", colours.compute),
            (0.2, "cublas", colours.faint),
        ):
            speeds = [_speed(measurements, version, problem) for problem in problems]
            bars = ax.barh(np.arange(len(problems)) + offset, speeds, 0.36, fc=fill, label=version)
            ax.bar_label(bars, fmt=lambda x: f"{x:.0f}" if x else "", padding=3, fontsize=9)
        ax.axvline(peak, color=colours.other, ls="--", lw=1, label=f"published peak, {peak} TFLOPS")
        ax.set_yticks(range(len(problems)), [f"{size}\n{regime}" for size, regime in problems])
        ax.invert_yaxis()
        ax.set_xlabel("TFLOPS")
        figure.legend(loc="outside upper center", ncols=3, fontsize=9)


def _problem(measurement: dict[str, Any]) -> tuple[str, str]:
    m, n, k = (measurement[axis] for axis in "mnk")
    return f"{m}³" if m == n == k else f"{m}×{n}×{k}", measurement["regime"]


def _speed(measurements: list[dict[str, Any]], version: str, problem: tuple[str, str]) -> float:
    """Return TFLOPS: median over rounds, then over processes; 0 where nothing was measured."""
    chosen = [m for m in measurements if m["version"] == version and _problem(m) == problem]
    if not chosen:
        return 0.0
    ms = median(median(m["latency_ms"]) for m in chosen)
    return float(2 * chosen[0]["m"] * chosen[0]["n"] * chosen[0]["k"] / ms / 1e9)
