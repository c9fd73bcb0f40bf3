# SPDX-License-Identifier: Apache-2.0
"""A block's barriers as instructions and effects come to them: arrivals, bytes, waits."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tilus import ir
from tilus.errors import SimulationError
from tilus.simulator.access import Agent
from tilus.simulator.acting import Acting, Cluster
from tilus.simulator.barriers import IssuedBarrier, MBarrier, Signal, ThreadBarrier
from tilus.simulator.clocks import Clock, Mark
from tilus.simulator.engines import EffectWait
from tilus.simulator.group import Block
from tilus.simulator.log import Kind as Operation
from tilus.simulator.schedule import Schedule
from tilus.simulator.trace import Trace


class Sync(Acting):
    """mbarriers, of the block and of its peers, and the barriers of threads."""

    def __init__(self, cluster: Cluster, schedule: Schedule, block: Block, trace: Trace) -> None:
        super().__init__(cluster, schedule, block, trace)
        self.barriers: dict[ir.BarrierArray, list[MBarrier]] = {}
        self.initialised: dict[ir.BarrierArray, Mark] = {}
        self._thread_barriers: dict[ir.Threads, ThreadBarrier] = {}

    # mbarriers

    def init_barriers(self, barrier: ir.Barrier) -> None:
        array = barrier.array
        self.initialised[array] = self.agent.mark
        self.barriers[array] = [
            MBarrier(array.name, i, count, self.fail, self._changed)
            for i, count in enumerate(array.counts)
        ]

    def arrive(
        self,
        barrier: ir.Barrier,
        count: int,
        expect_bytes: int = 0,
        *,
        rank: int | None = None,
        relaxed: bool = False,
    ) -> None:
        target, known, atoms = self._barrier(barrier, rank), self._known, self._atoms
        afar = self._peer(rank) is not self
        signal = known.effect(atoms) if afar else self.agent.mark
        self._visit(rank, target, signal)
        if relaxed:
            self._cluster.relaxed.append((self.agent, known.release(atoms)))
        elif afar:
            target.peers[target.phase] = self.agent
        self._signal(barrier, target, target.phase)
        self._operate(target, "arrive" if count else "expect", target.phase, self.agent, signal)
        clock = known.relaxed(atoms) if relaxed else known.release(atoms)
        target.release(clock.learn(signal.bit, clock.before))
        target.arrive(count, expect_bytes)

    def complete_bytes(self, barrier: ir.Barrier, nbytes: int) -> None:
        issued = barrier if isinstance(barrier, IssuedBarrier) else None
        target = self._barrier(barrier, issued.rank if issued else None)
        self._visit(issued.rank if issued else None, target, self.agent.mark)
        issued_in = issued.phase if issued else target.phase
        self._signal(barrier, target, issued_in)
        self._operate(target, "bytes", target.phase, self.agent)
        target.release(self._completed())
        target.complete(nbytes, issued_in)

    def freeze_barrier(self, barrier: ir.Barrier, *, rank: int | None = None) -> ir.Barrier:
        target, home = self._barrier(barrier, rank), self._peer(rank)
        index = ir.as_expr(target.index)
        frozen = IssuedBarrier(barrier.array, index, target.phase, home.rank)
        self._issued.append(frozen)
        return frozen

    def wait_barrier(self, barrier: ir.Barrier, parity: int, *, cluster: bool = False) -> ir.Wait:
        target = self._barrier(barrier)
        if parity not in (0, 1):
            self.fail("protocol", f"parity of {target.label} must be 0 or 1, got {parity}")
        awaited, atoms = target.awaited(parity), self._atoms
        self._signal(barrier, target, awaited)
        target.waits[self.agent] = awaited

        def passed() -> None:
            self._operate(target, "wait", awaited, agent)
            if not cluster and awaited in target.peers:
                self._unseen(target, target.peers[awaited], agent)
            clock = target.released.get(target.waits.pop(agent))
            if clock is not None:
                self._known.acquire(atoms, clock)

        agent = self.agent
        return EffectWait(
            ready=lambda: target.over(parity),
            describe=lambda: f"{target.label}, parity {parity}: {target.lacks()}",
            facts=lambda: {**target.facts(), "parity": parity},
            passed=passed,
            needs=lambda effect: any(self._is(b, target) for b in effect.barriers),
        )

    def _unseen(self, barrier: MBarrier, arrival: Agent, wait: Agent) -> NoReturn:
        """Refuse a wait that does not see what a peer released when it arrived."""
        missing = f"{wait.noun} must name scope='cluster'"
        message = (
            f"{wait.location}: {wait.role} of block {wait.block}: the wait for {barrier.label} "
            f"sees nothing of what {arrival.role} of block {arrival.block} did before "
            f"{arrival.noun}: {missing}"
        )
        first, second = arrival.facts() | {"kind": "arrive"}, wait.facts() | {"kind": "wait"}
        facts = wait.facts() | barrier.facts()
        raise SimulationError(
            "race", message, **(facts | {"first": first, "second": second, "missing": missing})
        )

    # Barriers of threads

    def wait_threads(self, threads: ir.Threads) -> ir.Wait:
        barrier = self._thread_barriers.setdefault(threads, ThreadBarrier(threads.count))
        return self._meet(barrier, threads.role)

    def wait_cluster(self) -> ir.Wait:
        return self._meet(self._cluster.barrier, "the cluster")

    def _meet(self, barrier: ThreadBarrier, whose: str) -> ir.Wait:
        """Return the wait until all threads of a barrier have come to it."""
        atoms = self._atoms
        generation = barrier.arrive(self.threads.count, self._known.release(atoms))
        return ir.Wait(
            ready=lambda: barrier.generation > generation,
            describe=lambda: (
                f"the barrier of {whose}: {barrier.count - barrier.come} threads missing"
            ),
            kind="sync",
            facts=lambda: {"threads_missing": barrier.count - barrier.come},
            passed=lambda: self._known.acquire(atoms, barrier.released[generation]),
        )

    # What all of them need

    def _visit(self, rank: int | None, target: MBarrier, signal: Mark) -> None:
        """Remember that another block must be there as long as its barrier is signalled."""
        home = self._peer(rank)
        if home is not self:
            home.visited.append((replace(self.agent, signals=(target.label,)), signal, False))

    def _barrier(self, barrier: ir.Barrier, rank: int | None = None) -> MBarrier:
        array, index, home = barrier.array, int(self.value(barrier.index)), self._peer(rank)
        if home is not self:
            self._check_peer(array, index, home)
        if array not in home.barriers:
            self.fail("protocol", f"{array.name} is used before it is initialised")
        if not 0 <= index < len(array):
            rule = f"must be in 0..{len(array) - 1}, got {index}"
            self.fail("protocol", f"index of {array.name} {rule}", barrier=array.name, index=index)
        return home.barriers[array][index]

    def _check_peer(self, array: ir.BarrierArray, index: int, home: Sync) -> None:
        """Refuse a peer's barrier that the acting threads cannot know to be initialised."""
        init = home.initialised.get(array)
        if init is None or not init.known(self.agent.clock):
            label = f"{array.name}[{index}] of block {home.block}"
            message = (
                f"a peer's barrier is used before the cluster knows it: no cluster.sync() lies "
                f"between the initialisation of {label} and this"
            )
            facts = {"barrier": array.name, "index": index, "stage": index, "peer": home.block}
            self.fail("protocol", message, **facts)

    def _completed(self) -> Clock:
        """Return what an effect that completes lets others know: itself, and nothing else."""
        return self._known.empty().learn(self.agent.mark.bit, self.agent.clock.before)

    def _operate(
        self,
        barrier: MBarrier,
        kind: Operation,
        phase: int,
        agent: Agent,
        signal: Mark | None = None,
    ) -> None:
        if self._cluster.log:
            self._cluster.log.operate(barrier, kind, phase, agent, signal or agent.mark)

    def _signal(self, barrier: ir.Barrier, target: MBarrier, phase: int) -> None:
        self.signal = Signal(target.label, target.index, phase, len(barrier.array))

    def _changed(self, barrier: MBarrier, cause: str) -> None:
        self.trace.barrier(self._now, barrier, cause)
        if cause == "phase":
            self._check_bytes(barrier)

    def _check_bytes(self, barrier: MBarrier) -> None:
        """Refuse the end of a phase that copies have yet to bring bytes to."""
        for effect in (e for m in self._cluster.machines for e in m.engines.pending):
            for issued in effect.barriers:
                if issued.phase < barrier.phase and self._is(issued, barrier):
                    place, phase = effect.location, issued.phase
                    message = (
                        f"bytes left over at {barrier.label}: phase {phase} ends before the copy "
                        f"at {place} has landed; it expected fewer bytes than its copies carry"
                    )
                    facts = barrier.facts() | {"phase": phase, "file": place.file}
                    self.fail("protocol", message, **(facts | {"line": place.line}))

    def _is(self, barrier: IssuedBarrier, target: MBarrier) -> bool:
        found = self._cluster.machines[barrier.rank].barriers[barrier.array]
        return found[int(self.value(barrier.index))] is target
