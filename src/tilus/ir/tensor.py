# SPDX-License-Identifier: Apache-2.0
"""Tensors of the three memories, and mbarriers: handles that instructions name.

None of them says how its elements lie in memory: passes choose layouts and keep them in the
:class:`~tilus.ir.function.Plan`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tilus.dtypes import DType
from tilus.ir.expr import Element, Expr, ExprLike, NoArray, Var, as_integer, cast

if TYPE_CHECKING:
    from tilus.errors import Location


@dataclass(frozen=True)
class Threads:
    """``count`` consecutive threads of a block, from number ``begin`` on."""

    begin: int
    count: int

    @property
    def end(self) -> int:
        """Number of the first thread behind them."""
        return self.begin + self.count

    def overlaps(self, other: Threads) -> bool:
        """Return whether one thread is among both."""
        return self.begin < other.end and other.begin < self.end

    @cached_property
    def role(self) -> str:
        """Name the threads by their warps: ``warps 0-3``, ``warp 4``, ``thread 128``."""
        if self.count % 32 or self.begin % 32:
            return (
                f"thread {self.begin}"
                if self.count == 1
                else f"threads {self.begin}-{self.end - 1}"
            )
        first, last = self.begin // 32, self.end // 32 - 1
        return f"warp {first}" if first == last else f"warps {first}-{last}"


@dataclass(frozen=True, eq=False)
class GlobalTensor(NoArray):
    """A view of device memory: element ``[i, j]`` lies ``i * strides[0] + j * strides[1]`` elements
    behind ``pointer``."""

    name: str
    pointer: Var
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    def __getitem__(self, index: object) -> None:
        raise TypeError(
            f"{self.name}: a view of device memory has no elements in a kernel; write "
            "self.load_global(view, offsets=..., shape=...) and self.store_global"
        )


@dataclass(frozen=True, eq=False)
class SharedBuffer:
    """One allocation in shared memory; the last two dimensions (or fewer) are a tile, the leading
    ones count tiles.

    ``base``: the allocation whose memory this one is, seen with other tiles.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    location: Location | None = None
    base: SharedBuffer | None = None

    @property
    def memory(self) -> SharedBuffer:
        """The allocation itself, whatever shape this is a view of it in."""
        return self.base or self

    @cached_property
    def nbytes(self) -> int:
        """Size of the whole allocation in bytes."""
        return math.prod(self.shape) * self.dtype.nbytes


@dataclass(frozen=True, eq=False)
class SharedTensor(NoArray):
    """A buffer, or the part of it that leading indices select; ``transposed`` swaps the last two
    dimensions of the view.

    ``offset`` counts elements from the start of the buffer to the selected part. With ``rank``, it
    is the memory that this block of the cluster has there.
    """

    buffer: SharedBuffer
    shape: tuple[int, ...]
    offset: Expr
    transposed: bool = False
    rank: Expr | None = None

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.buffer.dtype

    @property
    def name(self) -> str:
        """Name of the buffer."""
        return self.buffer.name

    @cached_property
    def nbytes(self) -> int:
        """Size of the selected part in bytes: what a load of it adds to an mbarrier's transaction
        count."""
        return math.prod(self.shape) * self.dtype.nbytes

    @property
    def tiles(self) -> int:
        """Number of tiles that follow one another in the selected part."""
        return math.prod(self.shape[:-2])

    def __getitem__(self, index: ExprLike | tuple[ExprLike, ...]) -> SharedTensor:
        """Select by leading indices, which may be run-time values."""
        indices = index if isinstance(index, tuple) else (index,)
        if self.transposed or len(indices) >= len(self.shape):
            raise TypeError(
                f"{self.name}: an index must be at most {len(self.shape) - 1} leading indices of a "
                "tensor that is not transposed"
            )
        view = self
        for i in indices:
            if isinstance(i, int) and not 0 <= i < view.shape[0]:
                raise IndexError(f"{self.name}: index must be in 0..{view.shape[0] - 1}, got {i}")
            step = math.prod(view.shape[1:])
            view = replace(
                view, shape=view.shape[1:], offset=view.offset + as_integer(i, "an index") * step
            )
        return view

    def transpose(self) -> SharedTensor:
        """Return the same tile with its two dimensions exchanged; no data moves."""
        if len(self.shape) != 2:
            raise TypeError(
                f"{self.name}: transpose() must be called on a 2-D tile, "
                f"got {len(self.shape)} dimensions"
            )
        return replace(self, shape=self.shape[::-1], transposed=not self.transposed)


@dataclass(frozen=True, eq=False)
class RegisterTensor(NoArray):
    """A tile spread over the registers of ``threads``, or, where ``replicated``, held whole by each
    of them."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    threads: Threads
    replicated: bool = False

    def __pos__(self) -> RegisterTensor:
        return self

    def __bool__(self) -> bool:
        raise TypeError(
            "a register tile has no truth value; choose elements with self.where, and combine "
            "conditions with & and |"
        )

    def __getitem__(self, index: ExprLike) -> Element:
        """Read one element of a small replicated tensor; the index may be a run-time value."""
        if not self.replicated:
            raise TypeError(
                f"{self.name}: an indexed tensor must be integer, one-dimensional and of at most "
                "32 elements"
            )
        i = as_integer(index, "an index")
        if isinstance(index, int) and not 0 <= index < self.shape[0]:
            raise IndexError(f"{self.name}: index must be in 0..{self.shape[0] - 1}, got {index}")
        return Element(self, i, self.dtype)

    def element_value(self, value: ExprLike) -> Expr:
        """Return ``value`` in this tensor's type, as an element assignment stores it."""
        return cast(value, self.dtype, exact=True)


@dataclass(frozen=True, eq=False)
class BarrierArray:
    """Mbarriers in shared memory, one 8-byte object each; ``counts[i]`` arrivals complete a phase
    of barrier ``i``."""

    name: str
    counts: tuple[int, ...]
    location: Location | None = None

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: ExprLike) -> Barrier:
        """Select one barrier; the index may be a run-time value."""
        if isinstance(index, int) and not 0 <= index < len(self.counts):
            raise IndexError(
                f"{self.name}: index must be in 0..{len(self.counts) - 1}, got {index}"
            )
        return Barrier(self, as_integer(index, "an index"))


@dataclass(frozen=True, eq=False)
class Barrier:
    """One mbarrier of an array."""

    array: BarrierArray
    index: Expr


Tensor = GlobalTensor | SharedTensor | RegisterTensor
