# SPDX-License-Identifier: Apache-2.0
"""``agreement-table``: on which calls the simulator was held against a GPU, byte by byte.

The rows are those of ``agreement.json``, which ``scripts/agree`` writes on a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.numbers import schedule, table
from tilus import loader, records
from tilus.cli import kernels
from tilus.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sphinx.application import Sphinx

RECORD = "agreement"
HEADER = ("Kernel", "Schedule", "Calls", "Bytes compared")


class AgreementTable(SphinxDirective):
    """A row for each kernel, with all its calls."""

    def run(self) -> list[nodes.Node]:
        path = found.root(self.env) / found.COMMITTED / f"{RECORD}.json"
        self.env.note_dependency(str(path))
        if not path.exists():
            return [found.not_yet(RECORD)]
        record = json.loads(path.read_text(encoding="utf-8"))
        badge = found.recorded(record["environment"])
        if any(changed(found.root(self.env), case) for case in record["cases"]):
            badge += found.changed()
        shown = table(HEADER, rows(record["cases"]))
        return [nodes.container("", shown, badge, classes=["record-table"])]


def changed(root: Path, case: Mapping[str, Any]) -> bool:
    """Say whether the GPU ran other code than the compiler makes of a case now."""
    cls = loader.find(root / case["file"], Script)
    constants = kernels.constants(cls(**case["schedule"]), case["numbers"])
    return bool(records.generated(cls, case["schedule"], constants)["sha256"] != case["cuda"])


def rows(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return the cells of the table."""
    kernels: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        kernels.setdefault(case["file"], []).append(case)
    return [
        (
            Path(file).stem,
            ", ".join(schedule(mine[0]["schedule"])) or "as it is",
            "; ".join("×".join(map(str, case["numbers"].values())) for case in mine),
            f"{sum(case['bytes'] for case in mine):,}",
        )
        for file, mine in kernels.items()
    ]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("agreement-table", AgreementTable)
