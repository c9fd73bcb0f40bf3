# SPDX-License-Identifier: Apache-2.0
"""Races: what must be found in any order of moves, and what must not."""

import numpy as np
import pytest

import tilus
from tilus import compiler, float16, float32, int32, simulator
from tilus.errors import SimulationError

SCHEDULES = list(simulator.SCHEDULES)
SIZE = 64 * 64


class Kernel(tilus.Script):
    """Two warps exchange a tile of 16 x 64; a subclass says how."""

    blocks = 1

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.warps = 8
        gx = self.global_view(x_ptr, dtype=float32, shape=[64, 64])
        gy = self.global_view(y_ptr, dtype=float32, shape=[64, 64])
        tile = self.shared_tensor(dtype=float32, shape=[2, 16, 64])
        self.exchange(gx, gy, tile)

    def exchange(self, gx, gy, tile):
        pass


def run(script, schedule="timed", **options):
    x = np.arange(SIZE, dtype=np.float32)
    arguments = {"x_ptr": x, "y_ptr": np.full(SIZE, np.nan, np.float32)}
    simulator.run(compiler.lower(script(), {}), arguments, schedule=schedule, **options)
    return arguments["y_ptr"].reshape(64, 64), x.reshape(64, 64)


def race(script, schedule="timed") -> SimulationError:
    with pytest.raises(SimulationError) as info:
        run(script, schedule)
    assert info.value.verdict == "race", info.value
    assert {
        "file",
        "line",
        "role",
        "block",
        "first",
        "second",
        "missing",
    } <= info.value.facts.keys()
    return info.value


# ---- shared memory, between the threads of one group


class Transposed(Kernel):
    """Threads read what others of their group have written."""

    synchronised = True

    def exchange(self, gx, gy, tile):
        x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
        self.store_shared(tile[0], x)
        if self.synchronised:
            self.sync()
        y = self.load_shared(tile[0].transpose())
        self.store_global(gy, y, offsets=[0, 0])


class Unsynchronised(Transposed):
    synchronised = False


class OwnElements(Kernel):
    """Each thread reads, and writes again, only what it has written itself."""

    def exchange(self, gx, gy, tile):
        x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
        for _ in self.range(3):
            self.store_shared(tile[0], x)
            y = self.load_shared(tile[0])
            self.store_global(gy, y, offsets=[0, 0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_group_synchronises_what_its_threads_exchange(schedule):
    y, x = run(Transposed, schedule)
    assert (y[:64, :16] == x[:16].T).all()
    error = race(Unsynchronised, schedule)
    assert (error.facts["tensor"], error.facts["stage"]) == ("tile", 0)
    assert "no sync() of warps 0-7 lies between the store_shared at" in error.facts["missing"]
    assert (error.facts["first"]["kind"], error.facts["second"]["kind"]) == ("write", "read")


def test_threads_that_keep_to_their_own_elements_need_no_barrier():
    y, x = run(OwnElements)
    assert (y[:16] == x[:16]).all()


class Rewritten(Kernel):
    """What others still read is written anew."""

    def exchange(self, gx, gy, tile):
        x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
        for _ in self.range(2):
            self.store_shared(tile[0], x)
            self.sync()
            y = self.load_shared(tile[0].transpose())
            self.store_global(gy, y, offsets=[0, 0])


def test_a_tile_is_not_written_anew_while_others_read():
    error = race(Rewritten)
    assert (error.facts["first"]["kind"], error.facts["second"]["kind"]) == ("read", "write")


# ---- shared memory, between groups


class Groups(Kernel):
    """One group writes a stage, another reads one."""

    stage, meet = 0, True

    def exchange(self, gx, gy, tile):
        ready = self.mbarrier.alloc(128)
        with self.thread_group(thread_begin=0, num_threads=128):
            x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
            self.store_shared(tile[0], x)
            self.mbarrier.arrive(ready)
        with self.thread_group(thread_begin=128, num_threads=128):
            if self.meet:
                self.mbarrier.wait(ready, phase=0)
            y = self.load_shared(tile[self.stage])
            self.store_global(gy, y, offsets=[0, 0])


class Apart(Groups):
    meet = False


class OtherStage(Groups):
    stage, meet = 1, False


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_mbarrier_leads_from_one_group_to_another(schedule):
    y, x = run(Groups, schedule)
    assert (y[:16] == x[:16]).all()
    run(OtherStage, schedule)
    error = race(Apart, schedule)
    assert "no mbarrier or sync() leads from" in error.facts["missing"]
    roles = {error.facts[which]["role"] for which in ("first", "second")}
    assert roles == {"warps 0-3", "warps 4-7"}


class Overtaken(Kernel):
    """One thread arrives for its group, which has not met before."""

    meet = False

    def exchange(self, gx, gy, tile):
        ready = self.mbarrier.alloc(1)
        with self.thread_group(thread_begin=0, num_threads=128):
            x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
            self.store_shared(tile[0], x)
            if self.meet:
                self.sync()
            with self.single_thread():
                self.mbarrier.arrive(ready)
        with self.thread_group(thread_begin=128, num_threads=128):
            self.mbarrier.wait(ready, phase=0)
            y = self.load_shared(tile[0])
            self.store_global(gy, y, offsets=[0, 0])


class Met(Overtaken):
    meet = True


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_thread_releases_only_what_it_knows(schedule):
    run(Met, schedule)
    error = race(Overtaken, schedule)
    assert (error.facts["first"]["role"], error.facts["second"]["role"]) == (
        "warps 0-3",
        "warps 4-7",
    )


class Reused(Kernel):
    """Memory that was freed is another tensor's."""

    def exchange(self, gx, gy, tile):
        old = self.shared_tensor(dtype=float16, shape=[32, 64])
        with self.thread_group(thread_begin=0, num_threads=128):
            a = self.load_shared(old)
            self.store_global(gy, self.cast(a, dtype=float32), offsets=[0, 0])
        self.free_shared(old)
        new = self.shared_tensor(dtype=float32, shape=[16, 64])
        with self.thread_group(thread_begin=128, num_threads=128):
            x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
            self.store_shared(new, x)


def test_memory_that_is_used_again_is_the_same_memory():
    error = race(Reused)
    assert "which the load_shared" in str(error) and "as old" in str(error)
    assert (error.facts["first"]["tensor"], error.facts["second"]["tensor"]) == ("old", "new")


# ---- device memory


class Blocks(Kernel):
    """Each block writes some rows; ``step`` rows apart."""

    blocks, step, reads = 2, 16, False

    def exchange(self, gx, gy, tile):
        row: int32 = self.blockIdx.x * self.step
        x = self.load_global(gx, offsets=[row, 0], shape=[16, 64])
        self.store_global(gy, x, offsets=[row, 0])
        if self.reads:
            y = self.load_global(gy, offsets=[0, 0], shape=[16, 64])
            self.store_global(gx, y, offsets=[48, 0])


class Overlapping(Blocks):
    step = 15


class Reading(Blocks):
    """The second block reads what the first one writes."""

    reads = True


def test_blocks_write_parts_of_their_own():
    y, x = run(Blocks)
    assert (y[:32] == x[:32]).all()
    error = race(Overlapping)
    assert "blocks of a grid run in any order" in error.facts["missing"]
    assert (error.facts["first"]["block"], error.facts["second"]["block"]) == ((0, 0, 0), (1, 0, 0))
    assert "gy at [15, 0]" in str(error) and "of block (0, 0, 0)" in str(error)
    error = race(Reading)
    assert (error.facts["first"]["kind"], error.facts["second"]["kind"]) == ("write", "read")


class GlobalExchange(Kernel):
    """A group reads in another layout what it has written to device memory."""

    meet, columns = True, True

    def exchange(self, gx, gy, tile):
        x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
        self.store_global(gy, x, offsets=[0, 0])
        if self.meet:
            self.sync()
        shape = [32, 32] if self.columns else [16, 64]
        y = self.load_global(gy, offsets=[0, 0], shape=shape)
        self.store_global(gx, y, offsets=[32, 0])


class GlobalApart(GlobalExchange):
    meet = False


class GlobalOwn(GlobalExchange):
    meet, columns = False, False


def test_threads_of_a_block_synchronise_what_they_exchange_through_device_memory():
    run(GlobalExchange)
    run(GlobalOwn)
    assert "no sync() of warps 0-7" in race(GlobalApart).facts["missing"]


class WaitsAlone(Kernel):
    """One thread waits for its group; the others know nothing until they meet it."""

    meet = False

    def exchange(self, gx, gy, tile):
        ready = self.mbarrier.alloc(128)
        with self.thread_group(thread_begin=0, num_threads=128):
            x = self.load_global(gx, offsets=[0, 0], shape=[16, 64])
            self.store_shared(tile[0], x)
            self.mbarrier.arrive(ready)
        with self.thread_group(thread_begin=128, num_threads=128):
            with self.single_thread():
                self.mbarrier.wait(ready, phase=0)
            if self.meet:
                self.sync()
            y = self.load_shared(tile[0])
            self.store_global(gy, y, offsets=[0, 0])


class WaitsForAll(WaitsAlone):
    meet = True


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_one_thread_has_waited_for_its_group_does_not_know(schedule):
    run(WaitsForAll, schedule)
    assert race(WaitsAlone, schedule).facts["second"]["role"] == "warps 4-7"


class Readers(Kernel):
    """Two groups read a box, and one of them writes it."""

    meet = False

    def exchange(self, gx, gy, tile):
        read = self.mbarrier.alloc(128)
        with self.thread_group(thread_begin=0, num_threads=128):
            x = self.load_global(gy, offsets=[0, 0], shape=[16, 64])
            self.store_shared(tile[0], x)
            self.mbarrier.arrive(read)
        with self.thread_group(thread_begin=128, num_threads=128):
            x = self.load_global(gy, offsets=[0, 0], shape=[16, 64])
            if self.meet:
                self.mbarrier.wait(read, phase=0)
            self.store_global(gy, x, offsets=[0, 0])


class ReadersMet(Readers):
    meet = True


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_who_have_read_device_memory_come_before_who_writes_it(schedule):
    run(ReadersMet, schedule)
    facts = race(Readers, schedule).facts
    assert {facts[which]["role"] for which in ("first", "second")} == {"warps 0-3", "warps 4-7"}
    assert {facts[which]["kind"] for which in ("first", "second")} == {"read", "write"}


class Unread(Kernel):
    """One warp copies and keeps to the barrier of who reads; the reader waits for no copy."""

    wait = False

    def exchange(self, gx, gy, tile):
        full = self.mbarrier.alloc(1)
        empty = self.mbarrier.alloc(128)
        with self.single_warp(4):
            phase: int32 = 1
            for i in self.range(2):
                self.mbarrier.wait(empty, phase=phase)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, tile[0].nbytes)
                    self.tma.global_to_shared(
                        src=gx, dst=tile[0], offsets=[i * 16, 0], mbarrier=full
                    )
                phase = phase ^ 1
        with self.warp_group(0, 4):
            for i in self.range(2):
                if self.wait:
                    self.mbarrier.wait(full, phase=i % 2)
                y = self.load_shared(tile[0])
                self.mbarrier.arrive(empty)
                self.store_global(gy, y, offsets=[i * 16, 0])


class Awaited(Unread):
    wait = True


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_who_reads_before_a_copy_has_landed_lacks_the_wait_for_it(schedule):
    """Not a barrier that would hold the copy back until it has read."""
    y, x = run(Awaited, schedule)
    assert (y[:32] == x[:32]).all()
    missing = race(Unread, schedule).facts["missing"]
    assert missing.startswith("nobody has waited on full[0] for the copy at test_races.py:"), (
        missing
    )
    assert "before the load_shared at" in missing


class Unawaited(Kernel):
    """Nobody waits for a copy."""

    def exchange(self, gx, gy, tile):
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, tile[0].nbytes)
            self.tma.global_to_shared(src=gx, dst=tile[0], offsets=[0, 0], mbarrier=full)
        self.store_global(gy, self.load_global(gx, offsets=[0, 0], shape=[1, 1]), offsets=[0, 0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_that_nobody_waits_for(schedule):
    """Also where it happens to have landed."""
    with pytest.raises(SimulationError, match="when the block ends") as info:
        run(Unawaited, schedule)
    assert info.value.verdict == "protocol"
    assert info.value.facts["state"] in ("in flight", "never waited for")
