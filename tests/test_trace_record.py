# SPDX-License-Identifier: Apache-2.0
"""The committed traces of a GPU hold what tests/gpu/test_gpu_trace.py demands of a fresh one."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.instrument.events import SIMULATED_LANES, coded, told
from tests.products import FOLDER, VERSIONS
from tests.programs import load

from tilus import loader, prediction, script, timeline, traces
from tilus.errors import Location

ROOT = Path(__file__).parents[1]
traced = load("trace")
RECORD = traces.load(ROOT / "plots" / "data" / "trace.json")
TRACED = [(data["version"], (data["m"], data["n"], data["k"])) for data in RECORD.data["traces"]]
EACH = [pytest.param(*one, id=f"{one[0]}-{one[1][0]}") for one in TRACED]


@cache
def simulated(name, size):
    """Return the events that the simulator has of one block with the recorded schedule."""
    cls = loader.find(ROOT / RECORD.data["sources"][name]["file"], script.Script)
    trace = RECORD.of(name, size)
    return coded(prediction.traced(cls(**trace.data["schedule"]), trace).events)


def placed(events, trace):
    """Return the simulator's events as ones of the recorded block, whose places have no columns."""
    return [
        replace(e, block=trace.block, location=Location(trace.file, e.location.line))
        for e in events
    ]


@pytest.mark.parametrize("name", VERSIONS)
def test_every_version_is_recorded_at_every_size(name):
    if name not in dict(TRACED):
        pytest.skip("not recorded yet; its page says so too")
    found = [size for version, size in TRACED if version == name]
    cls = loader.find(FOLDER / f"matmul_{name}.py", script.Script)
    kernel = cls(**RECORD.of(name, found[0]).data["schedule"])
    assert found == list(traced.sizes(kernel))


@pytest.mark.parametrize(("name", "size"), EACH)
def test_each_role_did_what_the_simulator_says_it_does(name, size):
    """From its first instruction to its last: op, line, barrier, stage, phase, tile, bytes."""
    if RECORD.staleness(ROOT, name):
        pytest.skip("the kernel changed since; its page says so too")
    trace = RECORD.of(name, size)
    expected = simulated(name, size)
    mine, theirs = told(trace.events), told(placed(expected, trace))
    assert mine.keys() == theirs.keys()
    for lane in mine:
        assert mine[lane] == theirs[lane], lane
    assert trace.data["dropped"] == 0


@pytest.mark.parametrize(("name", "size"), EACH)
def test_a_role_does_one_thing_after_the_other_within_the_block(name, size):
    trace = RECORD.of(name, size)
    assert all(0 <= e.start <= e.end <= trace.data["cycles"] for e in trace.events)
    for lane in timeline.lanes(trace.events):
        if lane.name not in SIMULATED_LANES:
            assert lane.rows == 1 and all(i.event.end > i.event.start for i in lane.intervals)


@pytest.mark.parametrize(("name", "size"), EACH)
def test_no_wait_ends_before_what_it_waits_for_has_begun(name, size):
    """Arrivals and loads of the phase begin before; the clocks of all warps are one clock."""
    trace, phases = RECORD.of(name, size), {}
    for e in trace.events:
        if e.barrier and e.kind != "wait":
            phases.setdefault((e.barrier, e.phase), []).append(e.start)
    waits = [e for e in trace.events if e.kind == "wait" and e.barrier]
    ended = [(e, phases[e.barrier, e.phase]) for e in waits if e.phase >= 0]
    assert ended and all(max(begun) < e.end for e, begun in ended)
    assert {e.phase for e in waits if (e.barrier, e.phase) not in phases} <= {-1}
