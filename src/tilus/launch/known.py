# SPDX-License-Identifier: Apache-2.0
"""Calls that came before: found again without binding and checking them anew.

A call on a GPU is the same as one before where numbers, addresses, shapes, strides, types and
devices are the same: then so are the grid, the tensor maps and the argument buffer. All of that is
read off the arguments anew at every call, so an address that was freed and given to an array of
another form is another call. No array is kept alive by being known.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Generic, TypeVar

from tilus import runtime
from tilus.dtypes import DType, PointerType
from tilus.frontend import Parameter, parameters
from tilus.launch.arguments import Call
from tilus.options import option

T = TypeVar("T")
Key = tuple[object, ...]
Same = Callable[..., bool]
"""Says whether arrays have the form of those that a call was prepared for."""

TENSOR = "{0}.data_ptr()"
"""Where a tensor of PyTorch lies; its form is compared apart."""
ARRAY = "{0}.__class__, {_}describe({0}, '').key"
"""Where any other array lies, and its form."""
NUMBER = "{0}.__class__, {0}"
REAL = "{0}.__class__, {0}, {_}copysign(1.0, {0})"
"""0.0 and -0.0 are equal, and not the same."""

FIND = """
def find({_}known, {signature}):
    if {_}option.epoch is not {_}known.epoch:
        {_}known.begin()
    try:
        {_}found = {_}known.kept.get(({key}))
        return {_}found.made if {_}found is not None and {_}found.same({arrays}) else None
    except Exception:
        return {_}known.other({arguments})
"""
"""Finds what was made for a call, None where there is nothing.

It is written out for the kernel: a loop over the arguments takes twice as long, and this is most of
what a call costs before the driver has it. ``{_}``, which names of its own begin with, is longer
than any parameter's name.
"""
READ = """
def read({signature}):
    return ({key})
"""
"""Returns the key of a call."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """What was ``made`` for calls whose numbers and addresses are those of the key."""

    made: T
    same: Same


class Known(Generic[T]):
    """What was made for calls of a kernel under the options there are now; of ``LIMIT`` at most.

    ``find(arguments...)``, with the kernel's own signature, returns it, or None; TypeError says
    that the arguments do not fit the signature.
    """

    LIMIT = 1024

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self.begin()

    def begin(self) -> None:
        """Begin anew: an option has changed. Who is about to keep something still has the old
        place for it, where nobody will look."""
        epoch = option.epoch
        self.kept = dict[Key, Kept[T]]()
        self.epoch = epoch  # now that nothing of an earlier one is found: other threads look, too

    def other(self, *args: Any, **kwargs: Any) -> T | None:
        """Find a call with arrays that are none of PyTorch."""
        try:
            found = self.kept.get(self._arrays(*args, **kwargs))
        except Exception:  # what is wrong with the arguments is said by who binds them
            return None
        return found.made if found else None

    def keep(
        self,
        place: dict[Key, Kept[T]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call: Call,
        made: T,
    ) -> None:
        """Keep in ``place``, which was ``kept`` before, what was made for a call, where its numbers
        and the form of its arrays are all there is to know."""
        if not told(call):
            return
        if len(place) >= self.LIMIT:
            place.clear()
        tensors = all(runtime.library_of(x) == "torch" for x in call.given)
        key = (self._tensors if tensors else self._arrays)(*args, **kwargs)
        place[key] = Kept(made, like(call.given) if tensors else always)

    @functools.cached_property
    def find(self) -> Callable[..., T | None]:
        """Return what finds calls, with the kernel's own signature."""
        return MethodType(written(self._function, FIND, TENSOR), self)

    @functools.cached_property
    def _tensors(self) -> Callable[..., Key]:
        return written(self._function, READ, TENSOR)

    @functools.cached_property
    def _arrays(self) -> Callable[..., Key]:
        return written(self._function, READ, ARRAY)


@functools.lru_cache(maxsize=256)
def written(function: FunctionType, text: str, array: str) -> Callable[..., Any]:
    """Return a function with a kernel's own signature and defaults, written by filling in ``text``:
    with the key of its arguments, and the arguments, all and the arrays alone."""
    code, own = function.__code__, parameters(function)
    _ = "_" * (1 + max((len(p.name) for p in own), default=0))
    by_place = code.co_varnames[1 : code.co_argcount]
    by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    filled = text.format(
        _=_,
        signature=", ".join((*by_place, *(["*"] if by_name else []), *by_name)),
        key="".join(f"{form(p, array).format(p.name, _=_)}, " for p in own),
        arguments=", ".join((*by_place, *(f"{name}={name}" for name in by_name))),
        arrays=", ".join(p.name for p in own if isinstance(p.type, PointerType)),
    )
    names = {"option": option, "describe": runtime.describe, "copysign": math.copysign}
    tools: dict[str, Any] = {_ + name: tool for name, tool in names.items()}
    exec(filled, tools)
    made: FunctionType = tools[text.split("(")[0].split()[1]]
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def form(p: Parameter, array: str) -> str:
    """Return what is read off an argument for the key."""
    if isinstance(p.type, PointerType):
        return array
    real = p.type is float or (isinstance(p.type, DType) and p.type.is_float)
    return REAL if real else NUMBER


def told(call: Call) -> bool:
    """Return whether calls of equal keys are equal.

    They need not be with numbers that may change, and with arrays that only look like PyTorch's. On
    the host they may be, but the simulator holds on to the arrays themselves.
    """
    plain = (not hasattr(x, "data_ptr") or runtime.library_of(x) == "torch" for x in call.given)
    return call.device != runtime.CPU and call.fixed and all(plain)


def always(*_: object) -> bool:
    """Say that arrays have the same form: their key has told all of it."""
    return True


def like(tensors: Sequence[Any]) -> Same:
    """Return what says whether other tensors of PyTorch have the form of these, which it does not
    hold: class, shape, strides, type, device, and whether a gradient is recorded.

    PyTorch has such a question of its own, which it asks before it runs compiled code. It takes
    a third of the time that reading takes, and is no part of PyTorch's public interface. It also
    tells modes apart, such as autocast; a call in another one is prepared anew.
    """
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        check: Same = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        usable = check(*tensors)  # not where one tensor is there twice, to which it says no
    except (AttributeError, TypeError):
        usable = False
    if not usable:
        same = forms(tensors)
        return lambda *others: forms(others) == same
    if any(x.requires_grad for x in tensors):  # it does not ask whether PyTorch records now
        return lambda *others: not runtime.grad_enabled() and check(*others)
    return check


def forms(tensors: Sequence[Any]) -> list[tuple[object, ...]]:
    """Return what :func:`like` compares."""
    return [
        (
            x.__class__,
            x.shape,
            x.stride(),
            x.dtype,
            x.device,
            x.requires_grad and runtime.grad_enabled(),
            x.is_neg(),
        )
        for x in tensors
    ]
