# SPDX-License-Identifier: Apache-2.0
"""Imports that wait until somebody needs them, so that ``import tilus`` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def exports(module: str, sources: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of ``module`` (PEP 562); ``sources`` maps names to the modules
    that hold them."""

    def __getattr__(name: str) -> object:
        if name not in sources:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        return getattr(importlib.import_module(sources[name]), name)

    return __getattr__


class Later:
    """Stands for a module in a class body: ``tma = ops.tma`` is looked up when an object is asked
    for ``tma``."""

    def __init__(self, module: str, path: tuple[str, ...] = ()) -> None:
        self._module, self._path = module, path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for is not there
            raise AttributeError(name)
        return Later(self._module, (*self._path, name))

    def __get__(self, instance: object, owner: type) -> Any:
        found: Any = importlib.import_module(self._module)
        for name in self._path:
            found = getattr(found, name)
        return found
