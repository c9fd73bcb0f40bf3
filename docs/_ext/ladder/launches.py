# SPDX-License-Identifier: Apache-2.0
"""``launch-table``: what a call from Python costs, ours beside those of other libraries.

The rows are those of ``launch.json``, which ``scripts/gpu launch`` writes on a GPU.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.numbers import table
from measured import size
from tilus import records
from tilus.fingerprint import program_hash

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sphinx.application import Sphinx

RECORD = "launch"
HEADER = ("Call", "Time on the host", "Range")
CALLS = {
    "tilus": "a kernel of this tutorial, V5",
    "tilus_matmul": "tilus.kernels.matmul, with an array for the result",
    "torch_matmul": "torch.matmul, with an array for the result",
    "triton": "a kernel in Triton",
    "tilus_launch": "V5's launch alone, with everything ready: the driver, mostly",
    "tilus_graph": "V5's call replayed from a CUDA graph",
}
"""What the record has times of, in the order of the rows."""
AIM_US = 6


class LaunchTable(SphinxDirective):
    """A row for each kind of call."""

    def run(self) -> list[nodes.Node]:
        root = found.root(self.env)
        path = root / found.COMMITTED / f"{RECORD}.json"
        self.env.note_dependency(str(path))
        if not path.exists():
            return [found.not_yet(RECORD)]
        record = json.loads(path.read_text(encoding="utf-8"))
        shown = table(HEADER, rows(record["us"]))
        said = nodes.paragraph("", judged(record["us"]), classes=["table-note"])
        return [nodes.container("", shown, said, badge(record, root), classes=["record-table"])]


def rows(times: Mapping[str, list[float]]) -> list[tuple[str, str, str]]:
    """Return the cells of the table; microseconds, the median over rounds."""
    return [
        (what, f"{median(us):.1f} µs", f"{min(us):.1f} – {max(us):.1f}")
        for name, what in CALLS.items()
        if (us := times.get(name))
    ]


def judged(times: Mapping[str, list[float]]) -> str:
    """Return whether a call is as short as it is meant to be, and how much is the driver's."""
    call, launch = (median(times[name]) for name in ("tilus", "tilus_launch"))
    met = "met" if call <= AIM_US else "not met"
    return (
        f"The aim for a call of ours is {AIM_US} µs: {met}, with {call:.1f} µs. Of these "
        f"the launch itself takes {launch:.1f} µs on this host."
    )


def badge(record: Mapping[str, Any], root: Path) -> nodes.paragraph:
    """Return where the times come from, and if what they measure is another program now."""
    labels = found.recorded(record["environment"])
    if changed(record["sources"], root):
        labels += found.changed("the way of a call")
    libraries = ", ".join(f"{name} {version}" for name, version in record["libraries"].items())
    product = f"A product at {size(*record['size'])}, {record['processor']}, {libraries}."
    labels += nodes.Text(
        f" {product} Each round: {record['method']['us']}; {record['method']['host']}."
    )
    return labels


def changed(sources: Mapping[str, Any], root: Path) -> bool:
    """Say whether the kernel or anything that a call goes through is another program now."""
    path = sources["path"].items()
    return any(records.changes(sources["kernel"], root)) or any(
        not (root / file).exists() or program_hash((root / file).read_text()) != sha
        for file, sha in path
    )


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("launch-table", LaunchTable)
