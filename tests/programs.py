# SPDX-License-Identifier: Apache-2.0
"""The programs below scripts/ as modules; they have no suffix, so that no import finds them."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    """Return a program anew, as a module ``scripts_<name>`` whose ``main`` has not run."""
    loader = SourceFileLoader(f"scripts_{name}", str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
