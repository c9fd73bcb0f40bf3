# SPDX-License-Identifier: Apache-2.0
"""Calls that came before: found again without binding and checking them anew.

A call on a GPU is the same as one before where numbers, addresses, shapes, strides, types and
devices are the same: then so are the grid, the tensor maps and the argument buffer. What is read
off the arguments anew at every call is all of that, so an address that was freed and given to an
array of another form is another call. No array is kept alive by being known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Generic, TypeVar

from tilus import runtime
from tilus.dtypes import DType, PointerType
from tilus.frontend import Parameter, parameters
from tilus.launch.arguments import Call
from tilus.options import NO_INSTRUMENTS, option

T = TypeVar("T")
Key = tuple[object, ...]

TENSOR = (
    "_type({0}), {0}.data_ptr(), {0}.shape, {0}.stride(), {0}.dtype, {0}.device, "
    "{0}.requires_grad and _grad_enabled()"
)
"""What makes a tensor of PyTorch what it is to a kernel, in its own words."""
ARRAY = "_type({0}), _describe({0}, '').key"
"""The same of any other array."""
NUMBER = "_type({0}), {0}"
REAL = "_type({0}), {0}, _copysign(1.0, {0})"
"""0.0 and -0.0 are equal, and not the same."""


@dataclass(frozen=True)
class Place(Generic[T]):
    """Where a call's preparation belongs."""

    made: dict[Key, T]
    key: Key


class Known(Generic[T]):
    """What was made for calls of a kernel under the options there are now; of ``LIMIT`` at most."""

    LIMIT = 1024

    def __init__(self, function: FunctionType) -> None:
        self._function, self._made = function, dict[Key, T]()
        self._device, self._instruments = "", NO_INSTRUMENTS

    def find(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Place[T] | None, T | None]:
        """Return what was kept of a call, else None and the place where to :meth:`keep` it."""
        if (
            self._device != option.current_device
            or self._instruments is not option.debug.instruments
        ):
            self._begin()
        made = self._made
        try:
            try:
                key = self._tensors(*args, **kwargs)
            except AttributeError:
                key = self._arrays(*args, **kwargs)
            found = made.get(key)
        except Exception:  # what is wrong with the arguments is said by who binds them
            return None, None
        return (None, found) if found else (Place(made, key), None)

    def keep(self, place: Place[T] | None, call: Call, made: T) -> None:
        """Keep what was made for a call, where its key tells all that there is to know."""
        if place is None or not told(call):
            return
        if len(place.made) >= self.LIMIT:
            place.made.clear()
        place.made[place.key] = made

    def _begin(self) -> None:
        """Begin anew: an option has changed. Who is about to keep something still has the old
        place for it, where nobody will look."""
        self._device, self._instruments = option.current_device, option.debug.instruments
        self._made = {}

    @functools.cached_property
    def _tensors(self) -> Callable[..., Key]:
        return reader(self._function, TENSOR)

    @functools.cached_property
    def _arrays(self) -> Callable[..., Key]:
        return reader(self._function, ARRAY)


def told(call: Call) -> bool:
    """Return whether calls of equal keys are equal.

    They need not be with numbers that may change, and with arrays that only look like PyTorch's. On
    the host they may be, but the simulator holds on to the arrays themselves.
    """
    plain = (not hasattr(x, "data_ptr") or runtime.library_of(x) == "torch" for x in call.given)
    return call.device != runtime.CPU and call.fixed and all(plain)


@functools.lru_cache(maxsize=256)
def reader(function: FunctionType, array: str) -> Callable[..., Key]:
    """Return a function with a kernel's parameters that makes a key of its arguments.

    It is written out for the kernel: a loop over the arguments takes twice as long, and this is
    most of what a call costs before the driver has it.
    """
    code = function.__code__
    names = list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    if code.co_kwonlyargcount:
        names.insert(code.co_argcount - 1, "*")
    parts = "".join(form(p, array).format(p.name) + ", " for p in parameters(function))
    # Names that no parameter has: it would hide them.
    tools = {
        "_type": type,
        "_describe": runtime.describe,
        "_copysign": math.copysign,
        "_grad_enabled": runtime.grad_enabled,
    }
    made: FunctionType = eval(f"lambda {', '.join(names)}: ({parts})", tools)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def form(p: Parameter, array: str) -> str:
    """Return what is read off an argument."""
    if isinstance(p.type, PointerType):
        return array
    real = p.type is float or (isinstance(p.type, DType) and p.type.is_float)
    return REAL if real else NUMBER
