# SPDX-License-Identifier: Apache-2.0
"""The measured table: which schedule was fastest for which size, on which machine.

``schedules.json`` is written by ``scripts/suite`` on a GPU and never by hand. A size that it holds
gets the schedule that was fastest there; any other gets, of all of these schedules that fit, the
one with the least predicted time, and of equals the one measured at the nearest size. Where another
schedule, of a kind that was measured too, is predicted to be clearly faster, it gets that.
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
KERNELS = ("product.py", "pairs.py")
"""The modules whose change makes the table old: it is still used, as any order of tiles is right,
and says so. One that a table does not name is younger, and nothing in it was measured."""
CLEARLY = 1.1
"""How many times faster a schedule beside those of the table must be predicted to be. Times are
within a few percent of the predicted ones; those of a split K were up to 8 % above."""


@dataclass(frozen=True)
class Table:
    """Sizes and their schedules, where they were measured, and all ``kinds`` that were."""

    rows: Mapping[Size, Schedule]
    machine: Mapping[str, Any]
    sources: Mapping[str, str]
    kinds: frozenset[Schedule] = frozenset()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Table:
        """Return the table that a file holds."""
        rows = {
            (row["m"], row["n"], row["k"]): Schedule.of(row["schedule"]) for row in data["rows"]
        }
        tried = (Schedule.of(t["schedule"]) for row in data["rows"] for t in row["tried"])
        kinds = frozenset(s.kind for s in (*rows.values(), *tried))
        return cls(rows, data["machine"], data["sources"], kinds)

    def choose(self, size: Size, order: Order = USUAL) -> Schedule | None:
        """Return the schedule for a size with operands in this order; None where none fits."""
        known = self.rows.get(size)
        if known and known.fits(size, order):
            return known
        thought_of = ranked(size, order)
        first = next((s for s in thought_of if s.kind in self.kinds), None)
        suited = ((s.suited(size), at) for at, s in self.rows.items())
        fit = [(s, at) for s, at in suited if s.fits(size, order)]
        if fit:
            best, _ = min(fit, key=lambda x: (predicted_us(x[0], size), distance(x[1], size)))
            clearly = first and CLEARLY * predicted_us(first, size) < predicted_us(best, size)
            return first if clearly else best
        return first or next(iter(thought_of), None)

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
