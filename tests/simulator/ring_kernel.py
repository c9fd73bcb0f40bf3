# SPDX-License-Identifier: Apache-2.0
"""The ring of V3 as hand-made IR, with the mistakes one can make in it as parameters.

The simulator is judged on it without the frontend: a statement's line number counts statements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import numpy as np

from tilus import ir, passes
from tilus.dtypes import float16, float32, int32, uint32, uint64
from tilus.errors import Location
from tilus.ops import alloc, math, mbarrier, memory, tma, wgmma

PRODUCER, CONSUMER = ir.Threads(128, 32), ir.Threads(0, 128)


@dataclass
class Ring:
    """C[m, n] = A[m, k] · B[n, k]ᵀ in a ring of ``stages``; other fields get it wrong."""

    stages: int = 2
    block_m: int = 64
    block_n: int = 8
    block_k: int = 16
    full_count: int = 1
    empty_count: int = 128
    producer_phase: int = 1
    consumer_phase: int = 0
    arrives: bool = True
    commits: bool = True
    waits: bool = True
    drains_from_zero: bool = True
    drains: int | None = None  # instead of min(stages, tiles)
    bytes_expected: int = 0  # difference to the right number
    lines: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = count(1)

    def at(self, name: str = "") -> Location:
        line = next(self._numbers)
        self.lines[name] = line
        return Location("ring.py", line)

    def op(self, cls, threads, /, **arguments):
        """Build an instruction the way the frontend does."""
        place = self.at(cls.__name__)
        site = ir.Site(arguments.pop("name", cls.__name__), threads, place)
        if "out" in cls.__dataclass_fields__:
            arguments["out"] = cls.result(site, **arguments)
        stmt = cls(location=place, threads=threads, **arguments)
        stmt.verify()
        return stmt

    def kernel(self) -> ir.Kernel:
        m, n, k = (ir.Var(name, int32) for name in "mnk")
        a, b, c = (ir.Var(name, uint64) for name in ("a_ptr", "b_ptr", "c_ptr"))
        self.k, block = k, ir.Threads(0, 160)
        self.offsets = [
            ir.Builtin("blockIdx.x") * self.block_m,
            ir.Builtin("blockIdx.y") * self.block_n,
        ]
        head = [
            self.op(alloc.global_view, block, name=name, ptr=p, dtype=float16, shape=shape)
            for name, p, shape in (("ga", a, [m, k]), ("gb", b, [n, k]), ("gc", c, [m, n]))
        ]
        self.ga, self.gb, self.gc = (stmt.out for stmt in head)
        for name, rows in (("sa", self.block_m), ("sb", self.block_n)):
            shape = [self.stages, rows, self.block_k]
            head.append(self.op(alloc.shared_tensor, block, name=name, dtype=float16, shape=shape))
        self.sa, self.sb = head[-2].out, head[-1].out
        for name, arrivals in (("full", self.full_count), ("empty", self.empty_count)):
            head.append(self.op(mbarrier.alloc, block, name=name, counts=[arrivals] * self.stages))
        self.full, self.empty = head[-2].out, head[-1].out
        params = [ir.Param(v.name, int32, v) for v in (m, n, k)]
        params += [ir.Param(v.name, float16, v, pointer=True) for v in (a, b, c)]
        blocks = (_cdiv(m, self.block_m), _cdiv(n, self.block_n), ir.as_expr(1))
        body = (*head, *self._producer(), *self._consumer())
        place = Location("ring.py", 0)
        return passes.plan(ir.Function("ring", tuple(params), blocks, 5, body, place))

    def _step(self, stage):
        value = (stage + 1) % self.stages
        return ir.Assign(location=self.at(), var=stage, value=value)

    def _wait(self, name, threads, barriers, phases, stage):
        wait = self.op(mbarrier.wait, threads, barrier=barriers[stage], phase=phases[stage])
        self.lines[name] = wait.location.line
        flip = ir.cast(phases[stage] ^ 1, uint32)
        return wait, ir.SetElement(location=self.at(), tensor=phases, index=stage, value=flip)

    def _phases(self, threads, init):
        return self.op(
            alloc.register_tensor,
            threads,
            name="phases",
            dtype=uint32,
            shape=[self.stages],
            init=init,
        )

    def _producer(self):
        stage, offset = ir.Var("stage", int32), ir.Var("offset_k", int32)
        phases = self._phases(PRODUCER, self.producer_phase)
        one, (row, column) = ir.Threads(128, 1), self.offsets
        sa, sb = self.sa[stage], self.sb[stage]
        nbytes = sa.nbytes + sb.nbytes + self.bytes_expected
        full = self.full[stage]
        fill = self._wait("producer", PRODUCER, self.empty, phases.out, stage)
        issue = (
            self.op(mbarrier.arrive_and_expect_tx, one, barrier=full, transaction_bytes=nbytes),
            self.op(
                tma.global_to_shared, one, src=self.ga, dst=sa, offsets=[row, offset], mbarrier=full
            ),
            self.op(
                tma.global_to_shared,
                one,
                src=self.gb,
                dst=sb,
                offsets=[column, offset],
                mbarrier=full,
            ),
        )
        elected = ir.Group(location=self.at(), threads=one, body=issue, elect=True)
        tiles = _cdiv(self.k, self.block_k)
        drain = (*self._wait("drain", PRODUCER, self.empty, phases.out, stage), self._step(stage))
        reset = ir.Assign(location=self.at(), var=stage, value=ir.as_expr(0))
        drains = self.drains or ir.apply("min", tiles, self.stages)
        short = tiles < self.stages if self.drains_from_zero else ir.as_expr(False)
        body = (
            phases,
            ir.Declare(location=self.at(), var=stage, value=ir.as_expr(0)),
            self._for(offset, self.k, self.block_k, (*fill, elected, self._step(stage))),
            ir.If(location=self.at(), cond=short, then=(reset,)),
            self._for(ir.Var("_", int32), drains, 1, drain),
        )
        return [ir.Group(location=self.at(), threads=PRODUCER, body=body)]

    def _consumer(self):
        stage = ir.Var("stage", int32)
        phases = self._phases(CONSUMER, self.consumer_phase)
        shape = [self.block_m, self.block_n]
        acc = self.op(
            alloc.register_tensor, CONSUMER, name="acc", dtype=float32, shape=shape, init=0.0
        )
        loop = [*self._wait("consumer", CONSUMER, self.full, phases.out, stage)]
        loop.append(self.op(wgmma.fence, CONSUMER))
        b = self.sb[stage].transpose()
        loop.append(self.op(wgmma.mma, CONSUMER, a=self.sa[stage], b=b, acc=acc.out))
        if self.commits:
            loop.append(self.op(wgmma.commit_group, CONSUMER))
        if self.waits:
            loop.append(self.op(wgmma.wait_group, CONSUMER, n=0))
        if self.arrives:
            loop.append(self.op(mbarrier.arrive, CONSUMER, barrier=self.empty[stage]))
        half = self.op(math.cast, CONSUMER, name="half", x=acc.out, dtype=float16)
        body = (
            phases,
            acc,
            ir.Declare(location=self.at(), var=stage, value=ir.as_expr(0)),
            self._for(ir.Var("_", int32), self.k, self.block_k, (*loop, self._step(stage))),
            half,
            self.op(memory.store_global, CONSUMER, dst=self.gc, src=half.out, offsets=self.offsets),
        )
        return [ir.Group(location=self.at(), threads=CONSUMER, body=body)]

    def _for(self, var, stop, step, body):
        start, stop, step = (ir.as_expr(x) for x in (0, stop, step))
        return ir.For(location=self.at(), var=var, start=start, stop=stop, step=step, body=body)


def _cdiv(x, y):
    return (x + (y - 1)) // y


def matrices(m: int, n: int, k: int, seed: int = 0):
    """Return arguments with entries from {-1, 0, 1} and a poisoned C, and the exact product."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = np.full(m * n, np.nan, np.float16)
    arguments = dict(m=m, n=n, k=k, a_ptr=a.reshape(-1), b_ptr=b.reshape(-1), c_ptr=c)
    return arguments, a.astype(np.int64) @ b.astype(np.int64).T
