# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of programs: what changes with what they do, and with nothing else."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent


def program_hash(source: str) -> str:
    """Return the SHA-256 of what Python source does: no comments, docstrings, places or layout.

    It is the same on every version of Python: fields that a version adds are empty or left out.
    """
    return hashlib.sha256(_shape(ast.parse(source)).encode()).hexdigest()


def _shape(node: object) -> str:
    match node:
        case ast.Constant():
            return f"Constant({node.value!r})"
        case ast.AST():
            fields = (f"{name}={_shape(value)}" for name, value in _fields(node))
            return f"{type(node).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(_shape(item) for item in node)}]"
    return repr(node)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = [line for line in value if not _is_string(line)]
        if isinstance(node, ast.JoinedStr):  # Python 3.12 puts empty texts into f-strings
            value = [part for part in value if getattr(part, "value", None) != ""]
        if value is not None and value != []:
            yield name, value


def _is_string(line: ast.stmt) -> bool:
    """Tell a docstring, or any other string that stands alone and does nothing."""
    value = getattr(line, "value", None) if isinstance(line, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def cuda_hash(cuda: str) -> str:
    """Return the SHA-256 of generated CUDA without its comments, which carry places in files."""
    bare = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match[1] or "", cuda)
    lines = (line.rstrip() for line in bare.splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


@cache
def package_hash(folder: Path = PACKAGE) -> str:
    """Return the SHA-256 of all of a package's sources, this one's, as they lie on the disk."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
