# SPDX-License-Identifier: Apache-2.0
"""What a launch costs in joules, and how the clock follows the bytes.

On a page: ``.. chart:: energy.launches`` with ``:loads: sustained ceiling``, ``.. chart::
energy.clock`` with ``:loads: sustained`` and ``.. chart:: energy.zeros`` with ``:loads: zeros``.
Bytes are those that a profiler counted with the same schedules; see ``profile.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from measured import RIVALS, called
from style import WIDTH, theme
from tilus import joules
from tilus.joules import Load, Loads

ROOT = Path(__file__).parent.parent
PROFILE = "plots/data/profile.json"


def alone(loads: Loads) -> float:
    """Return the joules that the products of a launch cost by themselves: the cheaper ceiling's."""
    flops = loads.series("sustained")[0].data["flops"]
    return min(c.joules * flops / c.data["flops"] for c in loads.series("ceiling"))


def launches(name: str, path: str) -> None:
    """Draw the energy of a launch of each contender, and what of it the products alone take."""
    loads = joules.load(ROOT / path)
    found = sorted(loads.series("sustained"), key=lambda load: load.joules)
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.1 + 0.42 * len(found)), layout="constrained")
        for y, load in enumerate(found):
            fill = colours.load if load.name in RIVALS else colours.compute
            ax.barh(y, load.joules, 0.7, fc=fill)
            text = f"{load.joules:.3f} J, {load.latency_ms:.2f} ms"
            ax.text(0.02, y, text, va="center_baseline", color=colours.on_bar)
        least = alone(loads)
        ax.axvline(
            least, color=colours.other, ls="--", lw=1, label=f"products alone: {least:.3f} J"
        )
        ax.set_yticks(range(len(found)), [called(load.name) for load in found])
        ax.invert_yaxis()
        ax.set_xlabel("joules a launch at 8192³, sustained")
        figure.legend(loc="outside upper center")


def bytes_of(loads: Loads, profile: dict[str, Any]) -> dict[str, tuple[Load, float]]:
    """Return each contender that was profiled too, with its gigabytes through the L2 cache.

    A kernel of ours counts only where both had the same schedule.
    """
    counted, schedules = profile["launches"], loads.data["schedules"]
    return {
        load.name: (load, counted[load.name]["l2_bytes"] / 1e9)
        for load in loads.series("sustained")
        if load.name in counted and counted[load.name]["schedule"] == schedules.get(load.name)
    }


def clock(name: str, path: str) -> None:
    """Draw each contender's clock over its bytes."""
    loads, profile = joules.load(ROOT / path), json.loads((ROOT / PROFILE).read_text())
    with theme(name) as colours:
        _, ax = plt.subplots(figsize=(WIDTH, 2.9), layout="constrained")
        for who, (load, gigabytes) in bytes_of(loads, profile).items():
            fill = colours.load if who in RIVALS else colours.compute
            mhz = load.sm_mhz or load.nvml_mhz
            ax.plot(gigabytes, mhz, "o", color=fill, ms=7)
            below = (0, -14) if who in RIVALS else (0, 7)  # points of one height lie close together
            ax.annotate(
                called(who), (gigabytes, mhz), below, textcoords="offset points", ha="center"
            )
        ax.margins(0.16, 0.2)
        ax.set_xlabel("gigabytes through the L2 cache, a launch")
        ax.set_ylabel("clock under load, MHz")


def zeros(name: str, path: str) -> None:
    """Draw clock and energy of the same kernels on random numbers and on zeros."""
    found = joules.load(ROOT / path).series("zeros")
    kernels = list(dict.fromkeys(load.name.partition("-")[0] for load in found))
    places = np.arange(len(kernels))
    with theme(name) as colours:
        figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.0), sharey=True, layout="constrained")
        for inputs, offset, fill in (
            ("random", -0.2, colours.compute),
            ("zeros", 0.2, colours.muted),
        ):
            of = {load.name.partition("-")[0]: load for load in found if load.name.endswith(inputs)}
            loads = [of[kernel] for kernel in kernels]
            for ax, values, form in (
                (axes[0], [load.sm_mhz or load.nvml_mhz for load in loads], "{:.0f}"),
                (axes[1], [load.joules for load in loads], "{:.2f}"),
            ):
                bars = ax.barh(places + offset, values, 0.38, fc=fill, label=f"on {inputs}")
                ax.bar_label(bars, fmt=form, label_type="center", color=colours.on_bar)
        axes[0].set_yticks(places, [called(kernel) for kernel in kernels])
        axes[0].invert_yaxis()
        axes[0].set_xlabel("clock, MHz")
        axes[1].set_xlabel("joules a launch")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
