# SPDX-License-Identifier: Apache-2.0
"""The measured table: which schedule was fastest for which size, on which machine.

``schedules.json`` is written by ``scripts/suite`` on a GPU and never by hand. A size that it holds
gets the schedule that was fastest there; any other gets, of all measured schedules that fit, the
one with the least predicted time, and of equals the one measured at the nearest size.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tilus.fingerprint import program_hash
from tilus.kernels.schedules import USUAL, Order, Schedule, Size, distance, predicted_us, ranked

FILE = "schedules.json"
KERNELS = ("product.py",)
"""The modules whose change makes the table old: it is still used, as any order of tiles is right,
and says so."""


@dataclass(frozen=True)
class Table:
    """Sizes and their schedules, and where they were measured."""

    rows: Mapping[Size, Schedule]
    machine: Mapping[str, Any]
    sources: Mapping[str, str]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Table:
        """Return the table that a file holds."""
        rows = {
            (row["m"], row["n"], row["k"]): Schedule.of(row["schedule"]) for row in data["rows"]
        }
        return cls(rows, data["machine"], data["sources"])

    def choose(self, size: Size, order: Order = USUAL) -> Schedule | None:
        """Return the schedule for a size with operands in this order; None where none fits."""
        known = self.rows.get(size)
        if known and known.fits(size, order):
            return known
        fit = [(s, at) for at, s in self.rows.items() if s.fits(size, order)]
        if fit:
            return min(fit, key=lambda x: (predicted_us(x[0], size), distance(x[1], size)))[0]
        return next(iter(ranked(size, order)), None)

    def changed(self) -> tuple[str, ...]:
        """Return the kernels that are no longer what was measured."""
        return tuple(name for name, sha in self.sources.items() if hashes()[name] != sha)


def hashes() -> dict[str, str]:
    """Return the hashes of the kernels that the table measures, by file."""
    folder = Path(__file__).parent
    return {name: program_hash((folder / name).read_text()) for name in KERNELS}


@functools.cache
def measured() -> Table:
    """Return the package's own table; an empty one where nothing has been measured yet."""
    file = resources.files("tilus.kernels").joinpath(FILE)
    if not file.is_file():
        return Table({}, {}, {})
    return Table.of(json.loads(file.read_text()))
