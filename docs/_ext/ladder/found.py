# SPDX-License-Identifier: Apache-2.0
"""Find the record a page asks for, and say where its numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

import beside
from measured import load, problems
from tilus import joules, records, traces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sphinx.environment import BuildEnvironment

    from measured import Problem

COMMITTED = "plots/data"
LADDER, TRACE, LOADS = "ladder", "trace", "why"
"""The record of all versions, that of what their blocks did when, and that of joules."""


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

    def facts(self, problem: Problem) -> dict[str, Any]:
        """Return what is known of the machine code of a problem's schedule; nothing: {}."""
        schedule = self.summary(problem).schedule
        entries = self.record.sources["kernels"].get(self.version, {}).get("generated", ())
        known = (e["facts"] for e in entries if e["schedule"] == schedule and "facts" in e)
        facts = next(known, {})
        return {**facts.get("tuning", {}), **facts}

    def badge(self) -> nodes.paragraph:
        """Return the badge: measured now, or recorded when and where, and if it is out of date."""
        environment = self.record.environment
        if Path(self.path).parent != Path(COMMITTED):
            return badge("now", f"measured now, {environment['gpu']}")
        labels = recorded(environment)
        if stale(self.root, self.path, self.version):
            labels += changed()
        return labels


@dataclass(frozen=True)
class Traced:
    """The record of traces, at ``path`` below ``root``, that has one of ``version``."""

    version: str
    root: Path
    path: str
    traces: traces.Traces

    def badge(self) -> nodes.paragraph:
        """Return the badge: recorded when and where, and if it is out of date."""
        return traced([self])


def traced(found: Sequence[Traced]) -> nodes.paragraph:
    """Return the badge of a record's traces of some versions; out of date if one of them is."""
    labels = recorded(found[0].traces.data["environment"])
    if any(one.traces.staleness(one.root, one.version) for one in found):
        labels += changed()
    return labels


def find_trace(env: BuildEnvironment, version: str) -> Traced | None:
    """Return the first ``trace.json`` in the ``record_folders`` of conf.py that has a version."""
    top = root(env)
    for path in (f"{folder}/{TRACE}.json" for folder in env.config.record_folders):
        env.note_dependency(str(top / path))
        if (top / path).exists():
            made = Traced(version, top, path, beside.load(str(top / path)))
            if any(entry["version"] == version for entry in made.traces.data["traces"]):
                return made
    return None


@dataclass(frozen=True)
class Loaded:
    """The record of what launches cost under sustained load, at ``path`` below ``root``."""

    root: Path
    path: str
    loads: joules.Loads

    def has(self, series: str) -> bool:
        """Return whether a series was measured."""
        return any(load.data["series"] == series for load in self.loads.all)

    def errors(self) -> Any:
        """Return the errors of V7 and of sums in float16 against float64."""
        return self.loads.series("half-sums")[0].data["errors"]

    def badge(self) -> nodes.paragraph:
        """Return the badge: recorded when and where, and if it is out of date."""
        environment = self.loads.data["environment"]
        labels = recorded(environment)
        if loads_changed(self.root, self.path):
            labels += changed()
        if environment["power_limit_w"]:
            labels += nodes.Text(f" Power limit {environment['power_limit_w']:.0f} W.")
        return labels


def find_loads(env: BuildEnvironment) -> Loaded | None:
    """Return the first ``why.json`` in the ``record_folders`` of conf.py."""
    top = root(env)
    for path in (f"{folder}/{LOADS}.json" for folder in env.config.record_folders):
        env.note_dependency(str(top / path))
        if (top / path).exists():
            return Loaded(top, path, joules.load(top / path))
    return None


@cache
def loads_changed(root: Path, path: str) -> bool:
    """Return whether any source of a record of joules is another one now."""
    return bool(joules.load(root / path).staleness(root))


@cache
def stale(root: Path, path: str, version: str) -> bool:
    """Return whether the record measured another kernel of ``version`` than the one in the tree."""
    record = load(root / path)
    known = version in record.sources["kernels"]
    return bool(records.staleness(record, root, version if known else None))


def root(env: BuildEnvironment) -> Path:
    """Return the repository's root, where docs/ lies."""
    return Path(env.srcdir).parent


def find(env: BuildEnvironment, version: str) -> Found | None:
    """Return the first of :func:`every` record of a version, None where there is none."""
    return next(every(env, version), None)


def every(env: BuildEnvironment, version: str) -> Iterator[Found]:
    """Yield the records of a version in the ``record_folders`` of conf.py.

    That is ``<version>.json``, or the part of ``ladder.json`` about it. The page being read is read
    again when the record appears or changes.
    """
    top = root(env)
    for path in (f"{f}/{n}.json" for f in env.config.record_folders for n in (version, LADDER)):
        env.note_dependency(str(top / path))
        if (top / path).exists():
            record = load(top / path)
            if Path(path).stem == version or record.select(version=version):
                yield Found(version, top, path, record)


def badge(kind: str, text: str) -> nodes.paragraph:
    """Return a line saying where a figure or a table comes from; ``kind`` gives its colour."""
    return nodes.paragraph("", "", _label(kind, text), classes=["badge-line"])


def recorded(environment: records.Values) -> nodes.paragraph:
    """Return the badge of what was recorded on a day on a machine."""
    return badge("recorded", f"recorded on {environment['date'][:10]}, {environment['gpu']}")


def changed(what: str = "the kernel") -> list[nodes.Node]:
    """Return what a badge also says where what was measured is another one now."""
    return [nodes.Text(" "), _label("changed", f"{what} changed since")]


def _label(kind: str, text: str) -> nodes.inline:
    return nodes.inline(text, text, classes=["badge", f"badge-{kind}"])


def not_yet(version: str) -> nodes.container:
    """Return what stands where a record's figure or table will be."""
    text = f"Not measured yet: there is no record {COMMITTED}/{version}.json."
    return nodes.container("", nodes.paragraph("", text), classes=["not-yet-box"])
