# SPDX-License-Identifier: Apache-2.0
"""Kernels come from files: one named on a command line, in a record, on a page or by a test."""

from __future__ import annotations

import hashlib
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from tilus.errors import ArgumentError

T = TypeVar("T")


def load(path: Path) -> ModuleType:
    """Run a Python file, as it is on the disk now, as a module whose name nothing else has.

    The folder of the file may be imported from meanwhile, as when the file itself is run. Raises
    :class:`ArgumentError` where there is no such file, and whatever the file raises.
    """
    if not path.is_file():
        raise ArgumentError("KERNEL", "a Python file", repr(str(path)), "Check the path.")
    path = path.resolve()
    linecache.checkcache(str(path))  # the frontend reads sources through linecache
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise ArgumentError(
            "KERNEL", "a Python file", f"{path.name!r}: {error}", "Mend it."
        ) from error
    module = ModuleType(f"tilus_kernel_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    try:
        exec(code, vars(module))
    finally:
        sys.path.remove(str(path.parent))
    return module


def find(path: Path, base: type[T], name: str = "") -> type[T]:
    """Return the subclass of ``base`` that a file defines; with several of them, the one ``name``.

    Raises :class:`ArgumentError` where the file leaves it open which one that is.
    """
    module = load(path)
    own = {
        n: c
        for n, c in vars(module).items()
        if isinstance(c, type) and issubclass(c, base) and c.__module__ == module.__name__
    }
    if not name and len(own) == 1:
        return next(iter(own.values()))
    if not own:
        rule = f"a file that defines a class derived from {base.__name__}"
        raise ArgumentError("KERNEL", rule, f"{str(path)!r} with none", "Name another file.")
    if name not in own:
        rule = f"FILE:CLASS with one of {', '.join(own)}, the classes of {path}"
        raise ArgumentError("KERNEL", rule, repr(f"{path}:{name}".rstrip(":")), "Name one.")
    return own[name]
