# SPDX-License-Identifier: Apache-2.0
"""Python's functions on numbers, for run-time values too, and those that the language adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tilus import ir
from tilus.dtypes import float32, int8, int16, int32, uint8, uint16
from tilus.errors import LanguageError
from tilus.frontend.scopes import require
from tilus.ir import describe


def minimum(*values: Any) -> ir.Expr:
    """Return the least of run-time values."""
    return _fold("min", values)


def maximum(*values: Any) -> ir.Expr:
    """Return the greatest of run-time values."""
    return _fold("max", values)


def _fold(op: str, values: tuple[Any, ...]) -> ir.Expr:
    first, *rest = values[0] if len(values) == 1 else values
    return reduce(lambda a, b: ir.apply(op, a, b), rest, ir.as_expr(first))


def absolute(x: ir.Expr) -> ir.Expr:
    """Return the magnitude of a run-time value."""
    return abs(x)


def divmod_(a: ir.ExprLike, b: ir.ExprLike) -> tuple[ir.ExprLike, ir.ExprLike]:
    """Return quotient and remainder, which has the sign of the divisor."""
    return a // b, a % b


def power(base: Any, exponent: Any, modulus: object = None) -> Any:
    """Return ``base ** exponent`` by multiplication; the exponent is known while building."""
    require(modulus is None, "the modulus of pow", "left out for run-time values", modulus)
    return base**exponent


def truth(x: ir.Expr) -> ir.Expr:
    """Return whether a run-time value is not zero."""
    return ir.truth(x)


def integer_part(x: ir.Expr) -> ir.Expr:
    """Return a run-time value as an integer: floats lose what is behind the point."""
    return x if x.dtype.is_integer else ir.cast(x, int32)


def to_float(x: ir.Expr) -> ir.Expr:
    """Return a run-time value as a float."""
    return x if x.dtype.is_float else ir.cast(x, float32)


def every(values: Any) -> ir.Expr:
    """Return whether all values are true, some of which are known at run time only."""
    return _truths("and", values)


def some(values: Any) -> ir.Expr:
    """Return whether one of the values is true, some of which are known at run time only."""
    return _truths("or", values)


def _truths(op: str, values: Any) -> ir.Expr:
    start = ir.as_expr(op == "and")
    return reduce(lambda a, b: ir.apply(op, a, ir.truth(ir.as_expr(b))), values, start)


RUNTIME_BUILTINS: dict[Any, Callable[..., Any]] = {
    min: minimum, max: maximum, abs: absolute, divmod: divmod_, pow: power,
    bool: truth, int: integer_part, float: to_float, all: every, any: some,
}  # fmt: skip
"""Python's functions that also work on run-time values, and what they do there."""

INSTEAD: dict[Any, str] = {
    print: "write self.printf",
    str: "write self.printf",
    repr: "write self.printf",
    format: "write self.printf",
    round: "write int(x + 0.5) for x of at least 0",
    complex: "compute with two numbers",
    sorted: "write min and max",
}


def refuse_runtime(function: object) -> None:
    """Refuse a function of Python that would take a run-time value for an ordinary object."""
    name = getattr(function, "__name__", "")
    if function in INSTEAD:
        raise LanguageError(
            f"'{name}' runs while the kernel is built and cannot take a run-time value; "
            f"{INSTEAD[function]}"
        )


def convert(kind: Any, *values: Any) -> ir.Expr:
    """Return ``int32(x)``: a number, known now or at run time, as a value of that type."""
    require(len(values) == 1, f"{kind}(...)", "given one number", f"{len(values)}")
    [x] = values
    number = isinstance(x, ir.Expr) or type(x) in (int, float, bool)
    require(number, f"the operand of {kind}(...)", "a number", f"{describe(x)}; write self.cast")
    return ir.cast(x, kind)


def fast_divmod(a: Any, b: Any) -> tuple[Any, Any]:
    """Return ``a // b`` and ``a % b`` of non-negative int32 values, by one unsigned division.

    Python's ``//`` must look at the signs of its operands; this promises that ``a >= 0`` and
    ``b > 0``, which the simulator checks. A divisor known while the kernel is built becomes a
    multiplication. ``a`` and ``b`` are numbers or run-time values of at most 32 bits.
    """
    if not isinstance(a, ir.Expr) and not isinstance(b, ir.Expr):
        require(a >= 0 and b > 0, "the operands", "a >= 0 and b > 0", f"{a} and {b}")
        return a // b, a % b
    for name, x in (("a", a), ("b", b)):
        fits = ir.as_expr(x).dtype in (int8, int16, int32, uint8, uint16)
        require(fits, name, "an int32", describe(x))
    pair = ir.cast(a, int32), ir.cast(b, int32)
    return ir.apply("udiv", *pair), ir.apply("umod", *pair)


def static_assert(condition: Any, message: str = "") -> None:
    """Stop building the kernel with ``message`` unless ``condition``, a compile-time value, holds.

    Raises :class:`~tilus.LanguageError` at the call.
    """
    if isinstance(condition, ir.Const):
        condition = condition.value
    known = not isinstance(condition, ir.Expr)
    rule = "a compile-time value (self.assume takes run-time ones)"
    require(known, "the condition of static_assert", rule, describe(condition))
    if not condition:
        raise LanguageError(message or "static_assert: the condition does not hold")
