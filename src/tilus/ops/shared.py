# SPDX-License-Identifier: Apache-2.0
"""Copies between shared memory and registers.

Any register layout meets any shared layout: where each register of each thread lies is computed
with both layouts' own index maths, and the widest access that fits all of them is taken. 8x8
matrices of 16-bit elements, as ``mma`` wants them, move by ``ldmatrix`` and ``stmatrix``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tilus.banks import Access, access, vectors
from tilus.dtypes import uint32
from tilus.ir import (
    Const,
    Constraints,
    Emitter,
    Expr,
    Instruction,
    Machine,
    RegisterTensor,
    SharedTensor,
    Site,
    Var,
    cast,
    reads,
    writes,
)
from tilus.layout import RegisterLayout
from tilus.ops.cluster import MAP

Direction = Literal["load", "store"]

LOAD = """\
template <class T> __device__ __forceinline__ void {name}(T *x, unsigned address) {{
  {word} w[{count}];
  asm volatile("{form} {places}, [%{count}];"
               : {words} : "r"(address) : "memory");
  memcpy(x, w, {nbytes});
}}"""

STORE = """\
template <class T> __device__ __forceinline__ void {name}(const T *x, unsigned address) {{
  {word} w[{count}];
  memcpy(w, x, {nbytes});
  asm volatile("{form} [%{count}], {places};"
               :: {words}, "r"(address) : "memory");
}}"""

FORMS = {16: (4, "v4.b32"), 8: (2, "v2.b32"), 4: (1, "b32"), 2: (1, "b16"), 1: (1, "b8")}
"""Bytes of an access: how many registers it takes, and its type in PTX."""


def helper(direction: Direction, access: Access, peer: bool = False) -> tuple[str, str]:
    """Return the name and the text of the device function that carries out an access, of the shared
    memory of a ``peer`` or of the own; PTX ISA, "ld", "st", "ldmatrix", "stmatrix"."""
    if access.matrices:
        count, trans = access.registers // 2, access.matrices == "trans"
        op = "ldmatrix" if direction == "load" else "stmatrix"
        form = f"{op}.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
        name = f"{direction}_matrices_{count}{'_trans' if trans else ''}"
        return name, _function(direction, name, form, count, 4 * count)
    count, kind = FORMS[access.width]
    op, window = "ld" if direction == "load" else "st", "::cluster" if peer else ""
    form = f"{op}.shared{window}.{kind}"
    name = f"{direction}{'_peer' if peer else ''}_{access.width}"
    return name, _function(direction, name, form, count, access.width)


def _function(direction: Direction, name: str, form: str, count: int, nbytes: int) -> str:
    load, word = direction == "load", "unsigned" if nbytes >= 4 else "unsigned short"
    operand = ("=" if load else "") + ("r" if nbytes >= 4 else "h")
    return (LOAD if load else STORE).format(
        name=name,
        form=form,
        count=count,
        nbytes=nbytes,
        word=word,
        places=f"{{{', '.join(f'%{i}' for i in range(count))}}}",
        words=", ".join(f'"{operand}"(w[{i}])' for i in range(count)),
    )


def distance(first: np.ndarray, other: np.ndarray) -> tuple[int, int] | None:
    """Return x and d with ``other == (first ^ x) + d`` for every thread, or None.

    A swizzle is an exclusive or of address bits, so that most addresses of a thread differ from its
    first by constants.
    """
    for bits in (0, *range(5, 16)):
        x = int(first.flat[0] ^ other.flat[0]) & ((1 << bits) - 1)
        d = int(other.flat[0]) - int(first.flat[0] ^ x)
        if np.array_equal((first ^ x) + d, other):
            return x, d
    return None


@dataclass(frozen=True)
class Copy:
    """The code that moves a register tile to or from a tile of shared memory."""

    e: Emitter
    direction: Direction
    shared: SharedTensor
    registers: RegisterTensor

    def emit(self) -> None:
        """Write one line an access, behind what all of them share."""
        e, way = self.e, self._access()
        function, text = helper(self.direction, way, self.shared.rank is not None)
        e.helper(text)
        tile, t = self._variable("tile", self._begin()), self._variable("t", e.thread())
        addresses = way.addresses(self._places())
        name, first = e.registers(self.registers), self._address(way, t, 0)
        for i in range(addresses.shape[-1]):
            at, apart = first, distance(addresses[..., 0], addresses[..., i])
            if apart is None:
                at, apart = self._address(way, t, i * way.registers), (0, 0)
            text = f"({at} ^ {apart[0]})" if apart[0] else at
            text += f" + {apart[1]}" if apart[1] else ""
            to = f"{name} + {i * way.registers}" if i else name
            e.line(f"{function}({to}, {e.expr(tile)} + {text});")

    @property
    def layout(self) -> RegisterLayout:
        """Where the elements of the register tile live."""
        return self.e.register_layout(self.registers)

    def _access(self) -> Access:
        # Tiles that follow one another stay aligned: they are made of whole accesses.
        if self.shared.rank is not None:  # matrices move within a block
            return vectors(self._places(), self.shared.dtype.nbytes)
        return access(self._places(), self.shared.dtype.nbytes, begin=self.e.threads.begin)

    def _begin(self) -> str:
        """Return the address of the tile, in the block that has it."""
        address, rank = self.e.shared(self._tile()), self.shared.rank
        if rank is None:
            return address
        self.e.helper(MAP)
        return f"map_shared({address}, {self.e.expr(cast(rank, uint32))})"

    def _tile(self) -> SharedTensor:
        """Return the whole tile that the tensor is, or lies in as a row."""
        tensor, size = self.shared, self._tile_size
        return replace(tensor, offset=tensor.offset // size * size) if self._is_row else tensor

    @property
    def _tile_size(self) -> int:
        layout = self.e.shared_layout(self.shared)
        return layout.rows * layout.shape[-1]

    @property
    def _is_row(self) -> bool:
        return len(self.shared.shape) < len(self.e.shared_layout(self.shared).shape)

    def _places(self) -> np.ndarray:
        """Return where each register lies [threads, registers]; for a row of a tile once for each
        of its rows."""
        tile = self.e.shared_layout(self.shared)
        index = list(np.moveaxis(self.layout.coordinates(), -1, 0))
        first_row = np.arange(tile.rows)[:, None, None] if self._is_row else 0
        found: np.ndarray = tile.offset(*self._in_tile(index, first_row))
        return found

    def _in_tile(self, index: list[Any], first_row: Any) -> tuple[Any, Any]:
        """Return row and column in the tile of the element at ``index`` of the tensor."""
        row, column = index if len(index) == 2 else (first_row, index[0])
        return (column, row) if self.shared.transposed else (row, column)

    def _address(self, way: Access, t: Var, start: int) -> str:
        """Write the address, from the tile's start, of the access that begins at register
        ``start``; return its name."""
        tile, last = self.e.shared_layout(self.shared), len(self.layout.shape) - 1
        thread = self._constant("named", way.thread(t))
        register = self._constant("first", way.register(t) + start)
        index: list[Any] = []
        for dim in range(last + 1):
            text = self._coordinate(dim, thread, register)
            index.append(self._variable("at_row" if dim < last else "at_column", text))
        first_row = cast(self.shared.offset % self._tile_size // tile.shape[-1], uint32)
        offset = self._constant("at", tile.linear(*self._in_tile(index, first_row)))
        return self.e.expr(self._constant("swizzled", tile.exchanged(offset)))

    def _variable(self, name: str, text: str) -> Var:
        """Write a constant with the value of a C expression."""
        var = Var(name, uint32)
        self.e.line(f"const unsigned {self.e.expr(var)} = {text};")
        return var

    def _constant(self, name: str, x: Expr) -> Expr:
        """Give ``x`` a name where it is more than one already."""
        return x if isinstance(x, Const | Var) else self._variable(name, self.e.expr(x))

    def _coordinate(self, dim: int, thread: Expr, register: Expr) -> str:
        """Return a coordinate of the element in ``register`` of ``thread``; layouts begin at 0."""
        text = self.layout.text(dim, "thread", self.e.expr(thread))
        if isinstance(register, Const) and register.value == 0:
            return text
        return f"{text} + {self.layout.text(dim, 'register', self.e.expr(register))}"


def _rank(m: Machine, tensor: SharedTensor) -> int | None:
    """Return whose shared memory a tensor is in, None for the block's own."""
    return None if tensor.rank is None else int(m.value(tensor.rank))


def _verify(op: Instruction, name: str, tensor: SharedTensor) -> None:
    rank = len(tensor.shape)
    rule = "a tile of one or two dimensions (index the leading ones)"
    op.require(rank <= 2, name, rule, f"{rank} dimensions")


@dataclass(frozen=True, eq=False, kw_only=True)
class load_shared(Instruction):
    """Read the tile ``src`` from shared memory into registers of the current threads.

    ``src`` has one or two dimensions and may be a transposed view, or what another block has there
    (:class:`~tilus.ops.cluster.map_shared_addr`). Other threads' writes to it are seen once a
    barrier lies between them and this.

    NumPy: out = src.copy()
    PTX:   ld.shared; ldmatrix for operands of mma
    """

    effects = (reads("src"), writes("out"))
    peers = True
    src: SharedTensor
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        src = arguments["src"]
        return RegisterTensor(site.name, src.dtype, src.shape, site.threads)

    def verify(self) -> None:
        _verify(self, "src", self.src)

    def constrain(self, c: Constraints) -> None:
        c.touched(self.src, self.out)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        Copy(e, "load", self.src, self.out).emit()

    def simulate(self, m: Machine) -> None:
        rank = _rank(m, self.src)
        m.define(self.out, m.load_shared(self.src, rank=rank, by=self.out))


@dataclass(frozen=True, eq=False, kw_only=True)
class store_shared(Instruction):
    """Write the register tile ``src`` to the tile ``dst`` of shared memory.

    Both have the same shape and type; ``dst`` may be a transposed view, or what another block has
    there (:class:`~tilus.ops.cluster.map_shared_addr`). Other threads see the values once a barrier
    lies between this and them.

    NumPy: dst[...] = src
    PTX:   st.shared; stmatrix for fragments of mma
    """

    effects = (reads("src"), writes("dst"))
    peers = True
    dst: SharedTensor
    src: RegisterTensor

    def verify(self) -> None:
        _verify(self, "dst", self.dst)
        shape, dtype, held = self.dst.shape, self.dst.dtype, self.src.threads
        self.require(
            self.src.shape == shape, "src", f"of shape {list(shape)}", list(self.src.shape)
        )
        self.require(self.src.dtype == dtype, "src", f"of type {dtype}", self.src.dtype)
        rule = "spread over the registers of the current group"
        self.require(not self.src.replicated, "src", rule, "a tensor that each thread holds whole")
        self.require(held == self.threads, "src", f"held by {self.threads.role}", held.role)

    def constrain(self, c: Constraints) -> None:
        c.touched(self.dst, self.src)

    def emit(self, e: Emitter) -> None:
        Copy(e, "store", self.dst, self.src).emit()

    def simulate(self, m: Machine) -> None:
        rank = _rank(m, self.dst)
        m.store_shared(self.dst, m.registers(self.src), rank=rank, by=self.src)
