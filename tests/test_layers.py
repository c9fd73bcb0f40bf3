# SPDX-License-Identifier: Apache-2.0
"""The contracts that import-linter enforces are whole, and the design page shows them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS, CUDA = LINTER["contracts"]


def modules() -> set[str]:
    """Return the modules and packages right below ``tilus``."""
    found = {p.stem for p in (ROOT / "src" / "tilus").glob("*.py")} - {"__init__"}
    return found | {p.parent.name for p in (ROOT / "src" / "tilus").glob("*/__init__.py")}


def test_every_module_has_one_layer():
    named = [name for layer in LAYERS["layers"] for name in layer.split(" | ")]
    assert sorted(named) == sorted(modules())


def test_all_but_two_are_kept_from_cuda():
    assert {"cuda", "torch"} <= set(CUDA["forbidden_modules"])
    assert set(CUDA["source_modules"]) == {f"tilus.{m}" for m in modules() - {"nvrtc", "runtime"}}


def test_the_design_page_shows_the_layers_in_order():
    page = (ROOT / "docs" / "design" / "architecture.rst").read_text()
    assert re.findall(r"^   \* - ``(.*)``$", page, re.MULTILINE) == LAYERS["layers"]
