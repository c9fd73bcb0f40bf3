# SPDX-License-Identifier: Apache-2.0
"""Time, clock and energy under sustained load, from ``why.json``, which ``scripts/why`` writes.

::

    .. load-table:: sustained            a row for each contender of a series
    :load:`sustained v7 joules`          one number of one contender
    :load:`zeros v7-zeros tflops / v7-random`    how many times that of another of the series
    .. error-table::                     the errors of sums in float16, beside those of V7
    :float16:`v7 rms`                    one of these errors
    .. log-table:: V6 and V7             the table of an entry of the performance log
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from ladder import found, numbers
from measured import called
from tilus.errors import ArgumentError
from tilus.simulator import Costs

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from tilus.joules import Load

SPACE = "\N{NO-BREAK SPACE}"
FIELDS = {
    "latency_ms": ("Time", f"{{:.3f}}{SPACE}ms"),
    "tflops": ("Speed", f"{{:.0f}}{SPACE}TFLOPS"),
    "sm_mhz": ("Clock", f"{{:.0f}}{SPACE}MHz"),
    "nvml_mhz": ("Clock, NVML", f"{{:.0f}}{SPACE}MHz"),
    "power_w": ("Power", f"{{:.0f}}{SPACE}W"),
    "joules": ("Energy a launch", f"{{:.3f}}{SPACE}J"),
    "cycles": ("Cycles a launch", f"{{:.2f}}{SPACE}M"),
    "busy_pct": ("Tensor cores busy", f"{{:.1f}}{SPACE}%"),
}
"""Field -> the head of its column, and how it is written."""
HIDDEN = {"nvml_mhz"}
"""Of no table: told in a sentence."""
ERRORS = {
    "largest": "Largest error",
    "rms": "Error, root mean square",
    "rel_err": "Error of the whole, relative to C",
    "worst": "Largest share of the bound for float16 sums",
}
KERNELS = {"v7": "V7, sums in float32", "appendix_fp16": "Sums in float16"}
"""Those whose errors are shown, and the heads of their columns."""
NAMES = {"appendix_fp16": "float16 sums"}


def named(load: str) -> str:
    """Return a contender's name as readers know it."""
    name, dash, inputs = load.partition("-")
    own = name if name[0].isdigit() else called(name)  # a ceiling is called by its tile
    return NAMES.get(name, own) + (f" on {inputs}" if dash else "")


def number(loaded: found.Loaded, load: Load, field: str) -> Any:
    """Return a field; ``busy_pct`` is the share of what the tensor cores can do in the cycles."""
    if field != "busy_pct":
        return getattr(load, field)
    most = loaded.loads.data["environment"]["sms"] * Costs().wgmma_flop * 1e6
    return load.cycles and 100 * load.data["flops"] / (most * load.cycles)


def cell(loaded: found.Loaded, load: Load, field: str) -> str:
    """Return a field with its unit; a dash where it was not seen."""
    value = number(loaded, load, field)
    return "–" if value is None else FIELDS[field][1].format(value)


class LoadTable(SphinxDirective):
    """What each contender of a series took and cost."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        loaded = found.find_loads(self.env)
        series = self.arguments[0]
        if loaded is None or not loaded.has(series):
            return [found.not_yet(found.LOADS)]
        # Zeros are evidence of what bits cost: there is no speed to be quoted.
        hidden = HIDDEN | ({"tflops"} if series == "zeros" else set())
        shown = [field for field in FIELDS if field not in hidden]
        rows = [
            [named(load.name), *(cell(loaded, load, field) for field in shown)]
            for load in loaded.loads.series(series)
        ]
        table = numbers.table(["Kernel", *(FIELDS[field][0] for field in shown)], rows)
        return [nodes.container("", table, loaded.badge(), classes=["record-table", "load-table"])]


class OneLoad(SphinxRole):
    """One number of a contender, or its ratio to another's."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        series, name, field, *rest = self.text.split()
        loaded = found.find_loads(self.env)
        if field not in FIELDS or (rest and rest[0] != "/") or len(rest) not in (0, 2):
            rule = f"SERIES NAME FIELD [/ NAME] with a field of {', '.join(FIELDS)}"
            raise ExtensionError(f"{self.get_location()}: :load: takes {rule}")
        if loaded is None or not loaded.has(series):
            return [nodes.inline(self.text, numbers.NOT_YET, classes=["not-yet"])], []
        try:
            load = loaded.loads.of(series, name)
            other = loaded.loads.of(series, rest[1]) if rest else None
        except ArgumentError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        text = cell(loaded, load, field)
        if other:
            text = f"{number(loaded, load, field) / number(loaded, other, field):.2f}×"
        return [nodes.inline(self.text, text, classes=["measured"])], []


class ErrorTable(SphinxDirective):
    """How far sums in float16, and sums in float32, are from float64."""

    def run(self) -> list[nodes.Node]:
        loaded = found.find_loads(self.env)
        if loaded is None or not loaded.has("half-sums"):
            return [found.not_yet(found.LOADS)]
        errors = loaded.errors()
        rows = [
            [head, *(f"{errors[name][field]:.2g}" for name in KERNELS)]
            for field, head in ERRORS.items()
        ]
        table = numbers.table(["Error", *KERNELS.values()], rows)
        return [nodes.container("", table, loaded.badge(), classes=["record-table"])]


class OneError(SphinxRole):
    """One error of one kernel."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, field = self.text.split()
        loaded = found.find_loads(self.env)
        if loaded is None or not loaded.has("half-sums"):
            return [nodes.inline(self.text, numbers.NOT_YET, classes=["not-yet"])], []
        try:
            text = f"{loaded.errors()[name][field]:.2g}"
        except KeyError as error:
            raise ExtensionError(f"{self.get_location()}: the record has no {error}") from None
        return [nodes.inline(self.text, text, classes=["measured"])], []


class LogTable(SphinxDirective):
    """The table of the one entry of the performance log whose title has these words."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        path = found.root(self.env) / "docs" / "design" / "performance-log.md"
        self.env.note_dependency(str(path))
        try:
            head, *rows = entry(path.read_text(encoding="utf-8"), self.arguments[0])
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        table = numbers.table([cell.capitalize() for cell in head], rows)
        return [nodes.container("", table, classes=["record-table", "log-table"])]


def entry(log: str, title: str) -> list[list[str]]:
    """Return the cells of the table below the one heading that has ``title`` in it."""
    parts = [part for part in log.split("\n## ")[1:] if title in part.partition("\n")[0]]
    if len(parts) != 1:
        raise ExtensionError(f"{len(parts)} entries of the performance log have {title!r}")
    lines = [line for line in parts[0].splitlines() if line.startswith("|")]
    # Cells are plain text; a word that is code is one without its marks too.
    cells = [
        [cell.replace("`", "").strip() for cell in line.strip("|").split("|")] for line in lines
    ]
    return [row for row in cells if not all(set(cell) <= set("-:") for cell in row)]


def setup(app: Sphinx) -> None:
    """Register the directives and the roles."""
    app.add_directive("load-table", LoadTable)
    app.add_directive("error-table", ErrorTable)
    app.add_directive("log-table", LogTable)
    app.add_role("load", OneLoad())
    app.add_role("float16", OneError())
