# SPDX-License-Identifier: Apache-2.0
"""What Nsight Compute counted in one launch of each version: the evidence for a bottleneck.

::

    .. profile-table:: v0 v1             a column for each version, a row for each quantity
       :names:                           their heads are names alone, without schedules
    :profile:`v1 tensor_pipe_pct`        one of the numbers

The numbers are those of ``profile.json`` beside the records, which ``scripts/gpu profile`` writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

import simulated
from ladder import found, numbers
from measured import called, size
from tilus import records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PROFILE = "profile"
QUANTITIES = {
    "tensor_pipe_pct": ("Tensor cores active", 1, "{:.1f} %"),
    "dram_read_bytes": ("Read from device memory", 1e9, "{:.2f} GB"),
    "l2_bytes": ("Through the L2 cache", 1e9, "{:.1f} GB"),
    "l2_hit_pct": ("Found in the L2 cache", 1, "{:.1f} %"),
    "sm_hz": ("Clock", 1e9, "{:.2f} GHz"),
    "threads": ("Threads a block", 1, "{:.0f}"),
    "registers": ("Registers a thread", 1, "{:.0f}"),
    "shared_bytes": ("Shared memory a block", 1024, "{:.0f} KB"),
    "blocks_per_sm": ("Blocks an SM holds", 1, "{:.0f}"),
}
"""Quantity -> its name, the unit in the profile's units, and how it is written."""


@dataclass(frozen=True)
class Profile:
    """One launch of each version at one size, as a profiler saw it."""

    data: Mapping[str, Any]

    @property
    def sources(self) -> Mapping[str, Any]:
        """What the counts depend on, in the form of a record's: no module that takes times."""
        return {**self.data["sources"], "measuring": {}}

    def lacks(self, version: str) -> bool:
        """Return whether a step of the ladder has not been profiled yet."""
        return version in simulated.SCHEDULES and version not in self.data["launches"]

    def cell(self, version: str, quantity: str) -> str:
        """Return a quantity of a version with its unit; a dash where it was not counted."""
        if quantity not in QUANTITIES:
            raise ExtensionError(f"no quantity {quantity!r}; there are {', '.join(QUANTITIES)}")
        launch = self.data["launches"].get(version, {})
        _, unit, form = QUANTITIES[quantity]
        return form.format(launch[quantity] / unit) if quantity in launch else "–"

    def title(self, version: str) -> str:
        """Return the head of a version's column: its name and schedule."""
        launch = self.data["launches"].get(version, {})
        return ", ".join([called(version), *numbers.schedule(launch.get("schedule"))])

    def badge(self, root: Path, versions: list[str]) -> nodes.paragraph:
        """Return where the numbers come from."""
        labels = found.recorded(self.data["environment"])
        known = [v for v in versions if v in self.sources["kernels"]]
        if any(records.staleness(self, root, version) for version in known):  # type: ignore[arg-type]
            labels += found.changed()
        m, n, k = (self.data["problem"][axis] for axis in "mnk")
        labels += nodes.Text(f" One launch at {size(m, n, k)}, {self.data['profiler']}.")
        return labels


def find(env: BuildEnvironment) -> Profile | None:
    """Return the first ``profile.json`` in the ``record_folders`` of conf.py."""
    for folder in env.config.record_folders:
        path = found.root(env) / folder / f"{PROFILE}.json"
        env.note_dependency(str(path))
        if path.exists():
            return Profile(json.loads(path.read_text(encoding="utf-8")))
    return None


class ProfileTable(SphinxDirective):
    """What was counted, with a column for each version."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"names": directives.flag}

    def run(self) -> list[nodes.Node]:
        profile, versions = find(self.env), self.arguments[0].split()
        if profile is None:
            return [found.not_yet(PROFILE)]
        rows = [
            [name, *(profile.cell(version, quantity) for version in versions)]
            for quantity, (name, _, _) in QUANTITIES.items()
        ]
        title = called if "names" in self.options else profile.title
        table = numbers.table(["Quantity", *map(title, versions)], rows)
        badge = profile.badge(found.root(self.env), versions)
        return [nodes.container("", table, badge, classes=["record-table", "profile-table"])]


class Counted(SphinxRole):
    """One number of the profile."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        profile, (version, quantity) = find(self.env), self.text.split()
        if profile is None or profile.lacks(version):
            return [nodes.inline(self.text, numbers.NOT_YET, classes=["not-yet"])], []
        try:
            text = profile.cell(version, quantity)
            if text == "–":
                raise ExtensionError(f"the profile has no {quantity} of {version}")
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        return [nodes.inline(self.text, text, classes=["measured"])], []


def setup(app: Sphinx) -> None:
    """Register the directive and the role."""
    app.add_directive("profile-table", ProfileTable)
    app.add_role("profile", Counted())
