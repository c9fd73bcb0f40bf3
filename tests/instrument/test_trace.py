# SPDX-License-Identifier: Apache-2.0
"""A tracing build records what the simulator records: seen by running its CUDA on this machine."""

import shutil

import numpy as np
import pytest
from tests.host import Host
from tests.instrument.events import SIMULATED_LANES, coded, told
from tests.kernels import load_v3
from tests.products import SMALL, VERSIONS, version

import tilus
from tilus import compiler, float32, instrument, ir, simulator, timeline
from tilus.emitter import emit
from tilus.errors import ArgumentError
from tilus.instrument import record
from tilus.options import Instruments, Option, Recording

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")


def on_host(script, arguments, recording, **constants):
    """Run a tracing build on this machine; return what was recorded, and the kernel."""
    kernel, threads = script.lower(**constants), script.lower(**constants).function.threads.count
    instruments = Instruments(trace=recording)
    memory = np.zeros(record.buffer_bytes(recording, threads), np.uint8)
    Host().run(script, *arguments, instruments=instruments, memory=[memory])
    _, sites = compiler.write(kernel, instruments)
    return instrument.recorded(sites, recording, threads, memory), kernel


def matmul(name, m, n, k, recording):
    """Run a version on this machine and on the simulator; return what either recorded."""
    a, b, c = (np.zeros(shape, np.float16) for shape in ((m, k), (n, k), (m, n)))
    found, kernel = on_host(
        version(name)(**SMALL[name]), (m, n, k, a, b, c), recording, n_size=n, k_size=k
    )
    flat = {
        "m_size": m,
        **{f"{p}_ptr": x.reshape(-1) for p, x in zip("abc", (a, b, c), strict=True)},
    }
    simulated = simulator.run(kernel, flat, trace=True, blocks=recording.blocks)
    return found, coded(simulated.events)


@needs_compiler
@pytest.mark.parametrize("name", ["v0", "v2", "v5", "v6", "v7"])
def test_each_role_records_what_the_simulator_says_it_does(name):
    """Instruction by instruction: place, barrier, stage, phase, tile, amount, shared memory."""
    m, n, k = (SMALL[name][f"block_{axis}"] for axis in "mnk")
    m *= 2 * SMALL[name].get("num_blocks", 0) or 1  # two tiles for each persistent block
    found, simulated = matmul(name, m, n, 5 * k, Recording(((0, 0, 0),), 400))
    assert found.dropped == 0 and found.absent == ()
    mine, theirs = told(found.events), told(simulated)
    assert mine.keys() == theirs.keys()
    for lane in mine:
        assert mine[lane] == theirs[lane], lane


@needs_compiler
def test_blocks_that_are_not_asked_for_are_silent_and_those_too_many_events_are_counted():
    m, n, k = 192, 8, 80
    found, _ = matmul("v1", m, n, k, Recording(((2, 0, 0), (1, 0, 0)), 10))
    assert {e.block for e in found.events} == {(1, 0, 0), (2, 0, 0)}
    whole, _ = matmul("v1", m, n, k, Recording(((1, 0, 0),), 400))
    threads = {e.block: 0 for e in found.events}
    for event in found.events:
        threads[event.block] += event.lane not in SIMULATED_LANES
    own = sum(e.lane not in SIMULATED_LANES for e in whole.events)
    assert found.dropped == 2 * own - sum(threads.values()) > 0
    assert [clock.block for clock in found.clocks] == [(2, 0, 0), (1, 0, 0)]
    assert all(clock.ns and clock.cycles > 0 and clock.sm == 7 for clock in found.clocks)


@needs_compiler
def test_times_are_in_order_and_what_engines_do_lies_between_asking_and_seeing():
    found, _ = matmul("v5", 128, 8, 80, Recording(((0, 0, 0),), 400))
    assert all(0 <= e.start <= e.end <= found.clocks[0].cycles for e in found.events)
    for lane in timeline.lanes(found.events):
        if lane.name not in SIMULATED_LANES:
            assert lane.rows == 1, lane.name
    copies = [e for e in found.events if e.kind == "copy"]
    waits = [e for e in found.events if e.what == "wait"]
    for copy in copies:
        same = [w.end for w in waits if (w.barrier, w.phase) == (copy.barrier, copy.phase)]
        assert copy.end == max(min(same), copy.start) and copy.start == copy.issued
    text = str(timeline.chrome(found.events))
    assert "TMA copies, from asked for to seen" in text and "products, from" in text
    assert timeline.stages(found.events)


class Early(tilus.Script):
    """Leaves the kernel early where there is nothing to do."""

    def __call__(self, n: tilus.int32, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        if n == 0:
            return
        view = self.global_view(c_ptr, dtype=float32, shape=[n])
        self.store_global(
            view, self.register_tensor(dtype=float32, shape=[32], init=1.0), offsets=[0]
        )


@needs_compiler
@pytest.mark.parametrize("n", [0, 32])
def test_a_kernel_that_returns_early_has_ended_too(n):
    found, _ = on_host(Early(), (n, np.zeros(32, np.float32)), Recording())
    assert found.clocks[0].cycles > 0
    assert [e.what for e in found.events][-1:] == (["store_global"] if n else [])


# ---- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VERSIONS)
def test_instrumented_builds_compile_without_spills_and_serialised_products(name):
    """NVRTC's notes and local memory are refused by tilus.nvrtc."""
    sizes = {"block_m": 128, "block_n": 128, "block_k": 32 if name == "v0" else 64}
    kernel = version(name)(**SMALL[name] | sizes).lower(n_size=1024, k_size=4096)
    compiler.build(kernel, Instruments(2.0, Recording()))


def test_the_accumulators_of_a_product_leave_room_for_instruments():
    kernel = load_v3()(4, 128, 128, 64).lower(n_size=1024, k_size=4096)
    plain = compiler.build(kernel).cubin.registers
    assert compiler.build(kernel, Instruments(2.0, Recording())).cubin.registers <= plain + 8


def test_without_instruments_nothing_changes():
    kernel = version("v5")(**SMALL["v5"]).lower(n_size=64, k_size=64)
    assert compiler.write(kernel) == (emit(kernel), ())
    assert compiler.write(kernel, Instruments(watchdog=1.0))[0] != emit(kernel)


class Names(tilus.Script):
    """Variables with names that instruments use."""

    def __call__(self, n: tilus.int32, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        trace: tilus.int32 = n
        hangs: tilus.int32 = trace + 1
        view = self.global_view(c_ptr, dtype=float32, shape=[n])
        tile = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        self.store_global(view, tile, offsets=[hangs])


def test_a_kernels_names_do_not_meet_ours():
    compiler.build(Names().lower(), Instruments(1.0, Recording()))


# ---- the memory ---------------------------------------------------------------------------------


def written(events, block=((0, 0, 0),), most=8, began=100):
    """Return a buffer of one thread in which ``events`` (which, start, end, where) were written."""
    recording, counted = Recording(block, most), len(events)
    memory = np.zeros(record.buffer_bytes(recording, 1), np.uint8)
    memory[:16].view(np.uint64)[:] = began, 10**18
    words = memory[record.HEADER :].view(np.uint32).reshape(-1, 4)
    ends = [0, *(end for _, _, end, _ in events)]
    words[0] = counted, ends[-1], (began + 90) % 2**32, (10**18 + 60) % 2**32
    for i, (what, start, _, where) in enumerate(events[: most + 1]):
        words[1 + i] = what, start, ends[i], where
    return recording, memory


def site(op="thing", **facts):
    place = ir.Threads(0, 32), ir.Threads(0, 32), None, (tilus.errors.Location("k.py", 3),)
    return instrument.Site(op, instrument.sites.Facts(**facts), *place)


def test_clocks_may_wrap():
    recording, memory = written([(0, 2**32 - 1, 5, 0)], began=2**35 - 3)
    found = instrument.recorded([site()], recording, 1, memory)
    assert [(e.start, e.end) for e in found.events] == [(2, 8)]
    assert found.clocks[0].cycles == 90 and found.clocks[0].ns == 60


def test_clocks_may_wrap_more_than_once():
    """As they do in a kernel that runs for seconds, unless one instruction alone does."""
    recording, memory = written([(0, 10, 2**31, 0), (0, 2**32 - 1, 5, 0), (0, 4, 6, 0)], began=0)
    found = instrument.recorded([site()], recording, 1, memory)
    times = [(10, 2**31), (2**32 - 1, 2**32 + 5), (2 * 2**32 + 4, 2 * 2**32 + 6)]
    assert [(e.start, e.end) for e in found.events] == times
    assert found.clocks[0].cycles == 2 * 2**32 + 90


def test_a_block_that_did_not_run_is_absent():
    recording = Recording(((0, 0, 0), (9, 0, 0)), 8)
    _, first = written([(0, 101, 102, 0)])
    memory = np.concatenate([first, np.zeros_like(first)])
    found = instrument.recorded([site()], recording, 1, memory)
    assert found.absent == ((9, 0, 0),) and len(found.events) == 1


def test_what_did_not_fit_is_counted():
    recording, memory = written([(0, 101 + i, 102 + i, 0) for i in range(7)], most=3)
    found = instrument.recorded([site()], recording, 1, memory)
    assert [(e.start, e.end) for e in found.events] == [(1, 2), (2, 3), (3, 4)]
    assert found.dropped == 4 and found.clocks[0].cycles == 90


def test_a_copy_that_nobody_waited_for_is_not_shown():
    array = ir.BarrierArray("full", (1,))
    task = instrument.probe.Task("tma", 64, "a -> b")
    arrival = site(barrier=array[0], arrivals=1, announced=64)
    recording, memory = written([(0, 101, 102, 0), (1, 103, 104, 0)])
    found = instrument.recorded(
        [arrival, site(barrier=array[0], tasks=[task])], recording, 1, memory
    )
    assert [e.kind for e in found.events] == ["issue", "issue"]


@pytest.mark.parametrize(
    "blocks, events, message",
    [
        ([], 8, "trace must be different blocks"),
        ([(0, 0)], 8, "trace must be different blocks"),
        ([(0, 0, -1)], 8, "trace must be different blocks"),
        ([(0, 0, 0)] * 2, 8, "trace must be different blocks"),
        ([(0, 0, 0)], 0, "trace must be from 1 to"),
    ],
)
def test_a_wrong_recording_changes_nothing(blocks, events, message):
    debug = Option().debug
    debug.trace([(3, 0, 0)])
    with pytest.raises(ArgumentError, match=message):
        debug.trace(blocks, events)
    assert debug.instruments.trace == Recording(((3, 0, 0),))
    debug.trace(None)
    assert not debug.instruments


# ---- on the simulator ---------------------------------------------------------------------------


@pytest.fixture
def debug(device):
    """``tilus.option.debug`` on the simulator, off again after the test."""
    device("sim")
    yield tilus.option.debug
    tilus.option.debug.trace(None)
    tilus.option.debug.watchdog(None)


def test_a_run_on_the_simulator_has_the_events_of_the_blocks_asked_for(debug):
    kernel, c = load_v3()(2, 64, 8, 16), np.zeros((128, 16), np.float16)
    a, b = np.zeros((128, 32), np.float16), np.zeros((16, 32), np.float16)
    kernel(128, 16, 32, a, b, c)
    assert kernel.last_run.events == ()
    debug.trace([(1, 0, 0), (0, 1, 0)])
    kernel(128, 16, 32, a, b, c)
    assert {e.block for e in kernel.last_run.events} == {(1, 0, 0), (0, 1, 0)}
    debug.trace([(2, 0, 0)])
    with pytest.raises(ArgumentError, match=r"inside the grid \(2, 2, 1\), got \(2, 0, 0\)"):
        kernel(128, 16, 32, a, b, c)


def test_every_instruction_of_the_ladder_says_what_it_does():
    """No list of instructions: each is asked, on a machine without memory."""
    kinds = {}
    for name in VERSIONS:
        kernel = version(name)(**SMALL[name]).lower(n_size=64, k_size=64)
        for stmt in ir.walk(kernel.function.body):
            if isinstance(stmt, ir.Instruction):
                kinds.setdefault(type(stmt).__name__, set()).add(instrument.probe.ask(stmt).kind)
    assert kinds["wait"] == kinds["wait_group"] == {"wait"}
    assert kinds["sync"] == kinds["alloc"] == {"sync"}
    assert kinds["mma"] == kinds["arrive"] == kinds["global_to_shared"] == {"issue"}
    assert kinds["dot"] == {"compute"} and kinds["store_global"] == {"store"}


def test_what_the_simulator_does_not_model_is_recorded_without_facts():
    class stranger(ir.Instruction):
        def simulate(self, m):
            m.something_new(1)
            m.fail("not modelled", "an address")

    place = tilus.errors.Location("k.py", 1)
    facts = instrument.probe.ask(stranger(location=place, threads=ir.Threads(0, 32)))
    assert (facts.kind, facts.tasks, facts.barrier) == ("issue", [], None)
    del stranger
