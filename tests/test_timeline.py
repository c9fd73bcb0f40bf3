# SPDX-License-Identifier: Apache-2.0
"""Events into lanes, and into the JSON that Perfetto reads."""

import json
from itertools import pairwise

import pytest

from tilus import timeline
from tilus.errors import Location
from tilus.ir import BarrierState, Event, Region

PLACE = Location("kernel.py", 3)
FIRST, SECOND = (0, 0, 0), (1, 0, 0)


def event(lane, start, end, kind="issue", block=FIRST, **more):
    return Event(lane, kind, start, end, f"{kind} {start}", PLACE, block, **more)


EVENTS = [
    event("TMA engine", 5, 30, "copy", barrier="full[1]", stage=1, phase=2, tile=5),
    event("TMA engine", 10, 35, "copy"),
    event("TMA engine", 30, 40, "copy"),
    event("warps 0-4", 0, 0),
    event("warp 4", 0, 5),
    event("warp 4", 5, 9, "wait"),
    event("warps 0-3", 0, 20, "wait"),
    event("tensor cores", 20, 25, "compute"),
    event("warps 0-3", 0, 1, block=SECOND),
]


def test_lanes_are_roles_in_order_then_engines():
    assert [lane.name for lane in timeline.lanes(EVENTS)] == [
        "warps 0-4",
        "warps 0-3",
        "warp 4",
        "TMA engine",
        "tensor cores",
    ]


def test_overlapping_events_get_rows_of_their_own():
    lane = timeline.lanes(EVENTS)[3]
    assert [i.row for i in lane.intervals] == [0, 1, 0] and lane.rows == 2
    for row in range(lane.rows):
        mine = [i.event for i in lane.intervals if i.row == row]
        assert all(a.end <= b.start for a, b in pairwise(mine))


def test_busy_counts_overlap_once():
    roles = {lane.name: lane for lane in timeline.lanes(EVENTS)}
    assert roles["TMA engine"].busy() == 35
    assert roles["warp 4"].busy("wait") == 4 and roles["warp 4"].busy() == 9
    assert roles["warp 4"].busy("copy") == 0


def test_one_block_at_a_time():
    (lane,) = timeline.lanes(EVENTS, SECOND)
    assert [i.event.end for i in lane.intervals] == [1]
    assert timeline.lanes([]) == ()


def test_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    timeline.write_chrome(EVENTS, path)
    rows = json.loads(path.read_text())["traceEvents"]
    names = {(r["pid"], r["tid"]): r["args"]["name"] for r in rows if r["name"] == "thread_name"}
    spans = [r for r in rows if r["ph"] == "X"]
    assert len(spans) == len(EVENTS) and len(names) == 7
    assert {names[r["pid"], r["tid"]] for r in spans if r["cat"] == "copy"} == {"TMA engine"}
    copy = next(r for r in spans if r["name"] == "copy 5")
    assert copy["ts"] == pytest.approx(0.005) and copy["dur"] == pytest.approx(0.025)
    known = {"barrier": "full[1]", "stage": 1, "phase": 2, "tile": 5}
    assert copy["args"] == {"place": "kernel.py:3"} | known
    assert [r["args"]["name"] for r in rows if r["name"] == "process_name"] == [
        "block (0, 0, 0)",
        "block (1, 0, 0)",
    ]


def test_spans_of_one_thread_never_overlap():
    spans = [r for r in timeline.chrome(EVENTS)["traceEvents"] if r["ph"] == "X"]
    for key in {(r["pid"], r["tid"]) for r in spans}:
        mine = sorted((r["ts"], r["ts"] + r["dur"]) for r in spans if (r["pid"], r["tid"]) == key)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(mine))


# ---- stages, barriers and the steady state ------------------------------------------------------

A, B = Region("sa", 0, 64), Region("sb", 0, 64)


def copy(stage, tile, issued, end, part=A):
    more = {"stage": stage, "tile": tile, "issued": issued, "issuer": "warp 4", "writes": (part,)}
    return event("TMA engine", issued + 10, end, "copy", amount=64, **more)


def product(stage, tile, start, end, **more):
    more = {"stage": stage, "tile": tile, "reads": (A, B), "issuer": "warps 0-3"} | more
    return event("tensor cores", start, end, "compute", amount=4096, **more)


RING = [
    copy(0, 0, 10, 30), copy(0, 0, 15, 40, B), product(0, 0, 50, 60),
    product(0, 0, 55, 70), copy(0, 1, 75, 90), copy(0, 1, 76, 95, B), product(0, 1, 95, 100),
    event("warps 0-3", 100, 120, "store"),
]  # fmt: skip


def test_a_stage_goes_through_its_states():
    assert [(s.state, s.start, s.end, s.tile) for s in timeline.stages(RING)] == [
        ("empty", 0, 10, None),
        ("filling", 10, 40, 0),
        ("full", 40, 50, 0),
        ("read", 50, 70, 0),
        ("empty", 70, 75, None),
        ("filling", 75, 95, 1),
        ("read", 95, 100, 1),
        ("empty", 100, 120, None),
    ]


def test_a_tile_that_nobody_reads_stays():
    *_, last = timeline.stages([*RING[:2], event("warp 4", 40, 60)])
    assert (last.state, last.start, last.end) == ("full", 40, 60)
    assert timeline.stages([]) == ()


def test_the_state_of_barriers_at_a_time():
    init = BarrierState(0, "full", 0, 0, 1, 0, "init", FIRST)
    come = BarrierState(5, "full", 0, 0, 0, 0, "arrive", FIRST)
    over = BarrierState(5, "full", 0, 1, 1, 0, "phase", FIRST)
    states = [init, come, over]
    assert timeline.at(states, 4) == {"full[0]": init}
    assert timeline.at(states, 5) == {"full[0]": over}
    assert timeline.at(states, -1) == {}


def test_the_steady_state_is_measured_behind_the_beginning():
    """The first tile comes late; then one takes 100 cycles, and the block goes on for 40."""
    events = [e for i in range(6) for e in (copy(0, i, i, i + 1), product(0, i, 0, 700 + 100 * i))]
    found = timeline.steady([*events, event("warps 0-3", 1200, 1240, "store")], window=4)
    assert (found.step, found.rest) == (100, 1240 - 6 * 100)
    assert (found.copied, found.flop, found.mma_flop) == (64, 4096, 0)


def test_what_warps_multiply_is_counted_by_itself():
    events = [product(0, i, 0, 100 * i, issuer=None) for i in range(4)]
    found = timeline.steady(events, window=2)
    assert (found.flop, found.mma_flop) == (0, 4096)


def test_a_lane_is_summed_up():
    events = [
        event("warp 0", 0, 10, "wait"),
        event("warp 0", 12, 20, "sync"),
        event("warp 0", 10, 12),
        event("warp 0", 20, 30, "load", amount=64),
        event("warp 0", 30, 35, "compute", amount=256),
    ]
    (lane,) = timeline.lanes(events)
    assert timeline.total(lane) == timeline.Total(5, 2, 17, 18, 64, 256)
    (lane,) = timeline.lanes(events[:1])
    assert timeline.total(lane) == timeline.Total(1, 1, 0, 10, 0, 0)
