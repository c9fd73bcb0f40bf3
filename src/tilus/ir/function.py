# SPDX-License-Identifier: Apache-2.0
"""A whole kernel, and the plan the passes make for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilus.dtypes import DType
from tilus.errors import ArgumentError, Location
from tilus.ir.expr import Expr, Scalar, Var, evaluate
from tilus.ir.stmt import Group, Stmt
from tilus.ir.tensor import BarrierArray, GlobalTensor, RegisterTensor, SharedBuffer, Threads

if TYPE_CHECKING:
    from tilus.layout import RegisterLayout, SharedLayout, Swizzle


REGISTER_FILE = 65536
"""32-bit registers of a multiprocessor (CUDA C programming guide, compute capability 9.0)."""


@dataclass(frozen=True)
class Param:
    """A run-time parameter: a scalar, or an array whose elements are ``dtype`` when ``pointer`` is
    set.

    A pointer's ``var`` has the type uint64 (its address).
    """

    name: str
    dtype: DType
    var: Var
    pointer: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel after the frontend: one compile-time specialisation of a script's ``__call__``."""

    name: str
    params: tuple[Param, ...]
    blocks: tuple[Expr, Expr, Expr]
    warps: int
    body: tuple[Stmt, ...]
    location: Location
    cluster: tuple[int, int, int] = (1, 1, 1)

    @property
    def threads(self) -> Threads:
        """All threads of a block."""
        return Threads(0, 32 * self.warps)

    @property
    def initial_registers(self) -> int:
        """Registers a thread begins with where groups set budgets: ptxas lets all whole warp groups
        begin with equal shares of the register file."""
        return REGISTER_FILE // (-(-self.warps // 4) * 128) // 8 * 8

    def grid(self, scalars: Mapping[Expr, Scalar]) -> tuple[int, int, int]:
        """Return the number of blocks along x, y and z; ``scalars`` are the parameters' values.

        Raises :class:`ArgumentError` where clusters do not fill it.
        """
        x, y, z = (launch_integer(n, scalars, "the grid") for n in self.blocks)
        check_clusters(self.name, (x, y, z), self.cluster)
        return x, y, z


def check_clusters(name: str, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
    """Refuse a grid that clusters do not fill; ``name`` is the kernel's."""
    if any(n % c for n, c in zip(grid, cluster, strict=True)):
        rule = f"a multiple of the cluster {cluster}"
        raise ArgumentError(f"grid of {name}", rule, grid, "Round it up; extra blocks do nothing.")


def launch_integer(x: Expr, scalars: Mapping[Expr, Scalar], what: str) -> int:
    """Compute an integer that the launch needs from the parameters' values.

    Raises :class:`ArgumentError`, naming ``what``, where the values do not give one.
    """
    try:
        return int(evaluate(x, scalars))
    except ArithmeticError as error:
        rule = "a number that the arguments give"
        raise ArgumentError(what, rule, f"none: {error}", "Pass other sizes.") from error


@dataclass(frozen=True, eq=False)
class TensorMap:
    """What the host needs to encode one ``CUtensorMap``: boxes of ``box`` elements (slowest first)
    of ``view``."""

    name: str
    view: GlobalTensor
    box: tuple[int, ...]
    swizzle: Swizzle


@dataclass(frozen=True, eq=False)
class Twins:
    """Neighbouring groups that share ``body``, in which ``member`` is the number of the group."""

    groups: tuple[Group, ...]
    member: Var
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What the passes decided: layouts, places in shared memory (bytes from its start), tensor
    maps.

    ``bits`` holds the replicated tensors whose elements are 0 or 1 and live as bits of one word,
    ``nonnegative`` the variables that are never negative, for which C's division is Python's.
    ``scratch`` holds where the shared memory lies that instructions of a group use while they run.
    ``twins`` holds, by the first of them, the groups that share their machine code.
    """

    registers: Mapping[RegisterTensor, RegisterLayout]
    shared: Mapping[SharedBuffer, SharedLayout]
    places: Mapping[SharedBuffer | BarrierArray, int]
    tensor_maps: tuple[TensorMap, ...]
    shared_bytes: int
    bits: frozenset[RegisterTensor] = frozenset()
    nonnegative: frozenset[Var] = frozenset()
    scratch: Mapping[Threads, int] = field(default_factory=dict)
    twins: Mapping[Group, Twins] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function with its plan: what both backends read."""

    function: Function
    plan: Plan
