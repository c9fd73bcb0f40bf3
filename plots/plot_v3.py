# SPDX-License-Identifier: Apache-2.0
"""The figures of V3's page: its simulated timeline, its record beside cuBLAS. Measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matmul_v3 import MatmulWGMMAV3
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from measured import problems, size
from style import WIDTH, Theme, theme
from tilus import compiler, records, simulator
from tilus.simulator import Event

ROOT = Path(__file__).parent.parent
STAGES, BLOCK, BLOCK_K, TILES = 4, 128, 64, 10
STAGE_LANES = [f"stage {i}" for i in range(STAGES)]
LANES = ["producer\nwarp 4", *STAGE_LANES, "consumer\nwarps 0-3", "tensor cores"]
ROLES = {"warp 4": LANES[0], "warps 0-3": LANES[-2]}


@cache
def trace() -> tuple[Event, ...]:
    """Run one block of V3 on the simulator and return what happened when."""
    script = MatmulWGMMAV3(num_stages=STAGES, block_m=BLOCK, block_n=BLOCK, block_k=BLOCK_K)
    kernel = compiler.lower(script, {"n_size": BLOCK, "k_size": TILES * BLOCK_K})
    operand = np.zeros(BLOCK * TILES * BLOCK_K, np.float16)
    arrays = {"a_ptr": operand, "b_ptr": operand, "c_ptr": np.zeros(BLOCK * BLOCK, np.float16)}
    return simulator.run(kernel, {"m_size": BLOCK, **arrays}, trace=True).events


def timeline(name: str) -> None:
    """Draw one block: both roles, the life of every stage of the ring, and the tensor cores."""
    with theme(name) as colours:
        _, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
        for lane, event in _placed(trace()):
            _bar(ax, LANES.index(lane), event, colours)
        ax.axhline(0.5, color=colours.faint, lw=0.8)
        ax.axhline(STAGES + 0.5, color=colours.faint, lw=0.8)
        ax.set_yticks(range(len(LANES)), LANES)
        ax.set_ylim(len(LANES) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("simulated cycles since the block began")
        _legend(ax, colours)


def _placed(events: tuple[Event, ...]) -> Iterator[tuple[str, Event]]:
    """Yield each event with its lane; a load and a product also belong to a stage of the ring."""
    products, first_half = 0, dict[int, Event]()
    for event in events:
        if event.lane in ROLES:
            yield ROLES[event.lane], event
        elif event.kind == "copy" and event.stage is not None:
            # A stage is loaded by two copies, of A and of B, that overlap: one bar.
            other = first_half.pop(event.stage, None)
            if other is None:
                first_half[event.stage] = event
            else:
                yield STAGE_LANES[event.stage], replace(event, start=min(event.start, other.start))
        elif event.kind == "compute":
            yield STAGE_LANES[products % STAGES], event
            yield "tensor cores", event
            products += 1


def _bar(ax: Axes, y: int, event: Event, colours: Theme) -> None:
    width = event.end - event.start
    if event.kind == "wait":
        ax.barh(y, width, 0.5, left=event.start, fc="none", ec=colours.muted, hatch="/////", lw=0)
        return
    fill = {"copy": colours.load, "compute": colours.compute}.get(event.kind, colours.other)
    edge = "none" if event.kind in ("copy", "compute") else fill
    ax.barh(y, width, 0.6, left=event.start, fc=fill, ec=edge, lw=0.8)


def _legend(ax: Axes, colours: Theme) -> None:
    kinds = [
        Patch(fc=colours.load, label="load in flight"),
        Patch(fc=colours.compute, label="product"),
        Patch(fc=colours.other, label="instructions"),
        Patch(fc="none", ec=colours.muted, hatch="/////", lw=0, label="waiting"),
    ]
    ax.legend(
        handles=kinds, loc="lower center", bbox_to_anchor=(0.44, 1.0), ncols=4, handlelength=1.2
    )


def performance(name: str, path: str) -> None:
    """Draw the speeds of V3 and of cuBLAS in the record at ``path``, below the published peak."""
    record = records.load(ROOT / path)
    peak = json.loads((ROOT / "plots" / "published.json").read_text())["h200_dense_fp16"]["value"]
    measured = problems(record, "v3")
    places = np.arange(len(measured))
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.1 + 0.5 * len(measured)), layout="constrained")
        bars = (("V3", "v3", -0.2, colours.compute), ("cuBLAS", "cublas", 0.2, colours.muted))
        for label, version, offset, fill in bars:
            # A machine without a cuBLAS measures V3 alone.
            known = [i for i, p in enumerate(measured) if p in problems(record, version)]
            speeds = [record.summary(version, *measured[i]).tflops for i in known]
            drawn = ax.barh(places[known] + offset, speeds, 0.36, fc=fill, label=label)
            ax.bar_label(drawn, fmt="{:.0f}", padding=3)
        ax.axvline(peak, color=colours.other, ls="--", lw=1, label=f"published peak, {peak}")
        ax.set_yticks(places, [f"{size(m, n, k)}\n{regime}" for m, n, k, regime in measured])
        ax.invert_yaxis()
        ax.set_xlabel("TFLOPS")
        figure.legend(loc="outside upper center", ncols=3)
