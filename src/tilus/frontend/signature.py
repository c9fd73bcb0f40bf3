# SPDX-License-Identifier: Apache-2.0
"""The parameters of a kernel, read from the annotations of ``__call__``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tilus import ir
from tilus.dtypes import DType, PointerType, uint64
from tilus.errors import LanguageError
from tilus.frontend import source

CONSTANTS = (int, float, bool)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    ``type`` is ``int``, ``float`` or ``bool`` for a compile-time constant, a :class:`DType` for a
    run-time scalar, a :class:`PointerType` for an array.
    """

    name: str
    type: type | DType | PointerType
    default: Any = inspect.Parameter.empty

    @property
    def constant(self) -> bool:
        """Whether the value is known while the kernel is built: one program per value."""
        return isinstance(self.type, type)

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out."""
        return self.default is not inspect.Parameter.empty

    def runtime(self) -> ir.Param:
        """Return the parameter as the kernel takes it at run time."""
        if isinstance(self.type, PointerType):
            return ir.Param(self.name, self.type.element, ir.Var(self.name, uint64), pointer=True)
        assert isinstance(self.type, DType)
        return ir.Param(self.name, self.type, ir.Var(self.name, self.type))


def kernel_function(script: object) -> FunctionType:
    """Return the ``__call__`` that the author of a script or its class wrote, not the launcher."""
    cls = script if isinstance(script, type) else type(script)
    function = inspect.unwrap(cls.__call__)
    assert isinstance(function, FunctionType)
    return function


@functools.lru_cache(maxsize=256)
def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel's ``__call__`` without ``self``."""
    own = list(inspect.signature(function).parameters.values())[1:]
    return tuple(_parameter(function, p) for p in own)


def _parameter(function: Callable[..., Any], p: inspect.Parameter) -> Parameter:
    kind = source.annotation(function, p.annotation)
    plain = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    if plain and (kind in CONSTANTS or isinstance(kind, DType | PointerType)):
        return Parameter(p.name, kind, p.default)
    found = source.find(function)
    arg = next((a for a in ast_arguments(found) if a.arg == p.name), None)
    raise LanguageError(
        f"parameter '{p.name}' must be annotated with int, float or bool (compile-time), "
        "a tilus type such as int32 (run-time) or a pointer such as ~float16",
        found.location(arg or found.node),
    )


def ast_arguments(found: source.Source) -> list[Any]:
    """Return the syntax nodes of a function's parameters."""
    a = found.node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
