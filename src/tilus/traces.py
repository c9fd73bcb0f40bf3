# SPDX-License-Identifier: Apache-2.0
"""Records of what blocks did on a GPU: written by ``scripts/trace``, drawn beside the simulator's.

An event is five numbers: which of ``said`` it is, start, duration, phase and tile (-2: none).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilus import records
from tilus.errors import ArgumentError, Location
from tilus.ir import Event, Region

SCHEMA_VERSION = 1
NONE = -2  # a number of its own: -1 is the phase before the first
Values = Mapping[str, Any]


def rows(events: Iterable[Event]) -> dict[str, list[Any]]:
    """Return events of one block in the record's form; times become whole cycles."""
    said: dict[str, int] = {}
    found = []
    for e in sorted(events, key=lambda e: (e.start, e.end)):
        text = json.dumps(_said(e), sort_keys=True)
        number = said.setdefault(text, len(said))
        phase, tile = (NONE if x is None else x for x in (e.phase, e.tile))
        found.append([number, round(e.start), round(e.end - e.start), phase, tile])
    return {"said": [json.loads(text) for text in said], "events": found}


def _said(e: Event) -> dict[str, Any]:
    """Return what is the same in many events; what is absent is left out."""
    fields = {
        "lane": e.lane,
        "kind": e.kind,
        "what": e.what,
        "line": e.location.line,
        "barrier": e.barrier,
        "stage": e.stage,
        "amount": e.amount or None,
        "issuer": e.issuer,
        "reads": [[r.buffer, r.begin, r.end] for r in e.reads] or None,
        "writes": [[r.buffer, r.begin, r.end] for r in e.writes] or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Trace:
    """What one block of a version did in one launch; ``data`` is its part of the record."""

    data: Values
    file: str

    @property
    def block(self) -> tuple[int, int, int]:
        """Which block."""
        x, y, z = self.data["block"]
        return x, y, z

    @property
    def size(self) -> tuple[int, int, int]:
        """M, N and K of the product."""
        return self.data["m"], self.data["n"], self.data["k"]

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, in cycles since the block began."""
        return tuple(self._event(*row) for row in self.data["events"])

    def _event(self, number: int, start: int, length: int, phase: int, tile: int) -> Event:
        said = dict(self.data["said"][number])
        parts: dict[str, Any] = {
            name: tuple(Region(*region) for region in said.pop(name, ()))
            for name in ("reads", "writes")
        }
        place = Location(self.file, said.pop("line"))
        return Event(
            start=float(start),
            end=float(start + length),
            location=place,
            block=self.block,
            phase=None if phase == NONE else phase,
            tile=None if tile == NONE else tile,
            issued=float(start) if "issuer" in said else None,
            **said,
            **parts,
        )


@dataclass(frozen=True)
class Traces:
    """A record of traces; ``data`` is its JSON."""

    data: Values

    def of(self, version: str, size: Sequence[int] | None = None) -> Trace:
        """Return the trace of a version, at one size where there are several.

        Raises :class:`ArgumentError` where there is none.
        """
        for data in self.data["traces"]:
            made = Trace(data, self.data["sources"][data["version"]]["file"])
            if data["version"] == version and size in (None, made.size):
                return made
        found = f"no trace of {version}" + (f" at {size}" if size else "")
        raise ArgumentError("record", "one that holds the trace", found, "Run scripts/trace.")

    def staleness(self, root: Path, version: str) -> tuple[str, ...]:
        """Say what has changed of a version in the tree at ``root`` since; nothing: ()."""
        return tuple(records.changes(self.data["sources"][version], root))


def load(path: Path) -> Traces:
    """Read a record; raise :class:`ArgumentError` where it is none of this form."""
    data = json.loads(Path(path).read_text())
    if data.get("schema") != SCHEMA_VERSION:
        rule = f"of schema {SCHEMA_VERSION}"
        raise ArgumentError("record", rule, data.get("schema"), "Run scripts/trace.")
    return Traces(data)


def write(data: Values, path: Path) -> None:
    """Write a record; an event stays on one line."""
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
    compact = re.sub(r"\[\s+([-\d.eE+,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(compact + "\n")
