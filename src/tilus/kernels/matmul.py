# SPDX-License-Identifier: Apache-2.0
"""``tilus.kernels.matmul``: the product of two matrices by whatever kernel is fastest for them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, no_type_check

from tilus import launch, runtime
from tilus.dtypes import DType, bfloat16, float16
from tilus.frontend import kernel_function
from tilus.kernels.arrays import (
    Operand,
    by_rows,
    check,
    check_out,
    new,
    operand,
    storable,
    transposed,
    workspace,
)
from tilus.kernels.pairs import Pairs, PairsBfloat16
from tilus.kernels.plain import Plain, PlainBfloat16
from tilus.kernels.product import Product, ProductBfloat16, Sums, SumsBfloat16
from tilus.kernels.schedules import Order, Schedule, Size
from tilus.kernels.table import measured
from tilus.launch import Call
from tilus.runtime import Array

PRODUCTS: dict[DType, Any] = {float16: Product, bfloat16: ProductBfloat16}
PAIRS: dict[DType, Any] = {float16: Pairs, bfloat16: PairsBfloat16}
SUMS: dict[DType, Any] = {float16: Sums, bfloat16: SumsBfloat16}
PLAIN: dict[DType, Any] = {float16: Plain, bfloat16: PlainBfloat16}
STREAMS = 64
"""Streams whose plans are kept for calls with the same arrays."""


@dataclass(frozen=True)
class Ran:
    """What a call did: on which ``device`` (``"sim"`` or ``"cuda:0"``), by which ``kernel``.

    That is ``"product"``, by TMA and WGMMA with this ``schedule``; ``"plain"``, for arrays that TMA
    cannot address; or ``"none"``, for a result without elements.
    """

    device: str
    kernel: str
    schedule: Schedule | None = None


@dataclass(frozen=True)
class Step:
    """One launch, ready to ``run``; ``call`` holds on to the workspace that it uses."""

    run: launch.Prepared
    call: Call


@dataclass(frozen=True)
class Plan:
    """All that calls with these arrays do."""

    ran: Ran
    steps: tuple[Step, ...] = ()

    def run(self, handle: int) -> None:
        """Queue all launches on a stream. Where one leaves in a workspace what the next one reads,
        no other thread's come in between: the stream's workspace is theirs, too."""
        if len(self.steps) < 2:
            for step in self.steps:
                step.run(handle)
            return
        with _together:
            for step in self.steps:
                step.run(handle)


_together = threading.Lock()


@dataclass(frozen=True)
class Problem:
    """A product whose operands TMA can load; ``size`` is M, N, K."""

    size: Size
    a: Operand
    b: Operand
    out: Array

    @property
    def order(self) -> Order:
        """How the arrays lie in memory."""
        return Order(self.a.mn, self.b.mn, not storable(self.out))


@dataclass(frozen=True)
class Calls:
    """All calls with the same arrays; ``current`` tells the stream where none is given.

    A stream has a workspace of its own, and so a plan of its own.
    """

    arrays: tuple[Array, Array, Array]
    device: str
    current: Callable[[], int]
    plans: dict[int, Plan] = field(default_factory=dict)

    def plan(self, handle: int) -> Plan:
        """Make the plan for a stream and keep it, where a handle's workspace is always the same."""
        made = plan(*self.arrays, self.device, handle)
        if handle == runtime.PER_THREAD and len(made.steps) > 1:
            return made
        if len(self.plans) >= STREAMS:
            self.plans.clear()
        return self.plans.setdefault(handle, made)


class Matmul:
    """The type of :data:`matmul`; ``last_run`` says what the last call did."""

    def __init__(self) -> None:
        self.last_run: Ran | None = None
        self._known: launch.Known[Calls] = launch.Known(parameters)

    def __call__(self, a: Any, b: Any, out: Any = None, *, stream: object = None) -> Any:
        """Return A · B for ``a`` [M, K] and ``b`` [K, N], in ``out`` where one is given.

        All are float16 or all bfloat16; sums are float32. Without ``out`` the library that ``a``
        comes from makes one: PyTorch, CuPy or NumPy. Fastest is a ``b`` that is the transposed view
        of a row-major [N, K] array, as in ``matmul(x, weight.T)``. Rows that do not begin at
        multiples of 16 bytes go to a slower kernel. Arrays of a GPU run on it, one of the Hopper
        generation, on ``stream`` or on their library's current one; NumPy arrays run on the
        simulator.

        Parts of K go through a workspace that a stream has for all its products. A CUDA graph
        uses that of the stream it was captured on: replay two such graphs, or one and products of
        that stream, one after another, or capture them on different streams.

        Raises :class:`~tilus.ArgumentError`, before anything is launched, for arrays that do not
        fit, and :class:`~tilus.DeviceError` where there is no GPU that will do.
        """
        if out is None:
            out = result(a, b)
        calls = self._known.find(a, b, out) or self._first(a, b, out)
        handle = calls.current() if stream is None else runtime.stream_handle(stream, (), 0)
        made = calls.plans.get(handle) or calls.plan(handle)
        made.run(handle)
        self.last_run = made.ran
        return out

    def _first(self, a: Any, b: Any, out: Any) -> Calls:
        """Check arrays that no call had before, and keep what comes of it."""
        place = self._known.kept
        call, calls = checked(a, b, out)
        self._known.keep(place, (a, b, out), {}, call, calls)
        return calls


@no_type_check  # which types they are of, the kernels say that run
def parameters(self: Any, a: ~float16, b: ~float16, out: ~float16) -> None:
    """Have three arrays as parameters: what is read off them is what a call is known by."""


matmul = Matmul()


def result(a: Any, b: Any) -> Any:
    """Return a new array for a product, after seeing that there is one."""
    left, right = runtime.describe(a, "a"), runtime.describe(b, "b")
    check(left, right)
    return new(a, (left.shape[0], right.shape[1]))


def checked(a: Any, b: Any, out: Any) -> tuple[Call, Calls]:
    """Return what calls with three arrays have in common, after seeing that they fit."""
    given = {"a": a, "b": b, "out": out}
    found = {name: runtime.describe(x, name) for name, x in given.items()}
    left, right, target = (replace(x, owner=None) for x in found.values())
    check(left, right)
    check_out(target, left, right)
    call = Call({}, {}, found, tuple(given.values()), fixed=True)
    device, index = launch.backend(call), left.device_index
    current = (lambda: 0) if index is None else runtime.current_stream(call.given, index)
    return call, Calls((left, right, target), device, current)


def plan(
    a: Array, b: Array, out: Array, device: str, handle: int = 0, schedule: Schedule | None = None
) -> Plan:
    """Choose kernels for a product, by ``schedule`` where one is given, and prepare them."""
    if 0 in out.shape:
        return Plan(Ran(device, "none"))
    if out.strides[0] == out.dtype.nbytes < out.strides[1]:  # column by column: make its transpose
        a, b, out = transposed(b), transposed(a), transposed(out)
    left, right, result = operand(a), operand(transposed(b)), by_rows(out)
    if left and right and result and a.shape[1]:
        size = (out.shape[0], out.shape[1], a.shape[1])
        problem = Problem(size, left, right, result)
        chosen = schedule or fastest(size, problem.order)
        if chosen is not None:
            chosen = limited(chosen, device)
            return Plan(Ran(device, "product", chosen), product(problem, chosen, device, handle))
    return Plan(Ran(device, "plain"), (plain(a, b, out),))


@functools.lru_cache(maxsize=1024)
def fastest(size: Size, order: Order) -> Schedule | None:
    """Return the schedule of the package's table for a size; None where none fits."""
    return measured().choose(size, order)


def limited(schedule: Schedule, device: str) -> Schedule:
    """Return the schedule with no more blocks, in whole clusters, than the GPU runs at once."""
    if device == "sim":
        return schedule
    sms = runtime.gpus()[int(device.removeprefix("cuda:"))].sms
    return replace(schedule, num_blocks=min(schedule.num_blocks, sms - sms % schedule.cluster))


def script(schedule: Schedule, dtype: DType) -> Any:
    """Return the kernel that a schedule is for."""
    return (PAIRS if schedule.pairs else PRODUCTS)[dtype]


def product(problem: Problem, schedule: Schedule, device: str, handle: int) -> tuple[Step, ...]:
    """Return the launches that make a product with TMA and WGMMA."""
    (m, n, k), a, b, out = problem.size, problem.a, problem.b, problem.out
    split, dtype = schedule.split_k, out.dtype
    w = workspace(device, handle, split * m * n if split > 1 else 1)
    w = replace(w, shape=(split, m, n), strides=(4 * m * n, 4 * n, 4)) if split > 1 else w
    c_pitch = out.strides[0] // dtype.nbytes
    scalars = {"m_size": m, "n_size": n, "k_size": k}
    pitches = {"a_pitch": a.pitch, "b_pitch": b.pitch, "c_pitch": c_pitch}
    order = problem.order if split == 1 else replace(problem.order, direct=False)
    # What threads store in transposed tiles, the kernel views as the transpose.
    seen = transposed if schedule.swapped else (lambda x: x)
    arrays = {"a_ptr": a.array, "b_ptr": b.array}
    arrays["c_ptr"] = seen(out) if order.direct else out
    arrays["w_ptr"] = seen(w) if split > 1 else w
    kernel = built(script(schedule, dtype), schedule, order)
    steps = (step(kernel, scalars | pitches, arrays),)
    if split == 1:
        return steps
    scalars = {"m_size": m, "n_size": n, "c_pitch": c_pitch}
    return (*steps, step(summing(dtype, split), scalars, {"w_ptr": w, "c_ptr": out}))


def plain(a: Array, b: Array, out: Array) -> Step:
    """Return the launch that makes a product of any arrays."""
    (m, n), k = out.shape, a.shape[1]
    scalars = {"m_size": m, "n_size": n, "k_size": k}
    for name, array in (("a", a), ("b", b), ("c", out)):
        row, column = (stride // array.dtype.nbytes for stride in array.strides)
        scalars |= {f"{name}_row": row, f"{name}_column": column}
    arrays = {"a_ptr": a, "b_ptr": b, "c_ptr": out}
    return step(anything(out.dtype), scalars, arrays)


def step(kernel: Kernel, scalars: dict[str, int], arrays: dict[str, Array]) -> Step:
    """Return one launch of a kernel on arrays that are what it takes."""
    script, launcher = kernel
    call = Call({}, scalars, arrays, ())
    return Step(launcher.prepare(script, call), call)


Kernel = tuple[Any, launch.Launcher]
"""A script with its schedule, and what keeps its programs."""


@functools.cache
def built(kernel: Any, schedule: Schedule, order: Order) -> Kernel:
    """Return a product with a schedule and an order of its arrays, the same one each time."""
    return ready(kernel(**schedule.values(), **order.values()))


@functools.cache
def summing(dtype: DType, split_k: int) -> Kernel:
    """Return what adds up the parts of a split product."""
    return ready(SUMS[dtype](split_k))


@functools.cache
def anything(dtype: DType) -> Kernel:
    """Return what multiplies arrays that TMA cannot address."""
    return ready(PLAIN[dtype]())


def ready(script: Any) -> Kernel:
    """Return a script and what keeps its programs."""
    return script, launch.Launcher(kernel_function(script))
