# SPDX-License-Identifier: Apache-2.0
"""Do the arrays of a call fit the views that the kernel takes of them?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from tilus import ir, runtime
from tilus.errors import ArgumentError
from tilus.launch.arguments import Call
from tilus.runtime.tensor_map import GRANULE


@dataclass(frozen=True)
class Extent:
    """A view with its numbers known: ``shape`` in elements, the rest in bytes."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to behind the last."""
        return runtime.span(self.shape, self.strides, self.itemsize)


def check(kernel: ir.Kernel, call: Call) -> None:
    """Raise :class:`ArgumentError` where an array does not fit a view, or TMA cannot address it."""
    scalars = values(kernel, call)
    outputs = written(kernel.function)
    for p in kernel.function.params:
        if p.pointer:
            array = call.arrays[p.name]
            views = [v for v in all_views(kernel.function) if v.pointer is p.var]
            fits(p.name, array, [extent(v, scalars) for v in views])
            if p.name in outputs and not array.writable:
                remedy = "Pass one that the kernel may change."
                raise ArgumentError(p.name, "a writable array", "a read-only one", remedy)
    for tensor_map in kernel.plan.tensor_maps:
        tiling(kernel, call, tensor_map, scalars).check()
    for store in bulk_stores(kernel.function):
        whole_pieces(kernel.function, store, scalars)


def values(kernel: ir.Kernel, call: Call) -> dict[ir.Expr, ir.Scalar]:
    """Return the values of the kernel's scalar parameters."""
    return {p.var: call.scalars[p.name] for p in kernel.function.params if not p.pointer}


@functools.lru_cache(maxsize=256)
def all_views(function: ir.Function) -> tuple[ir.GlobalTensor, ...]:
    """Return the views that a kernel takes of its arrays."""
    found = (v for s in ir.walk(function.body) for v in _views(s))
    return tuple(dict.fromkeys(found))


def _views(stmt: ir.Stmt) -> Iterator[ir.GlobalTensor]:
    if isinstance(stmt, ir.Instruction):
        values = (getattr(stmt, f.name) for f in fields(stmt))
        yield from (v for v in values if isinstance(v, ir.GlobalTensor))


@functools.lru_cache(maxsize=256)
def written(function: ir.Function) -> tuple[str, ...]:
    """Return the names of the arrays that the kernel writes."""
    targets = {
        target.pointer
        for stmt in ir.walk(function.body)
        if isinstance(stmt, ir.Instruction)
        for effect in stmt.effects
        if effect.kind != "read"
        and isinstance(target := getattr(stmt, effect.field), ir.GlobalTensor)
    }
    return tuple(p.name for p in function.params if p.var in targets)


@dataclass(frozen=True)
class Store:
    """A bulk store to ``view``: of ``width`` columns, the first of which is ``column``."""

    view: ir.GlobalTensor
    column: ir.ExprLike
    width: int

    def beyond(self, columns: int, scalars: Mapping[ir.Expr, ir.Scalar]) -> bool:
        """Say whether the box reaches beyond so many columns, or may: the launch need not know
        where it begins."""
        try:
            begin = int(ir.evaluate(self.column, scalars))
        except (KeyError, ArithmeticError):  # it depends on the block, or is computed in the kernel
            return True
        return begin < columns < begin + self.width


@functools.lru_cache(maxsize=256)
def bulk_stores(function: ir.Function) -> tuple[Store, ...]:
    """Return the stores to device memory that engines carry out."""
    return tuple(
        Store(view, stmt.offsets[-1], stmt.src.shape[-1])  # type: ignore[attr-defined]
        for stmt in ir.walk(function.body)
        if isinstance(stmt, ir.Instruction) and stmt.proxy == "async"
        for effect in stmt.effects
        if effect.kind == "write"
        and isinstance(view := getattr(stmt, effect.field), ir.GlobalTensor)
    )


def whole_pieces(function: ir.Function, store: Store, scalars: Mapping[ir.Expr, ir.Scalar]) -> None:
    """Refuse a bulk store that overwrites what lies behind the rows of its view: an H200 wrote the
    last piece of a row to its end."""
    view = extent(store.view, scalars)
    row = view.shape[-1] * view.itemsize
    if 0 in view.shape or row % GRANULE == 0 or not store.beyond(view.shape[-1], scalars):
        return
    name = next(p.name for p in function.params if p.var is store.view.pointer)
    rule = (
        f"of rows that end at a multiple of {GRANULE} bytes, as tma.shared_to_global writes no "
        f"less and would overwrite what lies behind those of the view '{view.name}'"
    )
    whole = row // GRANULE * GRANULE // view.itemsize
    through = f"Store through a view of {whole} columns, and the others" if whole else "Store them"
    remedy = f"{through} with store_global."
    raise ArgumentError(name, rule, f"rows of {row} bytes (shape {view.shape})", remedy)


def extent(view: ir.GlobalTensor, scalars: Mapping[ir.Expr, ir.Scalar]) -> Extent:
    """Compute a view's numbers from the call's scalars."""
    what = f"the shape of view '{view.name}'"
    shape = tuple(ir.launch_integer(n, scalars, what) for n in view.shape)
    steps = tuple(ir.launch_integer(s, scalars, what) * view.dtype.nbytes for s in view.strides)
    for n in shape:
        if n < 0:
            raise ArgumentError(what, "not negative", shape, "Pass sizes >= 0.")
    return Extent(view.name, shape, steps, view.dtype.nbytes)


def fits(name: str, array: runtime.Array, views: list[Extent]) -> None:
    """Refuse an array that has the form of no view of it, or is too small for one."""
    problems = [mismatch(name, array, view) for view in views]
    if problems and all(problems):
        raise problems[0]  # type: ignore[misc]
    has = runtime.span(array.shape, array.strides, array.dtype.nbytes)
    for view in views:
        if view.nbytes > has:
            rule = f"large enough for the view '{view.name}' {view.shape} ({view.nbytes} bytes)"
            raise ArgumentError(name, rule, f"{has} bytes", "Pass a larger array.")


def mismatch(name: str, array: runtime.Array, view: Extent) -> ArgumentError | None:
    """Return what is wrong with an array for a view; strides of extent 1 mean nothing."""
    if len(array.shape) != len(view.shape):
        rule = f"of {len(view.shape)} dimensions, like the view '{view.name}' {view.shape}"
        return ArgumentError(name, rule, f"shape {array.shape}", "Reshape it.")
    if array.shape != view.shape:
        rule = f"of shape {view.shape}, like the view '{view.name}'"
        return ArgumentError(name, rule, array.shape, "Pass sizes and arrays that agree.")
    pairs = zip(array.shape, array.strides, view.strides, strict=True)
    if math.prod(array.shape) and any(n > 1 and s != v for n, s, v in pairs):
        rule = f"laid out with strides of {view.strides} bytes, like the view '{view.name}'"
        return ArgumentError(name, rule, f"{array.strides} bytes", "Pass a contiguous copy.")
    return None


def tiling(
    kernel: ir.Kernel,
    call: Call,
    tensor_map: ir.TensorMap,
    scalars: Mapping[ir.Expr, ir.Scalar],
) -> runtime.Tiling:
    """Return what a tensor map is made of.

    A view without elements has a pitch of 0, which no map can have; nothing is loaded through it.
    """
    view = tensor_map.view
    name = next(p.name for p in kernel.function.params if p.var is view.pointer)
    numbers, address = extent(view, scalars), call.arrays[name].address
    strides, shape = numbers.strides, numbers.shape
    if 0 in shape:
        *outer, last = strides
        strides, address = (*(16 for _ in outer), last), address // 16 * 16
    box, swizzle = tensor_map.box, tensor_map.swizzle
    return runtime.Tiling(address, view.dtype, shape, strides, box, swizzle, name)
