# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on register tiles, element by element, with the broadcasting of NumPy.

Tiles of one instruction have one type; a number beside them takes it. Integers wrap, a division by
zero gives 0 as in NumPy, shifts by the width or more leave nothing. float32 is IEEE, save that
CUDA's compiler may fuse a product and a sum into one rounding, and that ``exp``, ``exp2``, ``log``
and ``rsqrt`` may be off by two units in the last place.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import abs as magnitude
from typing import Any, ClassVar

import numpy as np

from tilus import ir
from tilus.dtypes import DType, boolean
from tilus.errors import LanguageError
from tilus.ir import (
    Const,
    Constraints,
    Emitter,
    Expr,
    Instruction,
    Machine,
    RegisterTensor,
    Site,
    reads,
    wrap,
    writes,
)
from tilus.ops import numbers
from tilus.ops.operators import (
    KINDS,
    TABLE,
    Operand,
    Row,
    adopted,
    common_shape,
    element,
    element_type,
)


class _Elementwise(Instruction):
    """What all of them share: operands that broadcast, and a row of the table."""

    symbol: ClassVar[str]
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        symbol = arguments.get("op", getattr(cls, "symbol", ""))
        operands = [v for k, v in arguments.items() if k != "op" and v is not None]
        shape = common_shape(symbol, operands, site)
        values = [v for k, v in arguments.items() if k not in ("op", "cond") and v is not None]
        dtype = boolean if TABLE[symbol].logical else element_type(values)
        return RegisterTensor(site.name, dtype, shape, site.threads)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tiles and numbers, in the operator's order."""
        names = [n for n in self.parameters() if n != "op"]
        return tuple(x for x in (getattr(self, n) for n in names) if x is not None)

    @property
    def dtype(self) -> DType:
        """The type that the operator works on."""
        return element_type(self.operands)

    @property
    def typed(self) -> list[tuple[Operand, DType]]:
        """The operands, each with the type it must have."""
        return [(x, self.dtype) for x in self.operands]

    @property
    def row(self) -> Row:
        """The operator's row of the table."""
        return TABLE[self.operator]

    @property
    def operator(self) -> str:
        """The key of the row."""
        return self.symbol

    def verify(self) -> None:
        role = self.threads.role
        for x, dtype in self.typed:
            if isinstance(x, RegisterTensor):
                self.require(x.threads == self.threads, x.name, f"held by {role}", x.threads.role)
                self.require(x.dtype == dtype, x.name, f"of type {dtype}", x.dtype)
            else:
                adopted(self.operator, x, dtype)
        if self.row.text(self.dtype) is None:
            known = [name for t, name in KINDS if self.row.text(t) is not None]
            rule = f"'{self.operator}' takes tiles of {' or '.join(known)}, got {self.dtype}"
            hint = "write '//', or convert them" if self.operator == "/" else "convert them"
            raise LanguageError(f"{rule}; {hint} with self.cast(tile, dtype=...)")

    def constrain(self, c: Constraints) -> None:
        for x in self.operands:
            if isinstance(x, RegisterTensor):
                c.like(x, self.out)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        if self.row.helper:
            e.helper(self.row.helper)
        texts = [self._text(e, x, dtype) for x, dtype in self.typed]
        value = self.row.code(numbers.wide(self.dtype), *texts)
        if not self.row.logical:
            value = numbers.rounded(e, value, self.dtype)
        count = e.register_layout(self.out).registers
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {e.registers(self.out)}[r] = {value};")

    def _text(self, e: Emitter, x: Operand, dtype: DType) -> str:
        """Return an operand's element for register ``r`` of the result."""
        if isinstance(x, RegisterTensor):
            return numbers.widened(e, element(e, x, self.out), dtype)
        value = adopted(self.operator, x, dtype)
        text = numbers.scalar(e, value, dtype)
        if isinstance(value, Const):
            return text
        name = e.fresh("scalar")
        e.line(f"const {numbers.wide(dtype).cpp} {name} = {text};")
        return name

    def simulate(self, m: Machine) -> None:
        arrays = [self._array(m, x, dtype) for x, dtype in self.typed]
        with np.errstate(all="ignore"):
            values = np.asarray(self.row.numpy(*arrays))
        m.define(self.out, numbers.convert(values, self.out.dtype))

    def _array(self, m: Machine, x: Operand, dtype: DType) -> np.ndarray:
        if isinstance(x, RegisterTensor):
            return m.registers(x).astype(numbers.wide(dtype).numpy)
        value = wrap(m.value(adopted(self.operator, x, dtype)), dtype)
        return np.asarray(value, dtype.numpy).astype(numbers.wide(dtype).numpy)


@dataclass(frozen=True, eq=False, kw_only=True)
class operate(_Elementwise):
    """Carry out an operator of Python on tiles: ``a + b``, ``-x``, ``x < 0``, ``abs(x)``.

    Kernels write the operator itself. ``+ - * < <= == != >= >`` and ``abs`` take floats and
    integers, ``/`` floats, ``// % << >>`` integers, ``& | ^ ~`` integers and booleans.

    NumPy: out = a op b
    PTX:   add, sub, mul, div, rem, shl, shr, and, or, xor, not, neg, abs, setp
    """

    operators = (
        "+", "-", "*", "/", "//", "%", "<<", ">>", "&", "|", "^",
        "<", "<=", ">", ">=", "==", "!=", "neg", "invert", "abs", "max", "min",
    )  # fmt: skip
    effects = (reads("a"), reads("b"), writes("out"))
    op: str
    a: Operand
    b: Operand | None = None
    out: RegisterTensor

    @property
    def operator(self) -> str:
        return self.op


@dataclass(frozen=True, eq=False, kw_only=True)
class where(_Elementwise):
    """Take the elements of ``a`` where ``cond`` is true, and those of ``b`` elsewhere.

    NumPy: out = np.where(cond, a, b)
    PTX:   selp
    """

    symbol = "where"
    effects = (reads("cond"), reads("a"), reads("b"), writes("out"))
    cond: Operand
    a: Operand
    b: Operand
    out: RegisterTensor

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        cond, a, b = (arguments[n] for n in ("cond", "a", "b"))
        if any(isinstance(x, RegisterTensor) for x in (cond, a, b)):
            return None
        return ir.select(cond, a, b) if isinstance(cond, Expr) else a if cond else b

    @property
    def dtype(self) -> DType:
        return element_type((self.a, self.b))

    @property
    def typed(self) -> list[tuple[Operand, DType]]:
        return [(self.cond, boolean), (self.a, self.dtype), (self.b, self.dtype)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Binary(_Elementwise):
    """A function of two operands; of two numbers it is Python's."""

    effects = (reads("a"), reads("b"), writes("out"))
    a: Operand
    b: Operand
    out: RegisterTensor

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        a, b = arguments["a"], arguments["b"]
        if isinstance(a, int | float) and isinstance(b, int | float):
            return {"max": max, "min": min}[cls.symbol](a, b)
        return None if RegisterTensor in (type(a), type(b)) else ir.apply(cls.symbol, a, b)


@dataclass(frozen=True, eq=False, kw_only=True)
class maximum(_Binary):
    """Take the larger of two elements; NaN where one is NaN.

    NumPy: out = np.maximum(a, b)
    PTX:   max
    """

    symbol = "max"


@dataclass(frozen=True, eq=False, kw_only=True)
class minimum(_Binary):
    """Take the smaller of two elements; NaN where one is NaN.

    NumPy: out = np.minimum(a, b)
    PTX:   min
    """

    symbol = "min"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Unary(_Elementwise):
    """A function of one tile."""

    effects = (reads("x"), writes("out"))
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class abs(_Unary):
    """Take the magnitude of every element.

    NumPy: out = np.abs(x)
    PTX:   abs
    """

    symbol = "abs"

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        x = arguments["x"]
        return magnitude(x) if isinstance(x, Expr | int | float) else None


@dataclass(frozen=True, eq=False, kw_only=True)
class square(_Unary):
    """Multiply every element by itself.

    NumPy: out = np.square(x)
    PTX:   mul
    """

    symbol = "square"


@dataclass(frozen=True, eq=False, kw_only=True)
class exp(_Unary):
    """Raise e to every element.

    NumPy: out = np.exp(x)
    PTX:   ex2.approx, of the argument times log2(e)
    """

    symbol = "exp"


@dataclass(frozen=True, eq=False, kw_only=True)
class exp2(_Unary):
    """Raise 2 to every element.

    NumPy: out = np.exp2(x)
    PTX:   ex2.approx
    """

    symbol = "exp2"


@dataclass(frozen=True, eq=False, kw_only=True)
class log(_Unary):
    """Take the natural logarithm of every element.

    NumPy: out = np.log(x)
    PTX:   lg2.approx, fma
    """

    symbol = "log"


@dataclass(frozen=True, eq=False, kw_only=True)
class sqrt(_Unary):
    """Take the square root of every element.

    NumPy: out = np.sqrt(x)
    PTX:   sqrt.rn
    """

    symbol = "sqrt"


@dataclass(frozen=True, eq=False, kw_only=True)
class rsqrt(_Unary):
    """Divide 1 by the square root of every element.

    NumPy: out = 1 / np.sqrt(x)
    PTX:   rsqrt.approx
    """

    symbol = "rsqrt"
