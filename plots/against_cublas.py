# SPDX-License-Identifier: Apache-2.0
"""Speeds beside cuBLAS: the ladder at one size, all steps at all sizes, and one step by itself.

On a page: ``.. chart:: against_cublas.speed``, ``.. chart:: against_cublas.sizes`` and, for one
step, ``.. chart:: against_cublas.v3`` (``v0`` to ``v7``), all with ``:record: ladder`` or another
record; the badge is the record's.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgba

from measured import RIVALS, Problem, called, load, problems, size, versions
from style import WIDTH, theme
from tilus.records import Record, Summary

ROOT = Path(__file__).parent.parent
SIZE: Problem = (8192, 8192, 8192, "burst")
BASELINE = "cublas"
FLOOR = 0.4  # ratio to cuBLAS that is drawn palest


def peak() -> float:
    """Return the published peak in TFLOPS."""
    published = json.loads((ROOT / "plots" / "published.json").read_text())
    return float(published["h200_dense_fp16"]["value"])


def rungs(record: Record, problem: Problem = SIZE) -> dict[str, Summary]:
    """Return what is known of one problem: the steps in their order, then NVIDIA's libraries."""
    names = [*versions(record), *RIVALS]
    known = [name for name in names if problem in problems(record, name)]
    return {name: record.summary(name, *problem) for name in known}


def label(summary: Summary) -> str:
    """Return a bar's numbers: speed, time, and the ratio to cuBLAS where there is one."""
    parts = [f"{summary.tflops:.0f} TFLOPS", f"{summary.latency_ms:.2f} ms"]
    return ", ".join(parts + ([f"{summary.vs_cublas:.2f}×"] if summary.vs_cublas else []))


def speed(name: str, path: str) -> None:
    """Draw each step and its rivals at the largest cube in bursts, below the published peak."""
    found = rungs(load(ROOT / path))
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.0 + 0.42 * len(found)), layout="constrained")
        for y, (version, summary) in enumerate(found.items()):
            fill = colours.load if version in RIVALS else colours.compute
            ax.barh(y, summary.tflops, 0.7, fc=fill)
            inside = summary.tflops > peak() / 2
            look = {"ha": "right", "color": colours.on_bar} if inside else {"ha": "left"}
            x = summary.tflops + (-8 if inside else 8)
            ax.text(x, y, label(summary), va="center_baseline", fontsize=8.5, **look)
        ax.axvline(peak(), color=colours.other, ls="--", lw=1, label=f"published peak, {peak():g}")
        ax.set_yticks(range(len(found)), [called(version) for version in found])
        ax.invert_yaxis()
        ax.set_xlabel(f"TFLOPS at {size(*SIZE[:3])}, in bursts")
        figure.legend(loc="outside upper center")


def ratios(record: Record, regime: str = "burst") -> dict[str, dict[str, float]]:
    """Return size -> version -> ratio to cuBLAS, the largest size first, of what was measured."""
    found: dict[str, dict[str, float]] = {}
    steps = versions(record)
    order = {p: None for step in steps for p in problems(record, step) if p[3] == regime}
    for problem in sorted(order, key=lambda p: (-p[0] * p[1] * p[2], p)):
        for step in steps:
            if problem in problems(record, step):
                ratio = record.summary(step, *problem).vs_cublas
                if ratio is not None:
                    found.setdefault(size(*problem[:3]), {})[step] = ratio
    return found


def sizes(name: str, path: str) -> None:
    """Draw the ratio to cuBLAS of each step at each size, as a table in shades."""
    found = ratios(load(ROOT / path))
    steps = sorted({step for row in found.values() for step in row})
    with theme(name) as colours:
        _, ax = plt.subplots(figsize=(WIDTH, 0.6 + 0.36 * len(found)), layout="constrained")
        for y, row in enumerate(found.values()):
            for x, step in enumerate(steps):
                if step not in row:
                    continue
                share = min(1.0, max(0.0, (row[step] - FLOOR) / (1 - FLOOR)))
                fill = to_rgba(colours.compute, 0.1 + 0.5 * share)
                ax.barh(y, 1, 1, left=x - 0.5, fc=fill, ec=colours.page, lw=1)
                ax.text(x, y, f"{row[step]:.2f}", ha="center", va="center_baseline")
        ax.set_xticks(range(len(steps)), [step.upper() for step in steps])
        ax.set_yticks(range(len(found)), list(found))
        ax.xaxis.tick_top()
        ax.set_xlim(-0.5, len(steps) - 0.5)
        ax.set_ylim(len(found) - 0.5, -0.5)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("speed against cuBLAS in the same run, in bursts")


def step(name: str, path: str, version: str) -> None:
    """Draw one step and cuBLAS for each size and regime, below the published peak."""
    record = load(ROOT / path)
    timed = problems(record, version)
    places = np.arange(len(timed))
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.1 + 0.5 * len(timed)), layout="constrained")
        for shown, offset, fill in (
            (version, -0.2, colours.compute),
            (BASELINE, 0.2, colours.load),
        ):
            # A machine without a cuBLAS measures our step alone.
            known = [i for i, p in enumerate(timed) if p in problems(record, shown)]
            speeds = [record.summary(shown, *timed[i]).tflops for i in known]
            bars = ax.barh(places[known] + offset, speeds, 0.36, fc=fill, label=called(shown))
            ax.bar_label(bars, fmt="{:.0f}", padding=3)
        ax.axvline(peak(), color=colours.other, ls="--", lw=1, label=f"published peak, {peak():g}")
        ax.set_yticks(places, [f"{size(m, n, k)}\n{regime}" for m, n, k, regime in timed])
        ax.invert_yaxis()
        ax.set_xlabel("TFLOPS")
        figure.legend(loc="outside upper center", ncols=3)


v0, v1, v2, v3, v4, v5, v6, v7 = (partial(step, version=f"v{i}") for i in range(8))
