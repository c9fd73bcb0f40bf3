# SPDX-License-Identifier: Apache-2.0
"""Find the record a page asks for, and say where its numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

from measured import problems
from tilus import records

if TYPE_CHECKING:
    from sphinx.environment import BuildEnvironment

    from measured import Problem

COMMITTED = "plots/data"
LADDER = "ladder"
"""The record of all versions."""


@dataclass(frozen=True)
class Found:
    """The record of a version, at ``path`` below ``root``."""

    version: str
    root: Path
    path: str
    record: records.Record

    def problems(self) -> list[Problem]:
        """Return the timed problems of the version."""
        return problems(self.record, self.version)

    def summary(self, problem: Problem) -> records.Summary:
        """Return what the record says about one problem."""
        return self.record.summary(self.version, *problem)

    def badge(self) -> nodes.paragraph:
        """Return the badge: measured now, or recorded when and where, and if it is out of date."""
        environment = self.record.environment
        if Path(self.path).parent != Path(COMMITTED):
            return badge("now", f"measured now, {environment['gpu']}")
        labels = badge("recorded", f"recorded on {environment['date'][:10]}, {environment['gpu']}")
        if stale(self.root, self.path, self.version):
            labels += [nodes.Text(" "), _label("changed", "the kernel changed since")]
        return labels


@cache
def stale(root: Path, path: str, version: str) -> bool:
    """Return whether the record measured another kernel of ``version`` than the one in the tree."""
    record = records.load(root / path)
    known = version in record.sources["kernels"]
    return bool(records.staleness(record, root, version if known else None))


def root(env: BuildEnvironment) -> Path:
    """Return the repository's root, where docs/ lies."""
    return Path(env.srcdir).parent


def find(env: BuildEnvironment, version: str) -> Found | None:
    """Return the first record of a version in the ``record_folders`` of conf.py.

    That is ``<version>.json``, or the part of ``ladder.json`` about it. The page being read is read
    again when the record appears or changes.
    """
    top = root(env)
    for path in (f"{f}/{n}.json" for f in env.config.record_folders for n in (version, LADDER)):
        env.note_dependency(str(top / path))
        if (top / path).exists():
            record = records.load(top / path)
            if Path(path).stem == version or record.select(version=version):
                return Found(version, top, path, record)
    return None


def badge(kind: str, text: str) -> nodes.paragraph:
    """Return a line saying where a figure or a table comes from; ``kind`` gives its colour."""
    return nodes.paragraph("", "", _label(kind, text), classes=["badge-line"])


def _label(kind: str, text: str) -> nodes.inline:
    return nodes.inline(text, text, classes=["badge", f"badge-{kind}"])


def not_yet(version: str) -> nodes.container:
    """Return what stands where a record's figure or table will be."""
    text = f"Not measured yet: there is no record {COMMITTED}/{version}.json."
    return nodes.container("", nodes.paragraph("", text), classes=["not-yet-box"])
