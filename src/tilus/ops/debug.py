# SPDX-License-Identifier: Apache-2.0
"""What helps to look into a kernel, and what its author promises the compiler."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilus.dtypes import DType, uint8, uint16, uint32, uint64
from tilus.ir import (
    Const,
    Emitter,
    Expr,
    ExprLike,
    GlobalTensor,
    Instruction,
    Machine,
    RegisterTensor,
    Scalar,
    SharedTensor,
    Tensor,
    as_expr,
    cast,
    reads,
    truth,
)
from tilus.ops.numbers import widened

CONVERSION = re.compile(r"%([-+ 0#]*\d*(?:\.\d+)?)(.)")
INTEGERS, UNSIGNED, FLOATS = "di", "uxXo", "feEgG"
WORDS = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


@dataclass(frozen=True, eq=False, kw_only=True)
class assume(Instruction):
    """Promise that ``condition`` holds here, so that the compiler may rely on it.

    The simulator checks the promise; CUDA's compiler believes it.

    NumPy: assert condition
    PTX:   none; __builtin_assume
    """

    condition: ExprLike

    def verify(self) -> None:
        value = self.condition.value if isinstance(self.condition, Const) else self.condition
        known = not isinstance(value, Expr)
        self.require(not known or bool(value), "the condition", "true", value)

    def emit(self, e: Emitter) -> None:
        if isinstance(self.condition, Expr):
            e.line(f"__builtin_assume({e.expr(truth(self.condition))});")

    def simulate(self, m: Machine) -> None:
        if not m.value(self.condition):
            m.fail("protocol", "assume: the condition must hold, got one that does not")


def _one_of(e: Emitter) -> AbstractContextManager[None]:
    """Have the first thread of the current group run the lines inside."""
    return e.block("" if e.threads.count == 1 else f"if ({e.thread()} == 0)")


def _c_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class printf(Instruction):
    """Print numbers by a format as C's: ``self.printf("block %d: %f\\n", self.blockIdx.x, x)``.

    One thread of the current group prints, since a number is the same in all of them. Conversions:
    ``%d %i`` (signed), ``%u %x %X %o`` (unsigned), ``%f %e %g`` (floats) with C's flags, width and
    precision, and ``%%``; an integer's size is known and not written.

    NumPy: print(format % values, end="")
    PTX:   vprintf
    """

    variadic = True
    format: str
    values: tuple[ExprLike, ...] = ()

    def verify(self) -> None:
        self.require(isinstance(self.format, str), "format", "a string", self.format)
        kinds = [kind for _, kind in self._conversions()]
        count = f"as many as conversions in the format ({len(kinds)})"
        self.require(len(kinds) == len(self.values), "the values", count, len(self.values))
        for kind, value in zip(kinds, self.values, strict=True):
            self._verify(kind, value)

    def _verify(self, kind: str, value: object) -> None:
        number = isinstance(value, Expr) or type(value) in (int, float, bool)
        rule = "numbers (print_tensor prints tensors)"
        self.require(number, "the values", rule, f"a {type(value).__name__}")
        dtype = as_expr(value).dtype  # type: ignore[arg-type]
        known = kind in INTEGERS + UNSIGNED + FLOATS
        self.require(known, "a conversion", "one of %d %i %u %x %X %o %f %e %g %%", f"%{kind}")
        rule = "an integer" if kind in INTEGERS + UNSIGNED else "a float"
        self.require(dtype.is_float == (kind in FLOATS), f"the value of %{kind}", rule, dtype)

    def _conversions(self) -> Iterator[tuple[str, str]]:
        """Yield flags and letter of every conversion that takes a value."""
        yield from (found for found in CONVERSION.findall(self.format) if found[1] != "%")

    def emit(self, e: Emitter) -> None:
        kinds = [kind for _, kind in self._conversions()]
        args = [_argument(e, k, v) for k, v in zip(kinds, self.values, strict=True)]
        text = CONVERSION.sub(_long, self.format)
        with _one_of(e):
            e.line(f"printf({', '.join([_c_string(text), *args])});")

    def simulate(self, m: Machine) -> None:
        pairs = zip(self._conversions(), self.values, strict=True)
        values = tuple(_as_unsigned(kind, v, m.value(v)) for (_, kind), v in pairs)
        print(self.format % values, end="")


def _long(found: re.Match[str]) -> str:
    """Give an integer conversion the size in which its value is passed."""
    flags, kind = found.groups()
    return f"%{flags}ll{kind}" if kind in INTEGERS + UNSIGNED else found[0]


def _argument(e: Emitter, kind: str, value: ExprLike) -> str:
    x = as_expr(value)
    if kind in FLOATS:
        return f"(double){e.expr(x)}"
    if kind in INTEGERS:
        return f"(long long){e.expr(x)}"
    return f"(unsigned long long){e.expr(cast(x, WORDS[max(8, x.dtype.bits)]))}"


def _as_unsigned(kind: str, x: ExprLike, value: Scalar) -> Scalar:
    """Return what an unsigned conversion shows of a number: its bits."""
    bits = max(8, as_expr(x).dtype.bits)
    return int(value) & ((1 << bits) - 1) if kind in UNSIGNED else value


@dataclass(frozen=True, eq=False, kw_only=True)
class print_tensor(Instruction):
    """Print every element of a tensor, behind ``message`` or the tensor's name.

    The simulator prints the array as NumPy does. The GPU prints a line an element, the threads of
    the group one after another; keep the tensor small, since its buffer holds a megabyte.

    NumPy: print(message, tensor)
    PTX:   vprintf
    """

    issuer = "group"
    effects = (reads("tensor"),)
    tensor: Tensor
    message: str = ""

    def verify(self) -> None:
        known = isinstance(self.tensor, GlobalTensor | SharedTensor | RegisterTensor)
        rule = "a tensor, and the message behind it"
        self.require(known, "tensor", rule, f"a {type(self.tensor).__name__}")
        self.require(isinstance(self.message, str), "message", "a string", self.message)
        if isinstance(self.tensor, RegisterTensor):
            held = self.tensor.threads
            fits = self.tensor.replicated or held == self.threads
            self.require(fits, "tensor", f"held by {self.threads.role}", held.role)
        if isinstance(self.tensor, SharedTensor):
            rank = len(self.tensor.shape)
            self.require(rank <= 2, "tensor", "a tile of one or two dimensions", f"{rank}")

    def emit(self, e: Emitter) -> None:
        e.sync_threads()
        match self.tensor:
            case RegisterTensor(replicated=True) as t:
                with _one_of(e):
                    for i in range(t.shape[0]):
                        self._line(e, [str(i)], e.expr(t[i]))
            case RegisterTensor() as t:
                self._registers(e, t)
            case SharedTensor() as t:
                with _one_of(e):
                    self._shared(e, t)
            case GlobalTensor() as t:
                with _one_of(e):
                    self._global(e, t)
        e.sync_threads()

    def _line(self, e: Emitter, index: list[str], value: str) -> None:
        """Write the code that prints one element."""
        dtype = self.tensor.dtype
        form, shown = _shown(e, dtype, value)
        name = (self.message or self.tensor.name).replace("%", "%%")
        text = f"{name}[{', '.join(['%d'] * len(index))}] = {form}\n"
        e.line(f"printf({', '.join([_c_string(text), *index, shown])});")

    def _registers(self, e: Emitter, t: RegisterTensor) -> None:
        layout, turn, r = e.register_layout(t), e.fresh("turn"), e.fresh("r")
        with e.block(f"for (int {turn} = 0; {turn} < {t.threads.count}; ++{turn})"):
            with e.block(f"if ({turn} == {e.thread()})"):
                e.line("#pragma unroll")
                with e.block(f"for (int {r} = 0; {r} < {layout.registers}; ++{r})"):
                    index = [
                        f"(int)({layout.text(d, 'thread', turn)} + {layout.text(d, 'register', r)})"
                        for d in range(len(t.shape))
                    ]
                    self._line(e, index, f"{e.registers(t)}[{r}]")
            e.sync_threads()

    def _shared(self, e: Emitter, t: SharedTensor) -> None:
        layout = e.shared_layout(t)
        offsets = layout.offsets().reshape(-1)
        first = f"shared_memory + ({e.shared(t)} - smem)"
        for index in product(*(range(n) for n in t.shape)):
            at = (
                int(np.ravel_multi_index(index[::-1], t.shape[::-1]))
                if t.transposed
                else int(np.ravel_multi_index(index, t.shape))
            )
            place = at // offsets.size * offsets.size + int(offsets[at % offsets.size])
            value = f"*({t.dtype.cpp} *)({first} + {place * t.dtype.nbytes})"
            self._line(e, [str(i) for i in index], value)

    def _global(self, e: Emitter, t: GlobalTensor) -> None:
        names = [e.fresh(f"i{d}") for d in range(len(t.shape))]
        pairs = zip(names, t.shape, strict=True)
        heads = [f"for (int {i} = 0; {i} < {e.expr(n)}; ++{i})" for i, n in pairs]
        at = " + ".join(f"{i} * {e.expr(s)}" for i, s in zip(names, t.strides, strict=True))
        for head in heads:
            e.line(head)
        self._line(e, names, f"{e.pointer(t)}[{at}]")

    def simulate(self, m: Machine) -> None:
        t: Any = self.tensor
        match t:
            case RegisterTensor():
                values = m.registers(t)
            case SharedTensor():
                values = m.load_shared(t)
            case _:
                shape = tuple(int(m.value(n)) for n in t.shape)
                values = m.load_global(t, [0] * len(shape), shape)
        print(f"{self.message or t.name} {t.dtype}{list(values.shape)}\n{values}")


def _shown(e: Emitter, dtype: DType, value: str) -> tuple[str, str]:
    """Return the conversion and the argument that print an element."""
    if dtype.is_float:
        return "%g", f"(double)({widened(e, value, dtype)})"
    return "%lld", f"(long long)({value})"
