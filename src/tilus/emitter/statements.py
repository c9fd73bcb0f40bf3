# SPDX-License-Identifier: Apache-2.0
"""The text of a kernel: parameters, statements, groups of threads, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal

from tilus.emitter.device import ELECT_ONE, PREAMBLE, PREFETCH
from tilus.emitter.expressions import Expressions
from tilus.ir import (
    Assign,
    Barrier,
    Break,
    Const,
    Continue,
    Declare,
    Element,
    Expr,
    ExprLike,
    For,
    Group,
    If,
    Instruction,
    Kernel,
    Operation,
    RegisterTensor,
    Return,
    Scalar,
    SetElement,
    Stmt,
    Threads,
    Twins,
    While,
    cast,
    children,
    walk,
)


class Emitter(Expressions):
    """The text of one kernel as it grows."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.threads: Threads = self.function.threads
        self._lines: list[str] = []
        self._depth = 1
        self._declared: set[RegisterTensor] = set()
        self._barriers: dict[Threads, int] = {}
        self._accumulated = self._find_accumulated()
        self._shared_by: Twins | None = None  # the twins whose code this is

    @cached_property
    def _others(self) -> set[Group]:
        """The groups whose code the first of their twins has."""
        return {group for twins in self.plan.twins.values() for group in twins.groups[1:]}

    def source(self) -> str:
        """Return the whole translation unit."""
        parameters = self._parameters()
        self._body()
        prefetch = self._prefetch()
        # Without a number of blocks, ptxas ignores setmaxnreg: it may not know where it begins.
        budgets = any(isinstance(s, Group) and s.registers for s in walk(self.function.body))
        blocks = ", 1" if budgets else ""
        bounds = f"__launch_bounds__({self.function.threads.count}{blocks})"
        head = (
            f'extern "C" __global__ void {bounds}\n{self.function.name}('
            + ",\n    ".join(parameters)
            + ") {"
        )
        start = [
            "  extern __shared__ __align__(1024) unsigned char shared_memory[];",
            "  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);",
            "  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);",
            *prefetch,
            *self._start(),
        ]
        parts = [PREAMBLE, *self._helpers, "\n".join([head, *start, *self._lines, "}"])]
        return "\n\n".join(parts) + "\n"

    def _parameters(self) -> list[str]:
        """Return the parameters of the kernel: tensor maps, then the function's own."""
        parameters = [
            f"const __grid_constant__ CUtensorMap {self.name(m)}" for m in self.plan.tensor_maps
        ]
        for p in self.function.params:
            star = "*" if p.pointer else " "
            parameters.append(f"{p.dtype.cpp} {star}{self.name(p.var)}")
        return parameters

    def _start(self) -> list[str]:
        """Return what an instrumented build begins with."""
        return []

    def _body(self) -> None:
        self._statements(self.function.body)

    def _prefetch(self) -> list[str]:
        """Fetch the tensor maps early: the first copy would wait half a microsecond for each."""
        maps = self.plan.tensor_maps
        if not maps:
            return []
        self.helper(PREFETCH)
        calls = " ".join(f"prefetch_tensor_map(&{self.name(m)});" for m in maps)
        return [f"  if (threadIdx.x == 0) {{ {calls} }}"]

    def line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(f"{header} {{".lstrip())
        self._depth += 1
        outside = set(self._declared)
        yield
        self._declared = outside
        self._depth -= 1
        self.line("}")

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        if self.threads.count == 1:
            yield
            return
        self.helper(ELECT_ONE)
        with self.block("if (elect_one())"):
            yield
        self.line("__syncwarp();")

    def scratch(self) -> str:
        return f"(shared_memory + {self.plan.scratch[self.threads]})"

    def watch(self, barrier: Barrier, parity: ExprLike) -> Sequence[str]:
        return ()

    def declare(self, tensor: RegisterTensor, init: Scalar | None) -> None:
        name = self.name(tensor)
        if tensor in self._declared and init is None:
            return
        self._declared.add(tensor)
        if tensor in self.plan.bits:
            ones = (1 << tensor.shape[0]) - 1 if init else 0
            self.line(f"unsigned {name} = {ones:#x};  // one bit an element")
            return
        count = self.register_layout(tensor).registers
        self.line(f"{tensor.dtype.cpp} {name}[{count}];")
        if init is not None:
            self.line("#pragma unroll")
            value = self.expr(cast(init, tensor.dtype))
            self.line(f"for (int r = 0; r < {count}; ++r) {name}[r] = {value};")

    def thread(self) -> str:
        number, begin = self._numbered("threadIdx.x", self.threads.begin)
        return f"({number} - {begin})" if begin else number

    def _numbered(self, unit: Literal["threadIdx.x", "warp"], number: int) -> tuple[str, int]:
        """Return what C compares with to ask for thread or warp ``number``, and with which value.

        In code that twins share, both count from the start of the twin.
        """
        if self._shared_by is None:
            return unit, number
        twin = self._shared_by.groups[0].threads
        size = 1 if unit == "threadIdx.x" else 32
        return f"({unit} % {twin.count // size})", number - twin.begin // size

    def sync_threads(self) -> None:
        threads = self.threads
        if threads == self.function.threads:
            self.line("__syncthreads();")
        elif 1 < threads.count <= 32:
            self.line("__syncwarp();")
        elif threads.count > 32:
            self._named_barrier(threads)

    def _named_barrier(self, threads: Threads) -> None:
        """Wait at a barrier of these threads; in code that twins share, each has one of its own."""
        twins = self._shared_by
        groups = [g.threads for g in twins.groups] if twins else [threads]
        apart = threads.begin - groups[0].begin
        numbers = [self._barrier_number(Threads(g.begin + apart, threads.count)) for g in groups]
        if twins:
            chosen = str(numbers[-1])
            for i, number in reversed(list(enumerate(numbers[:-1]))):
                chosen = f"{self.name(twins.member)} == {i} ? {number} : {chosen}"
            self.line(f'asm volatile("bar.sync %0, {threads.count};" :: "r"({chosen}) : "memory");')
        else:
            self.line(f'asm volatile("bar.sync {numbers[0]}, {threads.count};" ::: "memory");')

    def _barrier_number(self, threads: Threads) -> int:
        return self._barriers.setdefault(threads, len(self._barriers) + 1)

    def _set_element(self, stmt: SetElement) -> None:
        tensor, index, value = stmt.tensor, stmt.index, stmt.value
        name, i = self.name(tensor), self.expr(index)
        if tensor in self.plan.bits:
            self.line(self._set_bit(name, i, tensor, index, value))
        elif isinstance(index, Const):
            self.line(f"{name}[{i}] = {self.expr(value)};")
        else:
            chosen = self.fresh("chosen")
            self.line(f"const {tensor.dtype.cpp} {chosen} = {self.expr(value)};")
            if _reads_registers(index):  # the lines below may change what it is made of
                at, text = self.fresh("at"), i
                self.line(f"const {index.dtype.cpp} {at} = {text};")
                i = at
            for e in range(tensor.shape[0]):
                self.line(f"{name}[{e}] = {i} == {e} ? {chosen} : {name}[{e}];")

    def _set_bit(self, name: str, i: str, tensor: RegisterTensor, index: Expr, value: Expr) -> str:
        match value:
            case Operation(op="^", args=(Element(tensor=t, index=at), Const(value=1))):
                if t is tensor and at is index:
                    return f"{name} ^= 1u << {i};"
        return f"{name} = ({name} & ~(1u << {i})) | ((unsigned){self.expr(value)} << {i});"

    def _statements(self, body: tuple[Stmt, ...]) -> None:
        chain: list[Group] = []  # the groups of one if/else chain
        for stmt in body:
            if not isinstance(stmt, Group):
                chain = []
                self._statement(stmt)
                continue
            if stmt in self._others:  # the first of its twins has its code
                continue
            if not all(_apart(group, stmt) for group in chain):
                chain = []
            self._group(stmt, chained=bool(chain))
            chain.append(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Instruction():
                self._instruction(stmt)
            case Declare(var=var, value=value):
                self.line(f"{var.dtype.cpp} {self.name(var)} = {self.expr(value)};")
            case Assign(var=var, value=value):
                self.line(f"{self.name(var)} = {self.expr(value)};")
            case SetElement():
                self._set_element(stmt)
            case For() | While() | If():
                self._control(stmt)
            case Break():
                self.line("break;")
            case Continue():
                self.line("continue;")
            case Return():
                self.line("return;")

    def _instruction(self, stmt: Instruction) -> None:
        self._settle(stmt)
        at = len(self._lines)
        stmt.emit(self)
        if len(self._lines) > at:
            comment = f"// {_place(stmt)}  {type(stmt).__name__}"
            self._lines.insert(at, "  " * self._depth + comment)

    def _control(self, stmt: For | While | If) -> None:
        match stmt:
            case If(cond=cond, then=then, orelse=orelse):
                with self.block(f"if ({self.expr(cond)})"):
                    self._statements(then)
                if orelse:
                    with self.block("else"):
                        self._statements(orelse)
            case While(cond=cond, body=body):
                with self.block(f"while ({self.expr(cond)})"):
                    self._statements(body)
            case For():
                self._for(stmt)

    def _for(self, stmt: For) -> None:
        # A loop that nobody asked to unroll stays one: the compiler's own choice doubles its time.
        factor = 1 if stmt.unroll is None else stmt.unroll or ""
        self.line(f"#pragma unroll {factor}".rstrip())
        i, step = self.name(stmt.var), self.expr(stmt.step)
        start, stop = self.expr(stmt.start), self.expr(stmt.stop)
        up, down = f"{i} < {stop}", f"{i} > {stop}"
        if not self.signed(stmt.step):
            goes_on = up
        else:
            goes_on = down if isinstance(stmt.step, Const) else f"{step} > 0 ? {up} : {down}"
        head = f"{stmt.var.dtype.cpp} {i} = {start}; {goes_on}; {i} += {step}"
        with self.block(f"for ({head})"):
            self._statements(stmt.body)

    def _group(self, stmt: Group, chained: bool) -> None:
        """Let only some threads run the body; neighbouring groups without common threads form one
        if/else chain."""
        outer, twins = self.threads, self.plan.twins.get(stmt)
        alone = outer.count == 1  # the one thread is chosen already
        everybody = _together(twins.groups) if twins else stmt.threads
        header = "" if alone else f"if ({self._condition(stmt, everybody, outer)})"
        if chained:
            header = f"else {header}"
        roles = " and ".join(g.threads.role for g in (twins.groups if twins else (stmt,)))
        self.line(f"// {_place(stmt)}  {roles}")
        self.threads = stmt.threads
        with self.block(header):
            if stmt.registers is not None:
                self._budget(stmt.registers)
            if twins:
                self._member(twins)
            self._statements(twins.body if twins else stmt.body)
        if twins:
            self._shared_by = None
        self.threads = outer
        if stmt.threads.count < 32 and not alone:
            self.line("__syncwarp();")  # one-thread work is over: the warp goes on together

    def _member(self, twins: Twins) -> None:
        """Declare the number of the twin that runs the code."""
        first = twins.groups[0].threads
        number, before = f"warp / {first.count // 32}", first.begin // first.count
        at = f"{number} - {before}" if before else number
        self.line(f"const int {self.name(twins.member)} = {at};")
        self._shared_by = twins

    def _condition(self, stmt: Group, threads: Threads, outer: Threads) -> str:
        if stmt.elect:
            self.helper(ELECT_ONE)
            unit, first = self._numbered("warp", threads.begin // 32)
            return "elect_one()" if outer.count <= 32 else f"{unit} == {first} && elect_one()"
        if threads.begin % 32 or threads.count % 32:
            unit, first = self._numbered("threadIdx.x", threads.begin)
            last = first + threads.count - 1
        else:
            unit, first = self._numbered("warp", threads.begin // 32)
            last = first + threads.count // 32 - 1
        if first == last:
            return f"{unit} == {first}"
        return f"{unit} <= {last}" if first == 0 else f"{unit} >= {first} && {unit} <= {last}"

    def _budget(self, registers: int) -> None:
        action = "inc" if registers > self.function.initial_registers else "dec"
        self.line(f'asm volatile("setmaxnreg.{action}.sync.aligned.u32 {registers};");')

    def _find_accumulated(self) -> set[RegisterTensor]:
        """Return the tiles that asynchronous instructions accumulate into."""
        return {
            getattr(stmt, effect.field)
            for stmt in walk(self.function.body)
            if isinstance(stmt, Instruction)
            for effect in stmt.effects
            if effect.kind == "accumulate" and effect.done
        }

    def _settle(self, stmt: Instruction) -> None:
        """Keep the compiler from reading an accumulator before the wait in front of ``stmt``.

        WGMMA writes registers behind the compiler's back; an empty asm that "changes" them cannot
        move before the wait.
        """
        for effect in stmt.effects:
            tensor = getattr(stmt, effect.field)
            if effect.kind == "read" and tensor in self._accumulated:
                name, count = self.name(tensor), self.register_layout(tensor).registers
                kind = "f"
                if tensor.dtype.bits == 16:  # the hardware packs two of them in a register
                    name, count, kind = f"((unsigned *){name})", count // 2, "r"
                self.line("#pragma unroll")
                self.line(
                    f"for (int r = 0; r < {count}; ++r) "
                    f'asm volatile("" : "+{kind}"({name}[r]) :: "memory");'
                )


def _together(groups: Sequence[Group]) -> Threads:
    """Return the threads of neighbouring groups."""
    return Threads(groups[0].threads.begin, sum(g.threads.count for g in groups))


def _apart(before: Group, group: Group) -> bool:
    """Say whether ``group`` may be the ``else`` of ``before``; one thread ends with a barrier."""
    return before.threads.count >= 32 and not before.threads.overlaps(group.threads)


def _reads_registers(x: Expr) -> bool:
    return isinstance(x, Element) or any(_reads_registers(c) for c in children(x))


def _place(stmt: Stmt) -> str:
    """Return ``file:line`` without the folder, so that one kernel is one text wherever it lies."""
    return f"{Path(stmt.location.file).name}:{stmt.location.line}"
