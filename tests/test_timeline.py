# SPDX-License-Identifier: Apache-2.0
"""Events into lanes, and into the JSON that Perfetto reads."""

import json
from itertools import pairwise

import pytest

from tilus import timeline
from tilus.errors import Location
from tilus.ir import Event

PLACE = Location("kernel.py", 3)
FIRST, SECOND = (0, 0, 0), (1, 0, 0)


def event(lane, start, end, kind="issue", block=FIRST, **more):
    return Event(lane, kind, start, end, f"{kind} {start}", PLACE, block, **more)


EVENTS = [
    event("TMA engine", 5, 30, "copy", barrier="full[1]", stage=1),
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
    assert copy["args"] == {"place": "kernel.py:3", "barrier": "full[1]", "stage": 1}
    assert [r["args"]["name"] for r in rows if r["name"] == "process_name"] == [
        "block (0, 0, 0)",
        "block (1, 0, 0)",
    ]


def test_spans_of_one_thread_never_overlap():
    spans = [r for r in timeline.chrome(EVENTS)["traceEvents"] if r["ph"] == "X"]
    for key in {(r["pid"], r["tid"]) for r in spans}:
        mine = sorted((r["ts"], r["ts"] + r["dur"]) for r in spans if (r["pid"], r["tid"]) == key)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(mine))
