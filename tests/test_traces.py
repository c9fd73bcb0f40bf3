# SPDX-License-Identifier: Apache-2.0
"""Records of traces: events come back as they were, and stale ones are noticed."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.products import SMALL, VERSIONS, execute, version

from tilus import records, traces
from tilus.errors import ArgumentError, Location

ROOT = Path(__file__).parents[1]


def record(name):
    """Return a record of what the simulator says of a version, and those events."""
    kernel = version(name)(**SMALL[name])
    m, n, k = (SMALL[name][f"block_{axis}"] for axis in "mnk")
    events = execute(kernel.lower(n_size=n, k_size=5 * k), m, n, 5 * k, trace=True).events
    file = f"examples/hopper_matmul/matmul_{name}.py"
    made = records.generated(type(kernel), kernel.schedule, {"n_size": n, "k_size": 5 * k})
    size = {"m": m, "n": n, "k": 5 * k}
    entry = {"version": name, "block": [0, 0, 0], **size, **traces.rows(events)}
    source = records.kernel(file, ROOT, type(kernel), [made])
    return {"schema": traces.SCHEMA_VERSION, "sources": {name: source}, "traces": [entry]}, events


def plain(event, file):
    """Return an event with whole cycles, its place without columns."""
    start, end = round(event.start), round(event.start) + round(event.end - event.start)
    place, asked = Location(file, event.location.line), event.issuer and float(start)
    return replace(event, start=float(start), end=float(end), location=place, issued=asked)


@pytest.mark.parametrize("name", VERSIONS)
def test_events_come_back(name, tmp_path):
    data, events = record(name)
    traces.write(data, tmp_path / "trace.json")
    found = traces.load(tmp_path / "trace.json").of(name)
    file = f"examples/hopper_matmul/matmul_{name}.py"
    wanted = sorted(events, key=lambda e: (e.start, e.end))
    assert found.events == tuple(plain(e, file) for e in wanted)


def test_an_event_takes_one_short_line(tmp_path):
    data, events = record("v3")
    traces.write(data, tmp_path / "trace.json")
    lines = (tmp_path / "trace.json").read_text().splitlines()
    assert sum(line.startswith("    [") for line in lines) >= len(events)


def test_what_a_record_lacks_is_said(tmp_path):
    data, _ = record("v3")
    found = traces.Traces(data)
    with pytest.raises(ArgumentError, match=r"no trace of v4\. Run scripts/trace"):
        found.of("v4")
    with pytest.raises(ArgumentError, match=r"no trace of v3 at \(1, 2, 3\)"):
        found.of("v3", (1, 2, 3))
    assert found.of("v3", (64, 8, 80)).block == (0, 0, 0)
    traces.write({**data, "schema": 0}, tmp_path / "old.json")
    with pytest.raises(ArgumentError, match="record must be of schema 1, got 0"):
        traces.load(tmp_path / "old.json")


def test_a_kernel_that_changed_makes_its_traces_stale():
    data, _ = record("v3")
    assert traces.Traces(data).staleness(ROOT, "v3") == ()
    data["sources"]["v3"]["generated"][0]["sha256"] = "other"
    (said,) = traces.Traces(data).staleness(ROOT, "v3")
    assert said.startswith("the CUDA of MatmulWGMMAV3")
