# SPDX-License-Identifier: Apache-2.0
"""What the cost model says of a whole matmul: from one simulated block to milliseconds.

The design page "Cost model" explains the formula. It predicts what a schedule can reach where
nothing but the model's own limits holds it back; the difference to a measurement is what the model
leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilus import compiler, ir, loader, records, simulator, timeline
from tilus.ir.function import REGISTER_FILE
from tilus.simulator import Costs
from tilus.traces import Trace

SMS = 132  # of the H100 SXM and the H200 SXM
REGISTER_UNIT = 256  # what a warp gets of the register file is a multiple of it
THREADS, BLOCKS = 2048, 32  # that an SM can hold
SHARED_BYTES, SHARED_RESERVED = 228 * 1024, 1024  # of an SM; taken by the system for each block
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 9.0."""

PEAK_MHZ = 989e12 / (SMS * Costs().wgmma_flop) / 1e6
"""The clock at which the tensor cores reach the published peak."""

TILES, WINDOW = 36, 24  # of a simulated block, and of those the last ones, whose ring turns

Values = Mapping[str, Any]


def one_block(script: Any, tiles: int, outputs: int = 1, *, trace: bool = True) -> simulator.Result:
    """Run ``script`` on a matmul of one block and ``tiles`` tiles of K; all numbers are zero.

    ``script`` is a step of the ladder with its schedule: it has ``block_m``, ``block_n`` and
    ``block_k``, and the parameters that :mod:`tilus.workload` passes. A persistent one, which has
    ``num_blocks``, computes ``outputs`` tiles of C, one after the other.
    """
    if hasattr(script, "num_blocks"):
        script = type(script)(**script.schedule | {"num_blocks": 1})
    m, n, k = outputs * script.block_m, script.block_n, tiles * script.block_k
    kernel = script.lower(n_size=n, k_size=k)
    elements = {"a_ptr": m * k, "b_ptr": n * k, "c_ptr": m * n}
    pointers = [p for p in kernel.function.params if p.pointer]
    arrays = {p.name: np.zeros(elements[p.name], p.dtype.numpy) for p in pointers}
    return simulator.run(kernel, {"m_size": m, **arrays}, trace=trace)


def traced(script: Any, trace: Trace) -> simulator.Result:
    """Return what the simulator says of a recorded block, whose kernel and schedule is ``script``.

    A block of a grid that has fewer blocks than tiles of C is persistent and computes several.
    """
    m, n, k = trace.size
    tiles, blocks = _outputs(script, m, n), math.prod(trace.data["grid"])
    outputs = len(range(trace.block[0], tiles, blocks)) if blocks < tiles else 1
    return one_block(script, -(-k // script.block_k), outputs)


def _outputs(script: Any, m: int, n: int) -> int:
    """Return how many tiles C has."""
    return int(math.ceil(m / script.block_m) * math.ceil(n / script.block_n))


def resident(kernel: ir.Kernel, registers: int) -> int:
    """Return how many blocks of a kernel an SM holds at once; ``registers`` are a thread's."""
    warps, threads = kernel.function.warps, kernel.function.threads.count
    by_warp = -(-32 * registers // REGISTER_UNIT) * REGISTER_UNIT
    shared = kernel.plan.shared_bytes + SHARED_RESERVED
    limits = (REGISTER_FILE // (by_warp * warps), THREADS // threads, SHARED_BYTES // shared)
    return min(*limits, BLOCKS)


@dataclass(frozen=True)
class Prediction:
    """A launch by the model: ``blocks`` of ``tiles`` tiles of K, ``resident`` at once on each SM.

    ``steady`` is what one block alone does. A persistent block does so for up to ``outputs`` tiles
    of C, and from one to the next it takes ``turn`` cycles besides.
    """

    blocks: int
    tiles: int
    resident: int
    sms: int
    steady: timeline.Steady
    outputs: int = 1
    turn: float = 0.0

    def limits(self, together: int) -> dict[str, float]:
        """Return the cycles that each limit asks for a tile of each of ``together`` blocks."""
        c, s = Costs(), self.steady
        return {
            "tensor cores": together * (s.flop / c.wgmma_flop + s.mma_flop / c.mma_flop),
            "copies": together * s.copied / c.tma_bytes,
            "one block's own step": s.step,
        }

    @property
    def limit(self) -> str:
        """What decides the time of a step when each SM holds as many blocks as fit."""
        limits = self.limits(self.resident)
        return max(limits, key=lambda name: limits[name])

    @property
    def waves(self) -> float:
        """How often the blocks that fit on all SMs at once are replaced."""
        return self.blocks / (self.sms * self.resident)

    @cached_property
    def cycles(self) -> float:
        """The launch's cycles: full waves, then one of what is left."""
        full, left = divmod(self.blocks, self.sms * self.resident)
        last = -(-left // self.sms)
        return full * self._wave(self.resident) + (self._wave(last) if last else 0.0)

    def _wave(self, together: int) -> float:
        products = self.outputs * self.tiles * max(self.limits(together).values())
        return self.steady.rest + products + (self.outputs - 1) * self.turn

    def milliseconds(self, mhz: float) -> float:
        """Return the launch's time at a clock of the SMs."""
        return self.cycles / mhz / 1e3


def predict(script: Any, m: int, n: int, k: int, *, resident: int, sms: int = SMS) -> Prediction:
    """Predict ``script``, a step of the ladder with its schedule, for one size."""
    function = script.lower(n_size=n, k_size=k).function
    x, y, z = function.grid({p.var: m for p in function.params if not p.pointer})
    alone = one_block(script, TILES)
    steady = timeline.steady(alone.events, WINDOW)
    blocks = x * y * z
    outputs, turn = -(-_outputs(script, m, n) // blocks), 0.0
    if outputs > 1:
        turn = one_block(script, TILES, 2).cycles - alone.cycles - TILES * steady.step
    return Prediction(blocks, -(-k // script.block_k), resident, sms, steady, outputs, turn)


@dataclass(frozen=True)
class Compared:
    """A prediction for a measurement, at the clock ``mhz`` that it ran at.

    ``recorded`` is false where the record has no clock, as of bursts, which are too short to read
    one: the prediction is then for the clock of the published peak.
    """

    prediction: Prediction
    mhz: float
    recorded: bool
    measured_ms: float

    @property
    def predicted_ms(self) -> float:
        """The predicted time."""
        return self.prediction.milliseconds(self.mhz)

    @property
    def ratio(self) -> float:
        """The predicted time over the measured one: 1 is a model that leaves nothing out."""
        return self.predicted_ms / self.measured_ms


def compare(
    record: records.Record, root: Path, version: str, m: int, n: int, k: int, regime: str
) -> Compared:
    """Predict what ``record`` has measured, with the schedule it was measured with.

    The kernel is that of the tree at ``root``. Raises :class:`~tilus.errors.ArgumentError` where
    the record lacks the problem.
    """
    summary = record.summary(version, m, n, k, regime)
    source, schedule = record.sources["kernels"][version], summary.schedule or {}
    script = loader.find(root / source["file"], object, source["class"])(**schedule)
    rows = record.select(version=version, m=m, n=n, k=k, regime=regime)
    clocks = [mhz for row in rows for mhz in row.get("sm_mhz", ())]
    fit = _resident(source, script, n, k)
    prediction = predict(script, m, n, k, resident=fit, sms=record.environment["sms"] or SMS)
    mhz = median(clocks) if clocks else PEAK_MHZ
    return Compared(prediction, mhz, bool(clocks), summary.latency_ms)


def _resident(source: Values, script: Any, n: int, k: int) -> int:
    """Return what the record says of the schedule at this size, or what its compilation says."""
    for entry in source["generated"]:
        same = entry["schedule"] == script.schedule and "facts" in entry
        if same and entry["arguments"] == {"n_size": n, "k_size": k}:
            return int(entry["facts"]["blocks_per_sm"])
    kernel = script.lower(n_size=n, k_size=k)
    return resident(kernel, compiler.build(kernel).cubin.registers)
