# SPDX-License-Identifier: Apache-2.0
"""Run-time scalar values: expression nodes, the operator table both backends read, and evaluation.

A Python operator on an expression builds a node; constants fold at once. All scalars are uniform
within a thread group, since the language has no thread index. Integers follow Python: ``//`` and
``%`` floor, a comparison of a signed with an unsigned value compares the numbers, a boolean counts
as 0 or 1. Unsigned results wrap to the width of their type. Signed ones must fit: CUDA's compiler
reckons with that (it takes ``x + 1 > x`` for true), so :func:`evaluate` refuses what does not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from tilus.dtypes import DType, boolean, float32, int32, int64

if TYPE_CHECKING:
    from tilus.ir.tensor import RegisterTensor

Scalar = int | float | bool
ExprLike = Union["Expr", int, float, bool]


@dataclass(frozen=True)
class Operator:
    """One row of the operator table.

    ``python`` computes it on Python numbers, ``cuda`` is a format string over operand texts,
    ``floor`` a second one for signed operands that may be negative, ``logical`` marks results that
    are booleans.
    """

    symbol: str
    python: Callable[..., Any]
    cuda: str
    logical: bool = False
    floor: str | None = None


def unsigned_divmod(a: int, b: int) -> tuple[int, int]:
    """Return quotient and remainder of int32 values whose author has promised a >= 0 and b > 0."""
    if a < 0 or b < 1:
        raise ArithmeticError(
            f"fast_divmod: a must be at least 0 and b at least 1, got {a} and {b}"
        )
    return divmod(a, b)


OPERATORS: dict[str, Operator] = {
    row.symbol: row
    for row in (
        Operator("+", operator.add, "({0} + {1})"),
        Operator("-", operator.sub, "({0} - {1})"),
        Operator("*", operator.mul, "({0} * {1})"),
        Operator("/", operator.truediv, "({0} / {1})"),
        Operator("//", operator.floordiv, "({0} / {1})", floor="floor_div({0}, {1})"),
        Operator("%", operator.mod, "({0} % {1})", floor="floor_mod({0}, {1})"),
        Operator("udiv", lambda a, b: unsigned_divmod(a, b)[0], "(int)((unsigned){0} / {1})"),
        Operator("umod", lambda a, b: unsigned_divmod(a, b)[1], "(int)((unsigned){0} % {1})"),
        Operator("<<", operator.lshift, "({0} << {1})"),
        Operator(">>", operator.rshift, "({0} >> {1})"),
        Operator("&", operator.and_, "({0} & {1})"),
        Operator("|", operator.or_, "({0} | {1})"),
        Operator("^", operator.xor, "({0} ^ {1})"),
        Operator("<", operator.lt, "({0} < {1})", logical=True),
        Operator("<=", operator.le, "({0} <= {1})", logical=True),
        Operator(">", operator.gt, "({0} > {1})", logical=True),
        Operator(">=", operator.ge, "({0} >= {1})", logical=True),
        Operator("==", operator.eq, "({0} == {1})", logical=True),
        Operator("!=", operator.ne, "({0} != {1})", logical=True),
        Operator("and", lambda a, b: bool(a) and bool(b), "({0} && {1})", logical=True),
        Operator("or", lambda a, b: bool(a) or bool(b), "({0} || {1})", logical=True),
        Operator("min", min, "({0} < {1} ? {0} : {1})"),
        Operator("max", max, "({0} > {1} ? {0} : {1})"),
        Operator("neg", operator.neg, "(-{0})"),
        Operator("invert", operator.invert, "(~{0})"),
        Operator("not", operator.not_, "(!{0})", logical=True),
    )
}


class NoArray:
    """A value of the kernel that is being built.

    NumPy would take it for an object without elements; its functions are refused.
    """

    __array_ufunc__ = None

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        raise TypeError(
            f"NumPy runs while the kernel is built and cannot take {describe(self)}; use the "
            "instructions and operators of the language"
        )


class Expr(NoArray):
    """A run-time scalar.

    Python operators build larger expressions; ``bool(expr)`` is refused.
    """

    dtype: DType

    def __add__(self, other: ExprLike) -> Expr:
        return apply("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return apply("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return apply("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return apply("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return apply("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return apply("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return apply("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return apply("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return apply("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return apply("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return apply("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return apply("%", other, self)

    def __divmod__(self, other: ExprLike) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __rdivmod__(self, other: ExprLike) -> tuple[Expr, Expr]:
        return other // self, other % self

    def __pow__(self, exponent: object) -> Expr:
        if type(exponent) is not int or exponent < 0:
            what = "a run-time value" if isinstance(exponent, Expr) else repr(exponent)
            rule = "the exponent of a run-time value must be a compile-time integer of at least 0"
            raise TypeError(f"{rule}, got {what}; write 1 << n for 2 ** n, or a loop")
        return power(self, exponent)

    def __rpow__(self, base: object) -> Expr:
        raise TypeError(
            f"the exponent in {base} ** n must be a compile-time integer, got a run-time value; "
            "write 1 << n for 2 ** n, or a loop"
        )

    def __abs__(self) -> Expr:
        x = cast(self, int32) if self.dtype == boolean else self
        return x if x.dtype.kind == "u" else apply("max", x, -x)

    def __lshift__(self, other: ExprLike) -> Expr:
        return apply("<<", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return apply("<<", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return apply(">>", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return apply(">>", other, self)

    def __and__(self, other: ExprLike) -> Expr:
        return apply("&", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return apply("&", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return apply("|", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return apply("|", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return apply("^", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return apply("^", other, self)

    def __getitem__(self, index: object) -> Expr:
        raise TypeError(f"a run-time value ({self.dtype}) is one number and has no elements")

    def __lt__(self, other: ExprLike) -> Expr:
        return apply("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return apply("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return apply(">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return apply(">=", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("==", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("!=", self, other)  # type: ignore[arg-type]

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __invert__(self) -> Expr:
        return apply("invert", self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "a run-time value has no truth value while the kernel is being built; "
            "write an if statement or a loop in the kernel"
        )

    def __index__(self) -> int:
        raise TypeError(
            "a run-time value cannot be used where Python needs a compile-time integer; "
            "annotate the parameter with int, or use the operators of the language"
        )


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number known while the kernel is built."""

    value: Scalar
    dtype: DType


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A run-time variable or parameter; two variables of one name are two variables."""

    name: str
    dtype: DType


@dataclass(frozen=True, eq=False)
class Operation(Expr):
    """An operator of :data:`OPERATORS` on one or two operands, which already have the type the
    operator works in."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Select(Expr):
    """``a if cond else b``; only the chosen side is evaluated."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: DType


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    """``x`` converted to ``dtype``: integers wrap, floats to integers truncate toward zero.

    ``exact``: nobody has asked for it by name, so that a signed result must be the value of ``x``.
    """

    x: Expr
    dtype: DType
    exact: bool = False


@dataclass(frozen=True, eq=False)
class Builtin(Expr):
    """A value the hardware provides: ``blockIdx.x``, ``gridDim.y``, ``clusterRank``."""

    name: str
    dtype: DType = int32


@dataclass(frozen=True)
class Dim3:
    """``self.blockIdx`` and its like."""

    x: Expr
    y: Expr
    z: Expr

    @classmethod
    def builtin(cls, name: str) -> Dim3:
        """Return the three values the hardware provides under ``name``."""
        return cls(*(Builtin(f"{name}.{axis}") for axis in "xyz"))


@dataclass(frozen=True, eq=False)
class Element(Expr):
    """One element of a small register tensor that every thread holds whole (phases, counters)."""

    tensor: RegisterTensor
    index: Expr
    dtype: DType


def wrap(value: Scalar, dtype: DType) -> Scalar:
    """Return ``value`` as a value of ``dtype``: integers modulo 2**bits, float32 rounded."""
    kind, bits = dtype.kind, dtype.bits
    if kind == "b":
        return bool(value)
    if kind == "f":
        with np.errstate(over="ignore"):  # what is too large becomes infinity
            return float(dtype.numpy(value)) if bits < 64 else float(value)  # type: ignore
    n = int(value) & ((1 << bits) - 1)
    return n - (1 << bits) if kind == "i" and n >> (bits - 1) else n


def as_expr(value: ExprLike, like: DType | None = None) -> Expr:
    """Return ``value`` as an expression; a bare number takes the type ``like`` if it fits there."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return Const(value, boolean)
    if isinstance(value, int):
        for dtype in (like, int32, int64):
            if dtype is not None and dtype.kind in "iu" and wrap(value, dtype) == value:
                return Const(value, dtype)
            if dtype is not None and dtype.is_float:
                return Const(float(value), dtype)
        raise TypeError(f"the integer {value} does not fit in 64 bits")
    if isinstance(value, float):
        dtype = like if like is not None and like.is_float else float32
        return Const(wrap(value, dtype), dtype)
    raise TypeError(f"a run-time value needs a number beside it, got {describe(value)}")


def describe(value: object) -> str:
    """Name ``value`` in a message."""
    if isinstance(value, Expr):
        return f"a run-time value ({value.dtype})"
    if isinstance(value, tuple | list):
        parts = ", ".join(map(describe, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    plain = isinstance(value, int | float | str | np.generic | DType | None)
    return repr(value) if plain else f"a {type(value).__name__}"


def as_integer(value: ExprLike, what: str) -> Expr:
    """Return an expression for a place or a size; :class:`TypeError` if it is no integer."""
    x = as_expr(value)
    if x.dtype.is_float:
        raise TypeError(f"{what} must be an integer, got {describe(value)}; cast with int32(x)")
    return x


def common_dtype(a: DType, b: DType) -> DType:
    """Return the type two operands are brought to: the wider one, a float over an integer, int64
    where a signed one does not hold the unsigned other."""
    if a == b:
        return int32 if a.kind == "b" else a
    if a.is_float or b.is_float:
        return max((t for t in (a, b) if t.is_float), key=lambda t: t.bits)
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    if "b" in (a.kind, b.kind):
        return b if a.kind == "b" else a
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise TypeError(f"{a} and {b} have no common integer type; cast one of them")
    return int64


def cast(x: ExprLike, dtype: DType, exact: bool = False) -> Expr:
    """Return ``x`` converted to ``dtype``; ``exact`` as in :class:`Cast`."""
    x = as_expr(x, dtype)
    if x.dtype == dtype:
        return x
    if dtype.is_float and dtype.bits == 16 and not isinstance(x, Const):
        raise TypeError(f"a number cannot be {dtype} at run time; take float32, or a register tile")
    if isinstance(x, Const):
        return Const(convert(x.value, dtype, exact), dtype)
    return Cast(x, dtype, exact)


def convert(value: Scalar, dtype: DType, exact: bool = False) -> Scalar:
    """Return a number as one of ``dtype``.

    Raises :class:`ArithmeticError` where no hardware has an answer: a float beyond the integers of
    ``dtype``; a signed integer that does not fit where the conversion must be ``exact``.
    """
    whole = math.trunc(value) if dtype.is_integer else value
    result = wrap(whole, dtype)
    strict = isinstance(value, float) or (exact and dtype.kind == "i")
    if strict and dtype.is_integer and whole != result:
        raise OverflowError(f"a value of {dtype} must fit, got {value}")
    return result


def apply(op: str, *operands: ExprLike) -> Expr:
    """Build ``op`` on the operands: bring them to their common type, fold constants, drop neutral
    elements."""
    row = OPERATORS[op]
    likes = [x.dtype for x in operands if isinstance(x, Expr)]
    args = [as_expr(x, likes[0] if likes else None) for x in operands]
    dtype = _operand_type(op, args)
    _check_types(op, args, dtype)
    if op in ("<<", ">>"):  # the count keeps its type, which may be the wider one
        count = cast(args[1], int32) if args[1].dtype == boolean else args[1]
        args = [cast(args[0], dtype), count]
    else:
        args = [truth(x) if dtype == boolean else cast(x, dtype) for x in args]
    if isinstance(args[-1], Const) and op in CHECKED:
        check_right(op, args[-1].value, dtype)
    result = boolean if row.logical else dtype
    if all(isinstance(x, Const) for x in args):
        return Const(compute(op, [x.value for x in args], result), result)  # type: ignore[attr-defined]
    simple = neutral(op, args, dtype)
    return Operation(op, tuple(args), result) if simple is None else simple


def _operand_type(op: str, args: Sequence[Expr]) -> DType:
    """Return the type that ``op`` works on."""
    if op in ("and", "or", "not"):
        return boolean
    if op in ("<<", ">>", "neg", "invert"):
        return int32 if args[0].dtype == boolean else args[0].dtype
    if op in ("&", "|", "^") and all(x.dtype == boolean for x in args):
        return boolean
    return reduce(common_dtype, (x.dtype for x in args))


def _check_types(op: str, args: Sequence[Expr], dtype: DType) -> None:
    """Raise :class:`TypeError` where Python's ``op`` is another one, or has no such operands."""
    if op == "/" and not dtype.is_float:
        raise TypeError(
            "'/' on integers makes a float in Python; write '//' for the integer quotient"
        )
    floats = [x.dtype for x in args if x.dtype.is_float]
    if op in ("//", "%", "<<", ">>", "&", "|", "^", "invert") and floats:
        raise TypeError(f"'{op}' needs integers, got {floats[0]}; cast with int32(x)")


def power(base: Expr, exponent: int) -> Expr:
    """Build ``base ** exponent`` from products, the fewer the more factors are alike."""
    base = cast(base, int32) if base.dtype == boolean else base
    if exponent < 2:
        return base if exponent else cast(1, base.dtype)
    half = power(base, exponent // 2)
    square = half * half
    return square * base if exponent % 2 else square


def compute(op: str, values: Sequence[Scalar], dtype: DType) -> Scalar:
    """Return ``op`` on numbers as a value of ``dtype``.

    Raises :class:`ArithmeticError` where the hardware and Python part: a division by zero, a signed
    result that does not fit, a shift by less than nothing or by the whole width.
    """
    if op in CHECKED:
        check_right(op, values[1], dtype)
    value = OPERATORS[op].python(*values)
    result = wrap(value, dtype)
    if dtype.kind == "i" and value != result:
        raise OverflowError(f"the result of '{op}' must fit in {dtype}, got {value}")
    return result


CHECKED = frozenset({"<<", ">>", "/", "//", "%"})


def check_right(op: str, value: Scalar, dtype: DType) -> None:
    """Raise :class:`ArithmeticError` for a divisor or a count that no value can stand beside."""
    if op in ("<<", ">>") and not 0 <= value < dtype.bits:
        raise OverflowError(f"a shift of {dtype} must be by 0 to {dtype.bits - 1}, got {value}")
    if op in ("/", "//", "%") and value == 0:
        raise ZeroDivisionError(f"the right side of '{op}' must not be 0")


def neutral(op: str, args: list[Expr], dtype: DType) -> Expr | None:
    """Return what ``x + 0``, ``x * 1``, ``x // 1`` and ``x % 1`` are without the operator, or
    None."""
    if len(args) != 2 or dtype.is_float:
        return None
    a, b = args
    if dtype == boolean:
        return _neutral_truth(op, a, b)
    left = a.value if isinstance(a, Const) else None
    right = b.value if isinstance(b, Const) else None
    if (op == "+" and left == 0) or (op == "*" and left == 1):
        return b
    if (right == 0 and op in ("+", "-", "<<", ">>", "^", "|")) or (
        right == 1 and op in ("*", "//")
    ):
        return a
    if (right == 1 and op == "%") or (op == "*" and 0 in (left, right)):
        return Const(0, dtype)
    return None


def _neutral_truth(op: str, a: Expr, b: Expr) -> Expr | None:
    """Fold a constant side of ``and``, ``or``, ``&`` and ``|``."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Const) and op in ("and", "&", "or", "|"):
            decides = bool(one.value) == (op in ("or", "|"))
            return one if decides and one is a else None if decides else other
    return None


def truth(x: Expr) -> Expr:
    """Return ``x`` as a boolean: a number is true where it is not zero."""
    return x if x.dtype == boolean else apply("!=", x, 0)


def select(cond: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """Build ``a if cond else b`` on the common type of both sides."""
    likes = [x.dtype for x in (a, b) if isinstance(x, Expr)]
    ea, eb = (as_expr(x, likes[0] if likes else None) for x in (a, b))
    dtype = ea.dtype if ea.dtype == eb.dtype else common_dtype(ea.dtype, eb.dtype)
    return Select(truth(cond), cast(ea, dtype), cast(eb, dtype), dtype)


def children(x: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of ``x``."""
    match x:
        case Operation(args=args):
            return args
        case Select(cond=c, a=a, b=b):
            return (c, a, b)
        case Cast(x=inner):
            return (inner,)
        case Element(index=index):
            return (index,)
    return ()


Lookup = Callable[[Expr], Scalar]


def evaluate(x: ExprLike, lookup: Lookup | Mapping[Expr, Scalar]) -> Scalar:
    """Compute ``x``; ``lookup`` gives the values of variables, builtins and register elements.

    The launcher computes grids and tensor maps with it, the simulator every scalar of a kernel.
    Raises :class:`ArithmeticError` as :func:`compute` does.
    """
    if not isinstance(x, Expr):
        return x
    return _rule(x)(lookup if callable(lookup) else lookup.__getitem__)


@lru_cache(maxsize=4096)  # the simulator computes the same ones again and again
def _rule(x: Expr) -> Callable[[Lookup], Scalar]:
    """Return how ``x`` is computed."""
    match x:
        case Const(value=value):
            return lambda get: value
        case Operation(op=op, args=args, dtype=dtype):
            rules = [_rule(a) for a in args]
            if op == "and":
                return lambda get: all(rule(get) for rule in rules)
            if op == "or":
                return lambda get: any(rule(get) for rule in rules)
            return lambda get: compute(op, [rule(get) for rule in rules], dtype)
        case Select(cond=cond, a=a, b=b):
            choose, yes, no = map(_rule, (cond, a, b))
            return lambda get: yes(get) if choose(get) else no(get)
        case Cast(x=inner, dtype=dtype, exact=exact):
            uncast = _rule(inner)
            return lambda get: convert(uncast(get), dtype, exact)
    return lambda get: get(x)
