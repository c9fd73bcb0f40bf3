# SPDX-License-Identifier: Apache-2.0
"""From a kernel to CUDA C++ for NVRTC: readable text without a single include.

Each statement carries its place in the kernel's source as a comment. Instructions write themselves
through the :class:`Emitter`, which implements :class:`tilus.ir.Emitter`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from tilus.dtypes import DType, uint32
from tilus.ir import (
    OPERATORS,
    Assign,
    Barrier,
    Break,
    Builtin,
    Cast,
    Const,
    Continue,
    Declare,
    Element,
    Expr,
    ExprLike,
    For,
    GlobalTensor,
    Group,
    If,
    Instruction,
    Kernel,
    Operation,
    RegisterTensor,
    Return,
    Scalar,
    Select,
    SetElement,
    SharedTensor,
    Stmt,
    TensorMap,
    Threads,
    Twins,
    Var,
    While,
    as_expr,
    cast,
    children,
    nonnegative,
    walk,
)
from tilus.layout import RegisterLayout, SharedLayout

PREAMBLE = """\
typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };"""

FLOOR = """\
template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}"""


PREFETCH = """\
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}"""

ELECT_ONE = """\
/* True in exactly one thread of a converged warp. */
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected;
}"""

CLUSTER = {"clusterRank": "cluster_ctarank", "clusterBlockIdx": "cluster_ctaid"}
"""Where a block stands in its cluster: PTX ISA, "Special Registers"."""

KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq"""
OURS = """
blockDim blockIdx cluster_ctaid_x cluster_ctaid_y cluster_ctaid_z cluster_ctarank cluster_sync
CUtensorMap elect_one evict_first evict_last evict_normal exp2f expf fabsf floor_div floor_mod
from_bfloat from_half gridDim half_t load_1 load_16 load_2 load_4 load_8 load_peer_1 load_peer_16
load_peer_2 load_peer_4 load_peer_8 logf map_shared max maximum min minimum never pack part quad r
row rsqrtf shared_memory shift_left shift_right smem sqrtf store_1 store_16 store_2 store_4 store_8
store_peer_1 store_peer_16 store_peer_2 store_peer_4 store_peer_8 threadIdx tile_div tile_mod
to_bfloat to_half to_int to_unsigned transpose_quad v vector warp"""
RESERVED = frozenset((KEYWORDS + OURS).split())
"""What C++ keeps to itself, and what generated code calls its own things."""


def emit(kernel: Kernel) -> str:
    """Return the CUDA C++ source of ``kernel``; its entry point has the function's name."""
    return Emitter(kernel).source()


class Emitter:
    """The text of one kernel as it grows."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.function, self.plan = kernel, kernel.function, kernel.plan
        self.threads: Threads = self.function.threads
        self._lines: list[str] = []
        self._helpers: dict[str, None] = {}
        self._depth = 1
        self._names: dict[object, str] = {}
        self._declared: set[RegisterTensor] = set()
        self._taken: set[str] = set()
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

    def helper(self, text: str) -> None:
        self._helpers.setdefault(text)

    def fresh(self, stem: str) -> str:
        stem = name = identifier(stem)
        count = 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def name(self, thing: Var | RegisterTensor | TensorMap) -> str:
        """Return the C identifier of a variable, register tensor or tensor map."""
        if thing not in self._names:
            self._names[thing] = self.fresh(thing.name)
        return self._names[thing]

    def registers(self, tensor: RegisterTensor) -> str:
        return self.name(tensor)

    def register_layout(self, tensor: RegisterTensor) -> RegisterLayout:
        return self.plan.registers[tensor]

    def shared_layout(self, tensor: SharedTensor) -> SharedLayout:
        return self.plan.shared[tensor.buffer]

    def scratch(self) -> str:
        return f"(shared_memory + {self.plan.scratch[self.threads]})"

    def shared(self, tensor: SharedTensor, extra: int = 0) -> str:
        place = as_expr(self.plan.places[tensor.buffer] + extra)
        return f"smem + {self.expr(tensor.offset * tensor.dtype.nbytes + place)}"

    def barrier(self, barrier: Barrier) -> str:
        place = self.plan.places[barrier.array]
        return f"smem + {self.expr(barrier.index * 8 + place)}"

    def watch(self, barrier: Barrier, parity: ExprLike) -> Sequence[str]:
        return ()

    def pointer(self, view: GlobalTensor) -> str:
        name = self.name(view.pointer)
        same = any(p.var is view.pointer and p.dtype == view.dtype for p in self.function.params)
        return name if same else f"(({view.dtype.cpp} *){name})"

    def tensor_map(self, view: GlobalTensor, tile: SharedTensor) -> str:
        box = self.shared_layout(tile).box(len(view.shape), tile.tiles)
        maps = self.plan.tensor_maps
        return "&" + self.name(next(m for m in maps if m.view is view and m.box == box))

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

    def expr(self, x: ExprLike) -> str:
        x = as_expr(x)
        match x:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Var():
                return self.name(x)
            case Builtin(name=name):
                return self._builtin(name)
            case Cast(x=inner, dtype=dtype):
                return f"({dtype.cpp}){self.expr(inner)}"
            case Select(cond=cond, a=a, b=b):
                return f"({self.expr(cond)} ? {self.expr(a)} : {self.expr(b)})"
            case Element(tensor=tensor, index=index):
                return self._element(tensor, index)
            case Operation(op=op, args=args, dtype=dtype):
                text = self._operation(op, args)
                # C computes narrow integers as int, and would keep what does not fit.
                return f"({dtype.cpp}){text}" if dtype.is_integer and dtype.bits < 32 else text
        raise AssertionError(f"unknown expression {x!r}")

    def _builtin(self, name: str) -> str:
        """Return what C calls a value that the hardware provides."""
        stem, _, axis = name.partition(".")
        if stem == "clusterDim":
            return str(self.function.cluster["xyz".index(axis)])
        if stem not in CLUSTER:
            return f"(int){name}"
        register = CLUSTER[stem] + (f".{axis}" if axis else "")
        call = register.replace(".", "_")
        self.helper(special(call, register))
        return f"(int){call}()"

    def signed(self, x: ExprLike) -> bool:
        return not nonnegative(as_expr(x), self.plan.nonnegative)

    def _operation(self, op: str, args: tuple[Expr, ...]) -> str:
        row, texts = OPERATORS[op], [self.expr(a) for a in args]
        if row.floor and any(map(self.signed, args)):
            self.helper(FLOOR)
            return row.floor.format(*texts)
        return row.cuda.format(*texts)

    def _element(self, tensor: RegisterTensor, index: Expr) -> str:
        """Read an element: a bit of the word, or a chain of selects, since registers have no
        address."""
        name, i = self.name(tensor), self.expr(index)
        if tensor in self.plan.bits:
            bit = f"({name} >> {i} & 1)"
            return bit if tensor.dtype == uint32 else f"({tensor.dtype.cpp}){bit}"
        if isinstance(index, Const):
            return f"{name}[{i}]"
        chain = f"{name}[{tensor.shape[0] - 1}]"
        for e in reversed(range(tensor.shape[0] - 1)):
            chain = f"{i} == {e} ? {name}[{e}] : {chain}"
        return f"({chain})"

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


def special(name: str, register: str) -> str:
    """Return the device function ``name``, which reads a special register."""
    return f"""\
__device__ __forceinline__ unsigned {name}() {{
  unsigned value;
  asm("mov.u32 %0, %%{register};" : "=r"(value));
  return value;
}}"""


def _together(groups: Sequence[Group]) -> Threads:
    """Return the threads of neighbouring groups."""
    return Threads(groups[0].threads.begin, sum(g.threads.count for g in groups))


def identifier(name: str) -> str:
    """Return a C identifier for a Python name: ASCII, and not one of :data:`RESERVED`."""
    stem = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not stem:
        return "i"
    return f"{stem}_0" if stem in RESERVED else stem if stem[0].isalpha() else f"i{stem}"


def _apart(before: Group, group: Group) -> bool:
    """Say whether ``group`` may be the ``else`` of ``before``; one thread ends with a barrier."""
    return before.threads.count >= 32 and not before.threads.overlaps(group.threads)


def _reads_registers(x: Expr) -> bool:
    return isinstance(x, Element) or any(_reads_registers(c) for c in children(x))


def _place(stmt: Stmt) -> str:
    """Return ``file:line`` without the folder, so that one kernel is one text wherever it lies."""
    return f"{Path(stmt.location.file).name}:{stmt.location.line}"


def literal(value: Scalar, dtype: DType) -> str:
    """Return a number as a C literal of its type."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.is_float:
        return float_literal(float(value), dtype)
    if dtype.bits < 32:  # else it would be an int, whatever stands beside it
        return f"({dtype.cpp}){f'({value})' if value < 0 else value}"
    suffix = ("u" if dtype.kind == "u" else "") + ("ll" if dtype.bits == 64 else "")
    if value == -(1 << (dtype.bits - 1)):  # C has no negative literals: 2147483648 is no int
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"


def float_literal(value: float, dtype: DType) -> str:
    """Return a float as an exact C literal; NaN, infinity and all of 16 bits by their bits."""
    if dtype.bits == 16:
        with np.errstate(over="ignore"):  # what is too large becomes infinity
            return f"(half_t){np.array(value, dtype.numpy).view(np.uint16):#06x}"
    if value != value or value in (float("inf"), float("-inf")):
        sign = "-" if value == float("-inf") else ""
        word = "0x7fffffff" if value != value else "0x7f800000"
        return f"({sign}__int_as_float({word}))"
    return f"{value!r}f" if dtype.bits == 32 else repr(value)
