# SPDX-License-Identifier: Apache-2.0
"""``sweep``: what one block takes on the simulator, for several values of one parameter.

::

    .. sweep:: v2 max_num_stages 1 2 3 4

The other parameters are those of the figures. Cycles are the simulator's, and no speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import simulated
import timelines
from ladder import found
from ladder.numbers import table
from ladder.traced import depend
from tilus import prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

K = 1024


class Sweep(SphinxDirective):
    """A row for each value: the cycles of a block, and how much of them the tensor cores work."""

    required_arguments = 3
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        version, parameter, values = self.arguments
        depend(self.env)
        try:
            shown = rows(version, parameter, list(map(int, values.split())))
        except (TypeError, ValueError) as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        header = (parameter, "Cycles of a block", "Tensor cores busy")
        note = nodes.paragraph("", f"One block, K = {K}.", classes=["table-note"])
        label = found.badge("simulated", "simulated")
        return [nodes.container("", table(header, shown), note, label, classes=["record-table"])]


def rows(version: str, parameter: str, values: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return the cells of the table."""
    return [_row(version, parameter, value) for value in values]


def _row(version: str, parameter: str, value: int) -> tuple[str, str, str]:
    script = simulated.step(version, **{parameter: value})
    if K % script.block_k:
        raise ValueError(f"block_k must divide {K}, got {script.block_k}")
    result = prediction.one_block(script, K // script.block_k)
    return f"{value}", f"{result.cycles:.0f}", f"{timelines.busy(result):.0%}"


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("sweep", Sweep)
