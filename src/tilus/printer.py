# SPDX-License-Identifier: Apache-2.0
"""The one text form of the IR: for dumps, golden tests and messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tilus.dtypes import DType
from tilus.ir import (
    Assign,
    Barrier,
    BarrierArray,
    Builtin,
    Cast,
    Const,
    Declare,
    Element,
    Expr,
    For,
    Function,
    GlobalTensor,
    Group,
    If,
    Instruction,
    Operation,
    RegisterTensor,
    Select,
    SetElement,
    SharedTensor,
    Stmt,
    Var,
    While,
)


def show(thing: Function | Stmt | Expr) -> str:
    """Return ``thing`` as text; statements end with a newline."""
    match thing:
        case Function():
            return "\n".join(_function(thing)) + "\n"
        case Stmt():
            return "\n".join(_stmt(thing, 0)) + "\n"
    return _value(thing)


def _function(f: Function) -> Iterator[str]:
    params = ", ".join(f"{p.name}: {'~' if p.pointer else ''}{p.dtype}" for p in f.params)
    blocks = ", ".join(_value(b) for b in f.blocks)
    yield f"kernel {f.name}({params}) blocks=({blocks}) warps={f.warps} cluster={f.cluster}"
    yield from _body(f.body, 1)


def _body(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    for stmt in body:
        yield from _stmt(stmt, depth)


def _stmt(stmt: Stmt, depth: int) -> Iterator[str]:
    pad = "    " * depth
    match stmt:
        case Instruction():
            yield pad + _instruction(stmt)
        case Declare(var=var, value=value):
            yield f"{pad}{var.name}: {var.dtype} = {_value(value)}"
        case Assign(var=var, value=value):
            yield f"{pad}{var.name} = {_value(value)}"
        case SetElement(tensor=tensor, index=index, value=value):
            yield f"{pad}{tensor.name}[{_value(index)}] = {_value(value)}"
        case If(cond=cond, then=then, orelse=orelse):
            yield f"{pad}if {_value(cond)}:"
            yield from _body(then, depth + 1)
            if orelse:
                yield f"{pad}else:"
                yield from _body(orelse, depth + 1)
        case For() | While() | Group():
            yield pad + _header(stmt)
            yield from _body(stmt.body, depth + 1)
        case _:
            yield pad + type(stmt).__name__.lower()


def _header(stmt: For | While | Group) -> str:
    match stmt:
        case For(var=var, start=start, stop=stop, step=step, unroll=unroll):
            bounds = ", ".join(_value(x) for x in (start, stop, step))
            note = "" if unroll is None else f", unroll={unroll or 'all'}"
            return f"for {var.name} in range({bounds}{note}):"
        case While(cond=cond):
            return f"while {_value(cond)}:"
        case Group(threads=threads, elect=elect, registers=registers):
            budget = "" if registers is None else f", registers={registers}"
            return f"group {threads.role}{' (elected)' if elect else ''}{budget}:"


def _instruction(stmt: Instruction) -> str:
    names = [f.name for f in fields(stmt) if f.name not in ("location", "threads", "out")]
    unit = type(stmt).__module__.rpartition(".")[2]
    call = (
        f"{unit}.{type(stmt).__name__}("
        + ", ".join(f"{n}={_value(getattr(stmt, n))}" for n in names)
        + ")"
    )
    out = getattr(stmt, "out", None)
    return f"{_value(out)} = {call}" if out is not None else call


def _value(x: object) -> str:
    match x:
        case Expr():
            return _expr(x)
        case GlobalTensor(name=name) | BarrierArray(name=name):
            return name
        case RegisterTensor(name=name) | DType(name=name):
            return name
        case Barrier(array=array, index=index):
            return f"{array.name}[{_value(index)}]"
        case SharedTensor():
            return _shared(x)
        case list() | tuple():
            return "[" + ", ".join(_value(v) for v in x) + "]"
    return repr(x)


def _expr(x: Expr) -> str:
    match x:
        case Const(value=value):
            return repr(value)
        case Var(name=name) | Builtin(name=name):
            return name
        case Element(tensor=tensor, index=index):
            return f"{tensor.name}[{_value(index)}]"
        case Cast(x=inner, dtype=dtype):
            return f"{dtype}({_value(inner)})"
        case Select(cond=cond, a=a, b=b):
            return f"({_value(a)} if {_value(cond)} else {_value(b)})"
        case Operation(op=op, args=args):
            return _operation(op, [_value(a) for a in args])
    return repr(x)


def _shared(x: SharedTensor) -> str:
    zero = isinstance(x.offset, Const) and x.offset.value == 0
    at = "" if zero else f"[+{_value(x.offset)}]"
    whose = "" if x.rank is None else f"@{_value(x.rank)}"
    return f"{x.name}{at}{'.T' if x.transposed else ''}{whose}"


def _operation(op: str, args: list[str]) -> str:
    if len(args) == 2 and op not in ("min", "max"):
        return f"({args[0]} {op} {args[1]})"
    return f"{op}({', '.join(args)})"
