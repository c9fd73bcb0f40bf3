# SPDX-License-Identifier: Apache-2.0
"""The machine that instructions speak to: a thread block with its memory, barriers and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import Location, SimulationError
from tilus.simulator.access import Access, Agent, Kind, Owners, Proxy
from tilus.simulator.barriers import IssuedBarrier, MBarrier, Signal, ThreadBarrier
from tilus.simulator.clocks import Atoms, Clock, Knowledge, Mark
from tilus.simulator.engines import Effect, EffectWait, Engines
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.log import Kind as Operation
from tilus.simulator.log import Log
from tilus.simulator.memory import Geometry, GlobalMemory, SharedMemory
from tilus.simulator.pieces import check_begin, check_pieces
from tilus.simulator.schedule import Schedule, Work
from tilus.simulator.shadow import Shadow
from tilus.simulator.tiles import Tiles
from tilus.simulator.trace import Trace

Array = NDArray[Any]


@dataclass(eq=False)
class Cluster:
    """Blocks that run together: what they know of each other, and the barrier of all of them."""

    kernel: ir.Kernel
    memory: GlobalMemory
    size: int
    log: Log | None = None
    machines: list[BlockMachine] = field(default_factory=list)
    knowledge: Knowledge = field(init=False)
    barrier: ThreadBarrier = field(init=False)
    relaxed: list[tuple[Agent, Clock]] = field(default_factory=list)
    """The relaxed arrivals, and what they would have released."""

    def __post_init__(self) -> None:
        function = self.kernel.function
        self.knowledge = Knowledge(function, self.size)
        self.barrier = ThreadBarrier(function.threads.count * self.size)


class BlockMachine:
    """Implements :class:`tilus.ir.Machine` for one block, on behalf of ``group``."""

    def __init__(self, cluster: Cluster, schedule: Schedule, block: Block, trace: Trace) -> None:
        self.block, self.rank, self.trace = block, len(cluster.machines), trace
        self.schedule, self.cycles = schedule, 0.0
        self.work = Work()
        self.signal: Signal | None = None
        self.engines = Engines()
        self.barriers: dict[ir.BarrierArray, list[MBarrier]] = {}
        self.initialised: dict[ir.BarrierArray, Mark] = {}
        self.visited: list[tuple[Agent, Mark, bool]] = []
        """Agents of peers that came to this block's memory or barriers, how it may hear so, and
        whether they only read: then it is enough that they are over."""
        self.threads: ir.Threads
        self.group: ThreadGroup
        self.location: Location
        self.agent: Agent
        self._cluster, self._known, self._now = cluster, cluster.knowledge, 0.0
        plan = cluster.kernel.plan
        self._plan = plan
        self._shared, self._shadow = SharedMemory(plan), Shadow(plan.shared_bytes)
        self._tiles = Tiles(self.fail)
        self._global = cluster.memory
        self._thread_barriers: dict[ir.Threads, ThreadBarrier] = {}
        self._issued: list[IssuedBarrier] = []
        self._frozen: list[tuple[Kind, ir.SharedTensor, BlockMachine]] = []
        self._parts: dict[tuple[ir.SharedTensor, int], ir.SharedTensor] = {}
        self._views: dict[ir.GlobalTensor, tuple[list[int], list[int]]] = {}
        self._stmt: ir.Instruction | None = None
        self._launched = 0
        cluster.machines.append(self)

    def enter(self, group: ThreadGroup, location: Location, now: float | None = None) -> None:
        """Act for ``group`` from here on, with nothing charged yet; by default, at its time."""
        self.group, self.threads, self.location = group, group.threads, location
        self.work, self.signal, self._issued, self._frozen = Work(), None, [], []
        self._now = group.time if now is None else now

    def begin(self, group: ThreadGroup, stmt: ir.Instruction) -> None:
        """Act for ``group``, which comes to an instruction."""
        self.enter(group, stmt.location)
        self._stmt = stmt
        atoms = self._atoms
        mark = self._known.step(atoms)
        self.agent = self._agent(mark, self._known.common(atoms), type(stmt).__name__)
        if self._cluster.log:
            self._cluster.log.act(mark)
        self._tiles.touch(stmt, self.agent)

    def land(self, effect: Effect, now: float) -> None:
        """Let an effect land."""
        self.enter(effect.group, effect.location, now)
        self._stmt, self.agent = None, effect.agent
        if self._cluster.log:
            self._cluster.log.act(effect.agent.mark)
        self.engines.land(effect)

    def end(self) -> None:
        """Say that all threads of the block have ended."""
        self._cluster.barrier.leave(self._cluster.kernel.function.threads.count)

    def knowledge(self) -> Clock:
        """Return what the threads of the block know, all taken together."""
        return self._known.together(self.rank)

    def fail(self, verdict: str, message: str, **facts: object) -> NoReturn:
        """Raise the verdict with the place, the role and the block."""
        raise SimulationError(
            verdict,
            f"{self.location}: {self.threads.role} of block {self.block}: {message}",
            **(self.context() | facts),
        )

    def context(self) -> dict[str, object]:
        """Return who acts and where, for the facts of a verdict."""
        place = self.location
        role, file, line = self.threads.role, place.file, place.line
        return {"role": role, "file": file, "line": line, "block": self.block}

    @property
    def _atoms(self) -> Atoms:
        return self._known.atoms(self.rank, self.threads)

    def _agent(self, mark: Mark, clock: Clock, what: str, engine: str | None = None) -> Agent:
        signals = tuple(f"{b.array.name}[{self.value(b.index)}]" for b in self._issued)
        role = self.threads.role
        cluster = self._cluster
        return Agent(mark, clock, self.location, role, self.block, what, cluster, engine, signals)

    # Scalars and registers

    def value(self, x: ir.ExprLike) -> ir.Scalar:
        return x.value if isinstance(x, ir.Const) else self.group.value(x)

    def registers(self, tensor: ir.RegisterTensor) -> Array:
        return self.group.tile(tensor)

    def define(self, tensor: ir.RegisterTensor, values: Array) -> None:
        with np.errstate(over="ignore"):  # a conversion that overflows gives infinity, as cvt does
            self.group.tile(tensor)[...] = values

    def multiply(self, flop: float) -> None:
        self.work.flop += flop

    # Memory

    def load_shared(
        self,
        tensor: ir.SharedTensor,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: ir.RegisterTensor | None = None,
    ) -> Array:
        home, offset = self._peer(rank), self._offset(tensor)
        if proxy == "generic":  # an effect's accesses have been entered when it was launched
            home._enter(Access(self.agent, "read", proxy, tensor, offset), self, by)
        self.work.shared += tensor.nbytes
        self.work.reads += [_region(tensor, offset)] * (home is self)
        return home._shared.read(tensor, offset)

    def store_shared(
        self,
        tensor: ir.SharedTensor,
        values: Array,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: ir.RegisterTensor | None = None,
    ) -> None:
        home, offset = self._peer(rank), self._offset(tensor)
        if proxy == "generic":
            home._enter(Access(self.agent, "write", proxy, tensor, offset), self, by)
        self.work.shared += tensor.nbytes
        self.work.writes += [_region(tensor, offset)] * (home is self)
        home._shared.write(tensor, offset, values)

    def load_global(
        self,
        view: ir.GlobalTensor,
        offsets: list[int],
        shape: tuple[int, ...],
        *,
        by: ir.RegisterTensor | None = None,
    ) -> Array:
        geometry = self._geometry(view, offsets)
        if self.agent.engine:
            check_begin(self.fail, view, geometry)
        values = self._global.read(view, geometry, shape)
        self._enter_global("read", view, geometry, shape, by)
        self.work.loaded += values.nbytes
        return values

    def store_global(
        self,
        view: ir.GlobalTensor,
        offsets: list[int],
        values: Array,
        *,
        by: ir.RegisterTensor | None = None,
    ) -> None:
        geometry = self._geometry(view, offsets)
        if self.agent.engine:
            check_pieces(self.fail, view, geometry, values.shape[-1])
        self.work.stored += values.nbytes
        self._enter_global("write", view, geometry, values.shape, by)
        self._global.write(view, geometry, values)

    def _enter_global(
        self,
        kind: Kind,
        view: ir.GlobalTensor,
        geometry: Geometry,
        box: tuple[int, ...],
        by: ir.RegisterTensor | None,
    ) -> None:
        """Check and remember an access of device memory that the kernel writes."""
        if not self._global.remembers(view):
            return
        owners = None
        if by is not None:
            places = geometry.places(box) * view.dtype.nbytes
            layout, begin = self._plan.registers[by], self.threads.begin
            owners = Owners(places, view.dtype.nbytes, layout, begin)
        proxy: Proxy = "async" if self.agent.engine else "generic"
        access = Access(self.agent, kind, proxy, view, 0, owners, tuple(geometry.offsets))
        conflict = self._global.enter(access, view, geometry, box)
        if conflict:
            self._refuse(access, *conflict)

    def freeze(
        self, tensor: ir.SharedTensor, kind: Kind, *, rank: int | None = None
    ) -> ir.SharedTensor:
        self._frozen.append((kind, tensor, self._peer(rank)))
        at = tensor, self._offset(tensor)
        if at not in self._parts:
            self._parts[at] = replace(tensor, offset=ir.as_expr(at[1]))
        return self._parts[at]

    def fence_proxy(self) -> None:
        self._known.fence(self._atoms)

    def fence_registers(self) -> None:
        self._tiles.fence(self.threads)

    def _enter(self, access: Access, actor: BlockMachine, by: ir.RegisterTensor | None) -> None:
        """Check and remember an access of this block's shared memory by ``actor``."""
        if actor is not self:
            self._check_begun(actor, access.agent)
            self.visited.append((access.agent, access.agent.mark, access.kind == "read"))
            access = replace(access, home=self.block)
        tensor = access.tensor
        assert isinstance(tensor, ir.SharedTensor)
        if by is not None:
            layout, begin = self._plan.registers[by], actor.threads.begin
            owners = self._shared.owners(tensor, access.offset, layout, begin)
            access = replace(access, owners=owners)
        where = self._shared.intervals(tensor, access.offset)
        conflict = self._shadow.enter(access, where)
        if conflict:
            earlier, missing = conflict
            if actor.waited_alone(earlier.agent):
                missing = access.unmet(earlier)
            actor._refuse(access, earlier, missing)

    def _refuse(self, access: Access, earlier: Access, missing: str) -> NoReturn:
        """Raise the race of an access with an earlier one."""
        clock = access.agent.clock
        for arrival, released in self._cluster.relaxed:
            if arrival.mark.known(clock.before) and earlier.agent.mark.known(released):
                missing = access.relaxed(earlier, arrival)
                break
        message, facts = access.verdict(earlier, missing)
        self.fail("race", message, **facts)

    def waited_alone(self, effect: Agent) -> bool:
        """Say whether a thread of the acting group has waited for an effect, but not all of it."""
        some = self._known.release(self._atoms)
        return effect.engine is not None and effect.mark.known(some)

    def _offset(self, tensor: ir.SharedTensor) -> int:
        offset, size = int(self.value(tensor.offset)), tensor.nbytes // tensor.dtype.nbytes
        room = tensor.buffer.nbytes // tensor.dtype.nbytes
        if not 0 <= offset <= room - size:
            self.fail("protocol", f"index of {tensor.name} out of range", name=tensor.name)
        return offset

    def _geometry(self, view: ir.GlobalTensor, offsets: Sequence[int]) -> Geometry:
        if view not in self._views:  # they depend on the kernel's parameters alone
            shape, strides = ([int(self.value(x)) for x in xs] for xs in (view.shape, view.strides))
            self._views[view] = shape, strides
        return Geometry(*self._views[view], offsets)

    # Barriers

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

    def _peer(self, rank: int | None) -> BlockMachine:
        """Return the block of the cluster that has a rank; None is this one."""
        if rank is None:
            return self
        if not 0 <= rank < self._cluster.size:
            rule = f"must be in 0..{self._cluster.size - 1}, got {rank}"
            self.fail("protocol", f"rank of a block of the cluster {rule}", rank=rank)
        return self._cluster.machines[rank]

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

    def _check_peer(self, array: ir.BarrierArray, index: int, home: BlockMachine) -> None:
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

    def _check_begun(self, actor: BlockMachine, agent: Agent) -> None:
        """Refuse a peer's access of this block's memory where the block may not have begun yet."""
        if not self._known.begun(self.rank, agent.clock):
            message = (
                "a peer's shared memory is used before the cluster knows it: no cluster.sync() "
                f"says that block {self.block} has begun"
            )
            actor.fail("protocol", message, peer=self.block)

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

    # Engines

    def launch(
        self,
        engine: Literal["tma", "wgmma", "store"],
        land: Callable[[], None],
        *,
        amount: float,
        what: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        start, time = self.schedule.flight(engine, self.group.time, amount)
        read = self.schedule.read(start, time) if then else time
        effect = self._effect(engine, land, what, start, read, amount)
        for kind, tensor, home in self._frozen:
            access = Access(effect.agent, kind, "async", tensor, self._offset(tensor))
            home._enter(access, self, None)
        if then:
            effect.then = self._effect(engine, then, what, read, time, amount)
            effect.then.agent = _behind(effect.then.agent, effect.agent.mark)
        self.engines.launch(effect)
        if self._stmt is not None:
            self._tiles.launch(self._stmt, effect.agent)
        self._issued, self._frozen = [], []

    def _effect(
        self,
        engine: str,
        land: Callable[[], None],
        what: str,
        start: float,
        time: float,
        amount: float,
    ) -> Effect:
        self._launched += 1
        atoms = self._atoms
        agent = self._agent(self._known.effect(atoms), self._known.common(atoms), what, engine)
        return Effect(
            engine,
            self.group,
            self.location,
            land,
            what,
            start,
            time,
            self._launched,
            tuple(self._issued),
            self.group.time,
            amount,
            agent,
            self.group.next_key(),
        )

    def commit(self, engine: Literal["wgmma", "store"]) -> None:
        self.engines.commit((engine, self.threads.begin))

    def wait_commits(
        self, engine: Literal["wgmma", "store"], pending: int, *, read: bool = False
    ) -> ir.Wait:
        atoms = self._atoms

        def passed(awaited: list[Effect]) -> None:
            for effect in awaited:
                self._known.acquire_effect(atoms, effect.agent.mark, effect.agent.clock.before)

        return self.engines.wait((engine, self.threads.begin), pending, read, passed)


def _behind(agent: Agent, first: Mark) -> Agent:
    """Return the agent of an effect's second step, which knows that the first is over."""
    clock = agent.clock
    return replace(agent, clock=clock._replace(done=clock.done | first.bit))


def _region(tensor: ir.SharedTensor, offset: int) -> ir.Region:
    begin = offset * tensor.dtype.nbytes
    return ir.Region(tensor.name, begin, begin + tensor.nbytes)
