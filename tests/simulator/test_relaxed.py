# SPDX-License-Identifier: Apache-2.0
"""Relaxed arrivals at a peer's barrier: they say which reads are over, and hand on no write."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import do, group, kernel, place, when

import tilus
from tilus import float32, ir, simulator, uint32
from tilus.simulator.access import Access, Agent
from tilus.simulator.clocks import Knowledge
from tilus.simulator.shadow import Shadow

ROWS, TURNS = 16, 3


class Mailbox(tilus.Script):
    """Block 0 writes a tile of the last block, which reads it, or ``writes``, again and again.

    A message that the tile is full goes by way of the blocks between; that it is empty again, too.
    ``full`` and ``empty`` say how the first arrival of each is made, ``sync`` whether the readers
    meet before, ``alone`` whether one of their threads arrives for all.
    """

    def __init__(
        self, full="release", empty="release", *, blocks=2, sync=True, alone=True, writes=False
    ):
        self.full, self.empty, self.writes = full, empty, writes
        self.blocks, self.meet, self.alone = blocks, sync, alone

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 4
        gx = self.global_view(x_ptr, dtype=float32, shape=[TURNS * ROWS, 64])
        gy = self.global_view(y_ptr, dtype=float32, shape=[TURNS * ROWS, 64])
        box = self.shared_tensor(dtype=float32, shape=[ROWS, 64])
        full = self.mbarrier.alloc(1)
        empty = self.mbarrier.alloc(1 if self.alone else 128)
        back = self.mbarrier.alloc(1)
        self.cluster.sync()
        rank, last = self.cluster.blockRank, self.blocks - 1
        there = self.cluster.map_shared_addr(box, rank=last)
        phase: uint32 = 0
        for turn in self.range(TURNS):
            if rank == 0:
                if turn > 0:
                    ready = empty if self.blocks == 2 else back
                    self.mbarrier.wait(ready, phase=phase ^ 1, scope="cluster")
                x = self.load_global(gx, offsets=[turn * ROWS, 0], shape=[ROWS, 64])
                self.store_shared(there, x)
                self.sync()
                with self.single_thread():
                    self.mbarrier.arrive_remote(full, rank=1, sem=self.full)
            if rank == last:
                self.mbarrier.wait(full, phase=phase, scope="cluster")
                if self.writes:
                    nothing = self.register_tensor(dtype=float32, shape=[ROWS, 64], init=0)
                    self.store_shared(box, nothing)
                else:
                    y = self.load_shared(box)
                    self.store_global(gy, y, offsets=[turn * ROWS, 0])
                if self.meet:
                    self.sync()
                self.emptied(empty)
            if self.blocks == 3 and rank == 1:
                with self.single_thread():
                    self.mbarrier.wait(full, phase=phase, scope="cluster")
                    self.mbarrier.arrive_remote(full, rank=2)
                    self.mbarrier.wait(empty, phase=phase, scope="cluster")
                    self.mbarrier.arrive_remote(back, rank=0)
            phase ^= 1
        self.cluster.sync()

    def emptied(self, empty):
        """Say that the tile has been read."""
        if self.alone:
            with self.single_thread():
                self.mbarrier.arrive_remote(empty, rank=self.blocks - 2, sem=self.empty)
        else:
            self.mbarrier.arrive_remote(empty, rank=self.blocks - 2, sem=self.empty)


def judged(**options) -> simulator.Judgement:
    x = np.arange(TURNS * ROWS * 64, dtype=np.float32)
    arguments = {"x_ptr": x, "y_ptr": np.full_like(x, np.nan)}
    return simulator.judge(Mailbox(**options).lower(), arguments)


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("empty", ["release", "relaxed"])
def test_that_reads_are_over_a_relaxed_arrival_hands_on(empty, blocks):
    found = judged(empty=empty, blocks=blocks)
    assert found.proved, found.message


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("second, what", [("read", "load_shared"), ("write", "store_shared")])
def test_no_write_of_threads_is_published_by_a_relaxed_arrival(blocks, second, what):
    """Nor by a release behind it: the middle block knows no more than it was told."""
    assert judged(blocks=blocks, writes=second == "write").proved
    found = judged(full="relaxed", blocks=blocks, writes=second == "write")
    assert found.verdict == "race", found.message
    assert f"is relaxed, and orders no write before the {what}" in found.facts["missing"]
    assert "sem='release', and its wait scope='cluster'" in found.message
    assert (found.facts["first"]["kind"], found.facts["second"]["kind"]) == ("write", second)


def test_threads_that_read_meet_before_a_relaxed_arrival():
    """Each thread has asked for its values, but where they are not used they may not have come."""
    assert judged(alone=False, sync=False).proved
    assert judged(empty="relaxed", alone=False).proved
    found = judged(empty="relaxed", alone=False, sync=False)
    assert found.verdict == "race", found.message
    assert "orders a read by threads only with a sync() between" in found.facts["missing"]
    assert (found.facts["first"]["kind"], found.facts["second"]["kind"]) == ("read", "write")


def test_what_no_arrival_would_have_released_a_relaxed_one_is_not_blamed_for():
    missing = judged(empty="relaxed", sync=False).facts["missing"]
    assert missing.startswith("no mbarrier or sync() leads from the load_shared")


class Visit(tilus.Script):
    """Block 0 reads a tile of block 1, or writes it, and says so; then block 1 ends."""

    def __init__(self, sem, *, sync=True, writes=False):
        self.sem, self.meet, self.writes = sem, sync, writes

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        gy = self.global_view(y_ptr, dtype=float32, shape=[ROWS, 64])
        box = self.shared_tensor(dtype=float32, shape=[ROWS, 64])
        done = self.mbarrier.alloc(1)
        nothing = self.register_tensor(dtype=float32, shape=[ROWS, 64], init=0)
        self.store_shared(box, nothing)
        self.cluster.sync()
        there = self.cluster.map_shared_addr(box, rank=1)
        if self.cluster.blockRank == 1:
            self.mbarrier.wait(done, phase=0, scope="cluster")
        else:
            if self.writes:
                self.store_shared(there, nothing)
            else:
                self.store_global(gy, self.load_shared(there), offsets=[0, 0])
            if self.meet:
                self.sync()
            with self.single_thread():
                self.mbarrier.arrive_remote(done, rank=1, sem=self.sem)


@pytest.mark.parametrize(
    "sem, options, verdict",
    [
        ("release", {}, None),
        ("relaxed", {}, None),
        ("relaxed", {"sync": False}, "race"),
        ("release", {"writes": True}, None),
        ("relaxed", {"writes": True}, "race"),
    ],
)
def test_a_block_may_end_once_reads_of_its_memory_are_over(sem, options, verdict):
    y = np.zeros(ROWS * 64, np.float32)
    found = simulator.judge(Visit(sem, **options).lower(), {"y_ptr": y})
    assert found.verdict == verdict, found.message
    assert verdict is None or "may end while" in found.message


LONE = [ir.Threads(i, 1) for i in range(3)]


def knowledge() -> Knowledge:
    """Return the clocks of threads of which three stand alone."""
    return Knowledge(kernel(*(group(i, 1, do(lambda m: None)) for i in range(3))).function, 1)


MOVES = st.tuples(
    st.sampled_from(["step", "release", "relaxed", "acquire"]), *[st.integers(0, 2)] * 2
)


@given(st.lists(MOVES, max_size=40))
def test_clocks_know_what_threads_have_told_each_other(moves):
    """Two sets of events of each thread and message are the model: what is known, what is over."""
    it = knowledge()
    atoms = [it.atoms(0, threads) for threads in LONE]
    marks, told = [], [(it.empty(), set(), set())] * 3
    seen, over = [set() for _ in LONE], [set() for _ in LONE]
    for what, i, box in moves:
        if what == "step":
            marks.append(it.step(atoms[i]))
            seen[i] = seen[i] | {len(marks) - 1}
        elif what == "release":
            told[box] = it.release(atoms[i]), seen[i], over[i] | seen[i]
        elif what == "relaxed":
            told[box] = it.relaxed(atoms[i]), set(), over[i]
        else:
            clock, visible, done = told[box]
            it.acquire(atoms[i], clock)
            seen[i], over[i] = seen[i] | visible, over[i] | done
    for i, group_ in enumerate(atoms):
        clock = it.common(group_)
        assert {n for n, mark in enumerate(marks) if mark.known(clock)} == seen[i]
        assert {n for n, mark in enumerate(marks) if mark.known(clock.over)} == over[i]


def test_a_read_that_need_not_be_over_is_not_forgotten_for_a_later_one_that_is():
    """A thread reads, an engine reads for it, and only for the engine it has waited."""
    it = knowledge()
    reader, writer = (it.atoms(0, threads) for threads in LONE[:2])
    buffer = ir.SharedBuffer("tile", float32, (16,), place())
    shadow, tile = Shadow(64), ir.SharedTensor(buffer, (16,), ir.as_expr(0))

    def enter(mark, atoms, kind, engine=None):
        agent = Agent(mark, it.common(atoms), place(), "", (0, 0, 0), "", None, engine)
        return shadow.enter(Access(agent, kind, "generic", tile), [(0, 64)])

    first, effect = it.step(reader), it.effect(reader)
    assert enter(first, reader, "read") is enter(effect, reader, "read", "store") is None
    it.acquire_effect(reader, effect, it.common(reader).before)
    it.acquire(writer, it.relaxed(reader))
    earlier, _ = enter(it.step(writer), writer, "write")
    assert earlier.agent.mark is first


X, Y = ir.BarrierArray("bars", (64, 64))
FIRST, SECOND = (ir.Builtin("clusterRank") == rank for rank in (0, 1))


def arrive(bar: ir.Barrier, rank: int, sem: str = "release"):
    return do(lambda m: m.arrive(bar, 32, rank=rank, relaxed=sem == "relaxed"))


def wait(bar: ir.Barrier, parity: int):
    return do(lambda m: m.wait_barrier(bar, parity, cluster=True))


@pytest.mark.parametrize(
    "x, y, proved",
    [
        ("release", "release", True),
        ("relaxed", "release", True),
        ("release", "relaxed", False),
        ("relaxed", "relaxed", False),
    ],
)
def test_a_relaxed_arrival_may_overtake_one_at_another_barrier(x, y, proved):
    """A group of the second block arrives at X, then at Y. Who waits for Y arrives at X as well,
    for the phase after, it seems; nothing says that the first arrival has counted by then."""
    left = [
        when(FIRST, arrive(X, 0), arrive(Y, 1)),
        when(SECOND, arrive(X, 0, x), arrive(Y, 1, y)),
    ]
    right = [
        when(FIRST, wait(X, 0), arrive(X, 0), wait(X, 1)),
        when(SECOND, wait(Y, 0), arrive(X, 0)),
    ]
    meet = do(lambda m: m.wait_cluster())
    it = kernel(
        do(lambda m: m.init_barriers(X)), meet, group(0, 32, *left), group(32, 32, *right),
        do(lambda m: m.wait_cluster()), blocks=(2, 1, 1), cluster=(2, 1, 1),
    )  # fmt: skip
    found = simulator.judge(it, {}, seeds=3)
    assert (found.verdict, found.proved) == (None, proved), found.message


def test_a_block_may_end_once_it_has_waited_for_the_last_arrival():
    def pair(*last):
        begin = do(lambda m: m.init_barriers(X)), do(lambda m: m.wait_cluster())
        arrivals = do(lambda m: m.arrive(X, 64, rank=0, relaxed=True))
        body = *begin, when(FIRST, *last), when(SECOND, arrivals)
        return kernel(*body, blocks=(2, 1, 1), cluster=(2, 1, 1))

    assert simulator.judge(pair(wait(X, 0)), {}).proved
    found = simulator.judge(pair(), {})
    assert found.verdict == "race" and "may end while" in found.message
