# SPDX-License-Identifier: Apache-2.0
"""Records of time, clock and energy under sustained load: written by ``scripts/why``.

Each series of a record is for itself. Numbers of different series are not compared as results: on
zeros the same instructions cost less, and sums in float16 are another computation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tilus import records
from tilus.errors import ArgumentError

SCHEMA_VERSION = 1
SERIES = ("sustained", "zeros", "ceiling", "half-sums")
LISTS = ("latency_ms", "launches", "power_w", "sm_mhz", "nvml_mhz")
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Load:
    """One contender of one series: medians over its windows.

    ``joules`` is what one launch costs: the window's mean power times the time of a launch.
    ``sm_mhz`` was counted by the multiprocessors, None where that failed; NVML said ``nvml_mhz``.
    """

    name: str
    latency_ms: float
    tflops: float
    sm_mhz: float | None
    nvml_mhz: float
    power_w: float
    joules: float
    data: Values

    @property
    def cycles(self) -> float | None:
        """Millions of cycles of a launch."""
        return self.sm_mhz and self.sm_mhz * self.latency_ms / 1000


@dataclass(frozen=True)
class Loads:
    """A record of loads; ``data`` is its JSON."""

    data: Values

    @property
    def all(self) -> tuple[Load, ...]:
        """Every contender of every series, in the order of measuring."""
        return tuple(map(_load, self.data["measurements"]))

    def series(self, name: str) -> tuple[Load, ...]:
        """Return the contenders of a series, in the order in which they took turns.

        Raises :class:`ArgumentError` where it was not measured.
        """
        found = tuple(load for load in self.all if load.data["series"] == name)
        if not found:
            rule = f"one of {', '.join(SERIES)} that was measured"
            raise ArgumentError("series", rule, repr(name), "Run scripts/why.")
        return found

    def of(self, series: str, name: str) -> Load:
        """Return one contender of a series; raise :class:`ArgumentError` where there is none."""
        for load in self.series(series):
            if load.name == name:
                return load
        names = ", ".join(load.name for load in self.series(series))
        raise ArgumentError("name", f"one of {names}", repr(name), "Run scripts/why.")

    def staleness(self, root: Path, *names: str) -> tuple[str, ...]:
        """Say what has changed of ``names``, or of all sources, in the tree at ``root`` since."""
        sources = self.data["sources"]
        return tuple(
            change for name in names or sources for change in records.changes(sources[name], root)
        )


def _load(row: Values) -> Load:
    latency, watts = row["latency_ms"], row["power_w"]
    return Load(
        name=row["name"],
        latency_ms=median(latency),
        tflops=row["flops"] / median(latency) / 1e9,
        sm_mhz=None if None in row["sm_mhz"] else median(row["sm_mhz"]),
        nvml_mhz=median(row["nvml_mhz"]),
        power_w=median(watts),
        joules=median(w * ms / 1000 for w, ms in zip(watts, latency, strict=True)),
        data=row,
    )


def load(path: Path) -> Loads:
    """Read a record; raise :class:`ArgumentError` where it is none of this form."""
    data = json.loads(Path(path).read_text())
    if data.get("schema") != SCHEMA_VERSION:
        rule = f"of schema {SCHEMA_VERSION}"
        raise ArgumentError("record", rule, data.get("schema"), "Run scripts/why.")
    for row in data["measurements"]:
        counts = {len(row[name]) for name in LISTS}
        if row["series"] not in SERIES or len(counts) != 1 or counts == {0}:
            rule = f"of a series of {', '.join(SERIES)}, with time, clock and power of each window"
            raise ArgumentError("measurement", rule, row, "Run scripts/why again.")
    return Loads(data)
