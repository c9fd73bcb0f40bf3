# SPDX-License-Identifier: Apache-2.0
"""Generated expressions over run-time numbers, and what Python makes of them.

An expression is a tree: a number, the name of a variable, or a tuple of an operator and its
operands. :func:`python` computes it with Python's own operators on Python's integers,
:func:`build` makes what the language makes of it, :func:`text` what an author writes. Two rules
join them: unsigned results wrap, and signed ones must fit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tilus
from tilus import LanguageError, ir, loader
from tilus.dtypes import DType, boolean, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from tilus.frontend.expressions import either
from tilus.frontend.scalars import RUNTIME_BUILTINS, fast_divmod

Tree = int | str | tuple[Any, ...]

VARIABLES = {
    name: ir.Var(name, dtype)
    for name, dtype in {
        "i": int32, "j": int32, "u": uint32, "v": uint32, "m": int64, "n": int64, "w": uint64,
        "a": int8, "b": uint8, "c": int16, "d": uint16, "flag": boolean,
    }.items()
}  # fmt: skip
CASTS = {t.name: t for t in (int8, int16, int32, int64, uint8, uint16, uint32, uint64)}
SYMBOLS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
ORDER = ("<", "<=", ">", ">=", "==", "!=")
PREFIXES: dict[str, Callable[..., Any]] = {"-": operator.neg, "~": operator.invert}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "abs": abs, "bool": bool, "divmod": operator.floordiv,
}  # fmt: skip
CONSTANTS = (0, 1, 2, 3, 7, 10, 31, -1, -2, -5, 255, 1 << 16, (1 << 31) - 1)


class Refused(Exception):
    """What the language does not compute, though Python would."""


def draw(r: Random, depth: int) -> Tree:
    """Return a random tree of at most this depth.

    No operator has constants alone or a constant that decides it (``x * 0``), since the language
    then leaves out operands that Python would refuse to compute.
    """
    if depth == 0 or r.random() < 0.1:
        return r.choice([*VARIABLES, *VARIABLES, *CONSTANTS])
    while True:
        tree = _draw(r, depth)
        operands = [x for x in tree[1:] if isinstance(x, tuple | int) or x in VARIABLES]
        fixed = all(isinstance(x, int) for x in operands if x is not tree[-1] or tree[0] != "power")
        decided = tree[:2] == ("infix", "*") and 0 in operands
        if not fixed and not decided and tree[-2:] != ("%", 1) and tree[-1:] != (1,):
            return tree


def _draw(r: Random, depth: int) -> tuple[Any, ...]:
    a, b, c = (draw(r, depth - 1) for _ in range(3))
    match r.randrange(16):
        case 0:
            return ("prefix", r.choice(list(PREFIXES)), a)
        case 1:
            return ("call", r.choice(list(CASTS)), a)
        case 2:
            return ("if", c, a, b)
        case 3:
            return ("call", r.choice(["abs", "bool"]), a)
        case 4:
            return ("power", a, r.randrange(2, 4))
        case 5 | 6:
            return ("call", r.choice(["min", "max", "fast_divmod", "divmod"]), a, b)
        case 7:
            return ("chain", r.choice(ORDER), r.choice(ORDER), a, b, c)
        case 8:
            return (r.choice(["and", "or"]), a, b)
        case 9:
            return (
                "infix",
                r.choice(["<<", ">>"]),
                a,
                ("infix", "&", r.choice(list(VARIABLES)), 7),
            )
    return ("infix", r.choice([op for op in SYMBOLS if op not in ("<<", ">>")]), a, b)


def text(tree: Tree) -> str:
    """Return the tree as a kernel's author writes it."""
    match tree:
        case ("infix", op, a, b):
            return f"({text(a)} {op} {text(b)})"
        case ("prefix", op, a):
            return f"({op}{text(a)})"
        case ("if", c, a, b):
            return f"({text(a)} if {text(c)} else {text(b)})"
        case ("power", a, n):
            return f"({text(a)} ** {n})"
        case ("chain", one, two, a, b, c):
            return f"({text(a)} {one} {text(b)} {two} {text(c)})"
        case ("and" | "or" as op, a, b):
            return f"({text(a)} {op} {text(b)})"
        case ("call", "fast_divmod", a, b):
            return f"self.fast_divmod({text(a)}, {text(b)})[1]"
        case ("call", "divmod", a, b):
            return f"divmod({text(a)}, {text(b)})[0]"
        case ("call", name, *args):
            return f"{name}({', '.join(map(text, args))})"
    return f"({tree})"


def build(tree: Tree) -> Any:
    """Return the tree as the language builds it: an expression, or a number of Python."""
    match tree:
        case ("infix", op, a, b):
            return SYMBOLS[op](build(a), build(b))
        case ("prefix", op, a):
            return PREFIXES[op](build(a))
        case ("if", c, a, b):
            condition = ir.as_expr(build(c))
            return ir.select(condition, build(a), build(b))
        case ("power", a, n):
            return build(a) ** n
        case ("chain", one, two, a, b, c):
            pairs = (SYMBOLS[one](build(a), build(b)), SYMBOLS[two](build(b), build(c)))
            return ir.apply("and", *pairs)
        case ("and" | "or" as op, a, b):
            return either(op == "and", ir.as_expr(build(a)), build(b))
        case ("call", "fast_divmod", a, b):
            return fast_divmod(build(a), build(b))[1]
        case ("call", "divmod", a, b):
            return divmod(build(a), build(b))[0]
        case ("call", name, *args):
            return _called(name, [build(a) for a in args])
    return VARIABLES[tree] if isinstance(tree, str) else tree


def _called(name: str, args: list[Any]) -> Any:
    if name in CASTS:
        return ir.cast(args[0], CASTS[name])
    function = FUNCTIONS[name]
    runtime = any(isinstance(x, ir.Expr) for x in args)
    return RUNTIME_BUILTINS[function](*args) if runtime else function(*args)


def python(tree: Tree, values: Mapping[str, int]) -> int:
    """Return what Python computes, each result as a value of the type that the language gives it.

    Raises :class:`Refused` where a signed result does not fit, or Python itself refuses.
    """
    match tree:
        case ("infix", op, a, b):
            x, y = python(a, values), python(b, values)
            if op in ("<<", ">>") and not 0 <= y < _dtype(a).bits:
                raise Refused(f"{x} {op} {y}")
            return fitted(tree, _try(SYMBOLS[op], x, y))
        case ("prefix", op, a):
            return fitted(tree, PREFIXES[op](python(a, values)))
        case ("power", a, n):
            return fitted(tree, python(a, values) ** n)
        case ("call", name, *args):
            return _call(tree, name, [python(a, values) for a in args])
        case (_, *_):
            return fitted(tree, _choice(tree, values))
    return values[tree] if isinstance(tree, str) else tree


def _choice(tree: Tree, values: Mapping[str, int]) -> int:
    """Compute what evaluates only some of its operands."""
    match tree:
        case ("if", c, a, b):
            return python(a if python(c, values) else b, values)
        case ("and", a, b):
            return python(a, values) and python(b, values)
        case ("or", a, b):
            return python(a, values) or python(b, values)
        case ("chain", one, two, a, b, c):
            x, y = python(a, values), python(b, values)
            return SYMBOLS[one](x, y) and SYMBOLS[two](y, python(c, values))
    raise AssertionError(tree)


def _call(tree: Tree, name: str, args: list[int]) -> int:
    if name in CASTS:
        return wrapped(args[0], CASTS[name])
    if name == "fast_divmod":
        if args[0] < 0 or args[1] < 1:
            raise Refused(f"fast_divmod{tuple(args)}")
        return args[0] % args[1]
    return fitted(tree, _try(FUNCTIONS[name], *args))


def _try(function: Callable[..., int], *args: int) -> int:
    try:
        return function(*args)
    except ZeroDivisionError as error:
        raise Refused(str(error)) from None


def _dtype(tree: Tree) -> DType:
    dtype = ir.as_expr(build(tree)).dtype
    return int32 if dtype == boolean else dtype


def fitted(tree: Tree, value: int) -> int:
    """Return ``value`` in the type of ``tree``: unsigned ones wrap, signed ones must fit."""
    x = build(tree)
    if not isinstance(x, ir.Expr) or x.dtype == boolean:
        return value
    if x.dtype.kind == "u":
        return wrapped(value, x.dtype)
    if wrapped(value, x.dtype) != value:
        raise Refused(f"{value} in {x.dtype}")
    return value


def wrapped(value: int, dtype: DType) -> int:
    """Return ``value`` modulo 2**bits, the upper half negative for signed types."""
    n = int(value) % (1 << dtype.bits)
    return n - (1 << dtype.bits) if dtype.kind == "i" and 2 * n >= 1 << dtype.bits else n


def inputs(r: Random) -> dict[str, int]:
    """Return a value for every variable; small ones and the ends of a type's range are likely."""
    values = {}
    for name, var in VARIABLES.items():
        bits = var.dtype.bits
        near = r.choice([0, 1, 2, 3, 5, 7, 100, -1, -2, -7, 1 << (bits - 1), (1 << (bits - 1)) - 1])
        n = near if r.random() < 0.8 else r.getrandbits(64)
        values[name] = bool(n & 1) if var.dtype == boolean else wrapped(n, var.dtype)
    return values


HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""Generated: every line computes an expression and stores it."""

from tests.kernels import Probe
from tilus import boolean, int8, int16, int32, int64, uint8, uint16, uint32, uint64


class Integers(Probe):
    """Store what each expression gives, as an int64."""

    def __call__(self, {parameters}, p: ~int64):
        self.attrs.blocks, self.attrs.warps = 1, 1
        out = self.global_view(p, dtype=int64, shape=[{count}])
'''


def valid(count: int, cases: Sequence[Mapping[str, int]], seed: int) -> list[Tree]:
    """Return trees that the language takes, and that give a number in each of ``cases``."""
    r, found = Random(seed), []
    while len(found) < count:
        tree = draw(r, 3)
        try:
            build(tree)
            [python(tree, values) for values in cases]
        except (Refused, TypeError, ArithmeticError, LanguageError):
            continue
        if isinstance(tree, tuple):
            found.append(tree)
    return found


def kernel(path: Path, trees: Sequence[Tree]) -> tilus.Script:
    """Write a kernel that stores what each tree gives to ``path``; return it."""
    parameters = ", ".join(f"{name}: {var.dtype}" for name, var in VARIABLES.items())
    lines = [f"        self.put(out, {k}, int64({text(tree)}))\n" for k, tree in enumerate(trees)]
    path.write_text(HEAD.format(parameters=parameters, count=len(trees)) + "".join(lines))
    found: tilus.Script = loader.load(path).Integers()
    return found


def expected(trees: Sequence[Tree], values: Mapping[str, int]) -> np.ndarray:
    """Return what Python computes, as the kernel stores it."""
    return np.array([wrapped(python(tree, values), int64) for tree in trees], np.int64)
