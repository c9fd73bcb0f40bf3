# SPDX-License-Identifier: Apache-2.0
"""``tilus.kernels.matmul``: the product of two matrices by whatever kernel is fastest for them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tilus import launch, runtime
from tilus.dtypes import DType, bfloat16, float16
from tilus.frontend import kernel_function
from tilus.kernels.arrays import Operand, check, check_out, new, operand, transposed, workspace
from tilus.kernels.plain import Plain, PlainBfloat16
from tilus.kernels.product import Product, ProductBfloat16, Sums, SumsBfloat16
from tilus.kernels.schedules import Schedule, Size
from tilus.kernels.table import measured
from tilus.launch import Call
from tilus.options import option
from tilus.runtime import Array

PRODUCTS: dict[DType, Any] = {float16: Product, bfloat16: ProductBfloat16}
SUMS: dict[DType, Any] = {float16: Sums, bfloat16: SumsBfloat16}
PLAIN: dict[DType, Any] = {float16: Plain, bfloat16: PlainBfloat16}
LIMIT = 1024
"""Calls that are kept prepared."""


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


class Matmul:
    """The type of :data:`matmul`; ``last_run`` says what the last call did."""

    def __init__(self) -> None:
        self.last_run: Ran | None = None
        self._plans: dict[object, Plan] = {}

    def __call__(self, a: Any, b: Any, out: Any = None, *, stream: object = None) -> Any:
        """Return A · B for ``a`` [M, K] and ``b`` [K, N], in ``out`` where one is given.

        All are float16 or all bfloat16; sums are float32. Without ``out`` the library that ``a``
        comes from makes one: PyTorch, CuPy or NumPy. Fastest is a ``b`` that is the transposed view
        of a row-major [N, K] array, as in ``matmul(x, weight.T)``. Rows that do not begin at
        multiples of 16 bytes go to a slower kernel. Arrays of a GPU run on it, one of the Hopper
        generation, on ``stream`` or on their library's current one; NumPy arrays run on the
        simulator.

        Raises :class:`~tilus.ArgumentError`, before anything is launched, for arrays that do not
        fit, and :class:`~tilus.DeviceError` where there is no GPU that will do.
        """
        left, right = check(a, b)
        device = launch.backend(Call({}, {}, {"a": left, "b": right}, ()))
        if out is None:
            out = new(a, (left.shape[0], right.shape[1]))
        result = check_out(out, left, right)
        handle = 0 if device == "sim" else stream_of(stream, (a, b, out), left)
        arrays = (left, right, result)
        key = (*map(identity, arrays), device, handle, option.debug.instruments)
        plan = self._plans.get(key) or self._prepare(key, arrays, device, handle)
        for step in plan.steps:
            step.run(handle)
        self.last_run = plan.ran
        return out

    def _prepare(
        self, key: object, arrays: tuple[Array, Array, Array], device: str, handle: int
    ) -> Plan:
        """Make the plan of a call, and keep it for calls like it: it holds no array of theirs."""
        if len(self._plans) >= LIMIT:
            self._plans.clear()
        a, b, out = (replace(x, owner=None) for x in arrays)
        made = plan(a, b, out, device, handle)
        return self._plans.setdefault(key, made)


matmul = Matmul()


def identity(x: Array) -> tuple[object, ...]:
    """Return what two arrays have in common that one plan will do for."""
    return (x.address, x.shape, x.strides, x.dtype, x.device)


def stream_of(stream: object, given: tuple[object, ...], array: Array) -> int:
    """Return the handle of the stream that a call on a GPU's arrays goes to."""
    assert array.device_index is not None
    return runtime.stream_handle(stream, given, array.device_index)


def plan(
    a: Array, b: Array, out: Array, device: str, handle: int = 0, schedule: Schedule | None = None
) -> Plan:
    """Choose kernels for a product, by ``schedule`` where one is given, and prepare them."""
    if 0 in out.shape:
        return Plan(Ran(device, "none"))
    if out.strides[0] == out.dtype.nbytes < out.strides[1]:  # column by column: make its transpose
        a, b, out = transposed(b), transposed(a), transposed(out)
    size = (a.shape[0], b.shape[1], a.shape[1])
    left, right, result = operand(a), operand(transposed(b)), operand(out)
    if left and right and result and not result.mn:
        chosen = schedule or measured().choose(size, left.mn, right.mn)
        if chosen is not None:
            chosen = limited(chosen, device)
            steps = product(size, left, right, result, chosen, device, handle)
            return Plan(Ran(device, "product", chosen), steps)
    return Plan(Ran(device, "plain"), (plain(size, a, b, out),))


def limited(schedule: Schedule, device: str) -> Schedule:
    """Return the schedule with no more blocks than the GPU runs at once."""
    if device == "sim":
        return schedule
    sms = runtime.gpus()[int(device.removeprefix("cuda:"))].sms
    return replace(schedule, num_blocks=min(schedule.num_blocks, sms))


def product(
    size: Size,
    a: Operand,
    b: Operand,
    out: Operand,
    schedule: Schedule,
    device: str,
    handle: int,
) -> tuple[Step, ...]:
    """Return the launches that make a product with TMA and WGMMA."""
    m, n, k = size
    split = schedule.split_k
    w = workspace(device, handle, split * m * n if split > 1 else 1)
    w = replace(w, shape=(split, m, n), strides=(4 * m * n, 4 * n, 4)) if split > 1 else w
    dtype = out.array.dtype
    scalars = {"m_size": m, "n_size": n, "k_size": k}
    pitches = {"a_pitch": a.pitch, "b_pitch": b.pitch, "c_pitch": out.pitch}
    arrays = {"a_ptr": a.array, "b_ptr": b.array, "c_ptr": out.array, "w_ptr": w}
    kernel = built(PRODUCTS[dtype], **schedule.values(), a_mn=a.mn, b_mn=b.mn)
    steps = (step(kernel, scalars | pitches, arrays),)
    if split == 1:
        return steps
    scalars = {"m_size": m, "n_size": n, "c_pitch": out.pitch}
    sums = built(SUMS[dtype], split_k=split)
    return (*steps, step(sums, scalars, {"w_ptr": w, "c_ptr": out.array}))


def plain(size: Size, a: Array, b: Array, out: Array) -> Step:
    """Return the launch that makes a product of any arrays."""
    m, n, k = size
    scalars = {"m_size": m, "n_size": n, "k_size": k}
    for name, array in (("a", a), ("b", b), ("c", out)):
        row, column = (stride // array.dtype.nbytes for stride in array.strides)
        scalars |= {f"{name}_row": row, f"{name}_column": column}
    arrays = {"a_ptr": a, "b_ptr": b, "c_ptr": out}
    return step(built(PLAIN[out.dtype]), scalars, arrays)


def step(
    kernel: tuple[Any, launch.Launcher], scalars: dict[str, int], arrays: dict[str, Array]
) -> Step:
    """Return one launch of a kernel on arrays that are what it takes."""
    script, launcher = kernel
    call = Call({}, scalars, arrays, ())
    return Step(launcher.prepare(script, call), call)


@functools.cache
def built(kernel: Any, **values: Any) -> tuple[Any, launch.Launcher]:
    """Return a kernel with a schedule and what keeps its programs, the same ones each time."""
    return kernel(**values), launch.Launcher(kernel_function(kernel))
