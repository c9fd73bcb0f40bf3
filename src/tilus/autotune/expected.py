# SPDX-License-Identifier: Apache-2.0
"""What the arrays must hold after a right run: by the script's reference, else by the simulator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tilus import ir, runtime
from tilus.autotune.trial import Image, at, runnable
from tilus.errors import ArgumentError
from tilus.frontend import kernel_function, parameters
from tilus.launch import Call

SMALL = 256
"""Largest extent of what is simulated: seconds, and still several tiles."""


def reference_of(script: Any) -> Callable[..., Any]:
    """Return what a kernel is compared with: its method ``reference``, which takes the arguments
    of ``__call__`` in their order, under whatever names, and writes NumPy arrays.

    Raises :class:`ArgumentError` where it has none that takes them.
    """
    names = [p.name for p in parameters(kernel_function(script))]
    found: Callable[..., Any] | None = getattr(script, "reference", None)
    if found is None or not _takes(found, names):
        form = f"reference(self, {', '.join(names)})"
        rule = f"a method {form} of {type(script).__name__}, which does the same in NumPy"
        value = f"parameters {', '.join(inspect.signature(found).parameters)}" if found else "none"
        raise ArgumentError("reference", rule, value, f"Write def {form}.")
    return found


def _takes(function: Callable[..., Any], arguments: Sequence[object]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def in_order(script: Any, call: Call, arrays: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call in the order of ``__call__``, with these ``arrays``."""
    values = {**call.constants, **call.scalars, **arrays}
    return [values[p.name] for p in parameters(kernel_function(script))]


def by_reference(
    script: Any, call: Call, before: Mapping[str, Image], outputs: Collection[str]
) -> dict[str, Image]:
    """Let a script's ``reference(...)`` write ``outputs``; it gets NumPy arrays for pointers."""
    after = {name: x.copy() if name in outputs else x for name, x in before.items()}
    arrays = {name: image.elements for name, image in after.items()}
    reference_of(script)(*in_order(script, call, arrays))
    return after


def by_simulator(kernel: ir.Kernel, call: Call, before: Mapping[str, Image]) -> dict[str, Image]:
    """Let the simulator run a kernel on the arrays, which should be small ones."""
    placed = {name: image.place("sim") for name, image in before.items()}
    runnable(kernel, "sim")(at(call, {name: p.array for name, p in placed.items()}))
    return {
        name: Image(placed[name].fetch(), image.shape, image.strides, image.dtype)
        for name, image in before.items()
    }


def small(call: Call) -> Call:
    """Return the call with integers above ``SMALL`` cut to it, and extents of arrays with them.

    Raises :class:`ArgumentError` for an array that is not row-major: how its pitch follows from the
    arguments is not known here.
    """
    numbers = {**call.constants, **call.scalars}
    cut = {v: min(v, SMALL) for v in numbers.values() if type(v) is int}
    constants, scalars = (
        {name: cut[v] if type(v) is int else v for name, v in part.items()}
        for part in (call.constants, call.scalars)
    )
    arrays = {name: _cut(name, array, cut) for name, array in call.arrays.items()}
    return Call(constants, scalars, arrays, ())


def _cut(name: str, array: runtime.Array, cut: Mapping[int, int]) -> runtime.Array:
    if array.strides != _row_major(array.shape, array.dtype.nbytes):
        remedy = "Give the script a method 'reference', or give the schedule at construction."
        raise ArgumentError(name, "row-major to be tuned without one", array.strides, remedy)
    shape = tuple(cut.get(extent, extent) for extent in array.shape)
    strides = _row_major(shape, array.dtype.nbytes)
    return runtime.Array(array.address, shape, strides, array.dtype, array.device)


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = [itemsize]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)
