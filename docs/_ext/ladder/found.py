# SPDX-License-Identifier: Apache-2.0
"""Find the record a page asks for, and say where its numbers come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.environment import BuildEnvironment


@dataclass(frozen=True)
class Found:
    """A record under the name a page uses, which is also the version it measured."""

    name: str
    path: Path
    record: dict[str, Any]
    measured_now: bool

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each problem and regime: medians over rounds, then over processes."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for m in self.record["measurements"]:
            if m["version"] == self.name and m["verified"]:
                groups.setdefault((m["m"], m["n"], m["k"], m["regime"]), []).append(m)
        return [_row(group) for group in groups.values()]

    def badge(self) -> nodes.paragraph:
        """Return the badge: measured now, or recorded when and where, and if it is out of date."""
        environment = self.record["environment"]
        if self.measured_now:
            return badge("now", f"measured now, {environment['gpu']}")
        return badge("recorded", f"recorded on {environment['date'][:10]}, {environment['gpu']}")


def _row(group: list[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    m, n, k = first["m"], first["n"], first["k"]
    ms = median(median(x["latency_ms"]) for x in group)
    return first | {
        "size": f"{m}³" if m == n == k else f"{m}×{n}×{k}",
        "latency_ms": ms,
        "tflops": 2 * m * n * k / ms / 1e9,
        "vs_cublas": median(x["vs_cublas"] for x in group),
    }


def find(env: BuildEnvironment, name: str) -> Found | None:
    """Return the first record called ``name`` in the ``record_folders`` of conf.py.

    The page being read is read again when the record appears or changes.
    """
    root = Path(env.app.confdir)
    for folder in env.config.record_folders:
        path = root / folder / f"{name}.json"
        env.note_dependency(str(path))
        if path.exists():
            return Found(name, path, json.loads(path.read_text()), folder != "plots/data")
    return None


def badge(kind: str, text: str) -> nodes.paragraph:
    """Return a line that says where a figure or a table comes from; ``kind`` gives its colour."""
    label = nodes.inline(text, text, classes=["badge", f"badge-{kind}"])
    return nodes.paragraph("", "", label, classes=["badge-line"])


def not_yet(name: str) -> nodes.container:
    """Return what stands where a record's figure or table will be."""
    text = f"Not measured yet: there is no record {name}.json."
    return nodes.container("", nodes.paragraph("", text), classes=["not-yet-box"])
