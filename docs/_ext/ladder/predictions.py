# SPDX-License-Identifier: Apache-2.0
"""``prediction-table``: what the cost model predicts for a schedule, beside what was measured.

::

    .. prediction-table:: v3 m=8192

The first word is the version; the others pick sizes and regimes of its record, as those of
:record: do. What is predicted is computed by this build from the kernel and its recorded schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.gallery import sources
from ladder.numbers import FORMATS, fitting, having, table
from measured import size
from tilus import prediction

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from measured import Problem
    from tilus.prediction import Compared

HEADER = ("Size", "Regime", "At", "Predicted", "Measured", "Predicted / measured", "What decides")


class PredictionTable(SphinxDirective):
    """A row for each problem: the prediction, the measurement, and what limits the prediction."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        version, *picks = self.arguments[0].split()
        records = list(found.every(self.env, version))
        if not records:
            return [found.not_yet(version)]
        for path in sources(self.config, found.root(self.env)):
            self.env.note_dependency(str(path))
        record = having(records, picks)[0]
        problems = fitting(record, picks)
        if not problems:
            wanted = " ".join(picks)
            raise ExtensionError(f"{self.get_location()}: {record.path}: no problem fits {wanted}")
        compared = {problem: compare(record, problem) for problem in problems}
        shown = table(HEADER, [row(*item) for item in compared.items()])
        text = sentence(next(iter(compared.values())))
        caption = nodes.paragraph("", text, classes=["table-note"])
        return [nodes.container("", shown, caption, record.badge(), classes=["record-table"])]


def compare(record: found.Found, problem: Problem) -> Compared:
    """Predict a problem of a record with the kernel of the tree."""
    return prediction.compare(record.record, record.root, record.version, *problem)


def row(problem: Problem, compared: Compared) -> list[str]:
    """Return the cells of one problem."""
    *shape, regime = problem
    clock = f"{compared.mhz / 1000:.2f} GHz" + ("" if compared.recorded else ", the peak’s clock")
    times = (
        FORMATS["latency_ms"].format(ms) for ms in (compared.predicted_ms, compared.measured_ms)
    )
    limit = compared.prediction.limit
    return [size(*shape), regime, clock, *times, f"{compared.ratio:.2f}", limit]


def sentence(compared: Compared) -> str:
    """Return in words what was predicted."""
    p = compared.prediction
    together = "one block" if p.resident == 1 else f"{p.resident} blocks"
    room = f"with room for {together} on each of {p.sms} multiprocessors"
    if p.outputs > 1:
        return (
            f"The first row predicts {p.blocks} blocks, {room}. Each computes up to {p.outputs} "
            f"tiles of {p.tiles} steps of K, and takes {p.turn:.0f} cycles from one to the next."
        )
    return (
        f"The first row predicts {p.blocks} blocks of {p.tiles} steps of K, {room}: "
        f"{p.waves:.1f} waves."
    )


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("prediction-table", PredictionTable)
