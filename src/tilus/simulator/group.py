# SPDX-License-Identifier: Apache-2.0
"""Threads that run one body together: their scalars, their registers, their clock."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import Location, SimulationError

if TYPE_CHECKING:
    from tilus.simulator.machine import BlockMachine

Block = tuple[int, int, int]
Key = tuple[int, ...]
"""What names a group or an effect, the same in every order of moves."""


class ThreadGroup:
    """One coroutine: a whole block's, or one forked from another by a ``Group`` statement.

    ``lane`` names the group in traces; parts of a warp (``single_thread``) stay in the lane of the
    group around them. ``thread``: it is no :class:`~tilus.simulator.engines.Effect`.
    """

    thread = True

    def __init__(self, threads: ir.Threads, location: Location, parent: ThreadGroup | None) -> None:
        self.threads, self.location, self.parent = threads, location, parent
        self.key: Key = parent.next_key() if parent else ()
        self._keys = 0
        self.machine: BlockMachine = parent.machine if parent else None  # type: ignore[assignment]
        self.lane: str = parent.lane if parent and threads.count < 32 else threads.role
        self.scalars: dict[ir.Var, ir.Scalar] = {}
        self.builtins: dict[str, ir.Scalar] = {}
        self.registers: dict[ir.RegisterTensor, NDArray[Any]] = {}
        self.coroutine: Generator[ir.Wait | None, None, None]
        self.children: list[ThreadGroup] = []
        self.wait: ir.Wait | None = None
        self.time = 0.0
        self.order = 0
        self.done = self.exited = False
        self.returned: list[ir.Threads] = []

    def fork(self, threads: ir.Threads, location: Location) -> ThreadGroup:
        """Return a new group with copies of scalars and replicated registers; tiles are shared."""
        child = ThreadGroup(threads, location, self)
        child.scalars, child.builtins, child.time = dict(self.scalars), self.builtins, self.time
        child.registers = {t: r.copy() if t.replicated else r for t, r in self.registers.items()}
        self.children.append(child)
        return child

    def next_key(self) -> Key:
        """Return the key of the next group or effect that comes of this one."""
        self._keys += 1
        return *self.key, self._keys

    def value(self, x: ir.ExprLike) -> ir.Scalar:
        """Compute a scalar."""
        try:
            return ir.evaluate(x, self._lookup)
        except (ArithmeticError, ValueError) as error:  # ValueError: an integer made of a NaN
            raise SimulationError("protocol", f"{self.location}: {error}") from error

    def _lookup(self, x: ir.Expr) -> ir.Scalar:
        if x in self.scalars:
            return self.scalars[x]  # type: ignore[index]
        match x:
            case ir.Builtin() if x.name in self.builtins:
                return self.builtins[x.name]
            case ir.Element():
                values = self.tile(x.tensor)
                return values[self.element(x.tensor, x.index)].item()  # type: ignore[no-any-return]
        name = getattr(x, "name", type(x).__name__)
        raise SimulationError("not modelled", f"{self.location}: the value of {name}", name=name)

    def element(self, tensor: ir.RegisterTensor, index: ir.Expr) -> int:
        """Compute an index into a small replicated tensor."""
        i = int(self.value(index))
        if not 0 <= i < tensor.shape[0]:
            rule = f"must be in 0..{tensor.shape[0] - 1}, got {i}"
            message = f"{self.location}: index of {tensor.name} {rule}"
            raise SimulationError("protocol", message, name=tensor.name, index=i)
        return i

    def tile(self, tensor: ir.RegisterTensor) -> NDArray[Any]:
        """Return the array behind a register tensor; poisoned where it has no value yet."""
        if tensor not in self.registers:
            self.registers[tensor] = poison(tensor.shape, tensor.dtype.numpy)
        return self.registers[tensor]


def poison(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array whose bytes are all 0xFF: NaN for floats, -1 for signed integers."""
    values = np.empty(shape, dtype)
    values.reshape(-1).view(np.uint8)[...] = 0xFF
    return values
