# SPDX-License-Identifier: Apache-2.0
"""What a trace tells of the steps of the ladder: roles, tiles, stages, states of mbarriers."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import tilus
from tilus import loader, prediction, simulator

KERNELS = Path(__file__).parents[2] / "examples" / "hopper_matmul"
STAGES, TILES = 3, 7
BLOCK = {"block_m": 128, "block_n": 64, "block_k": 16}
RING = {"num_stages": STAGES}
SCHEDULES = {
    "v0": BLOCK | {"warps": 4},
    "v1": BLOCK,
    "v2": BLOCK | {"max_num_stages": STAGES},
    "v3": BLOCK | RING,
    "v4": BLOCK | RING | {"group_m": 8},
    "v5": BLOCK | RING | {"group_m": 8},
}
DEPTHS = {"v0": 1, "v1": 1}
GROUPS = {"v4": ("warps 0-3", "warps 4-7"), "v5": ("warps 0-3", "warps 4-7")}
LOADERS = {"v3": "warp 4", "v4": "warp 8", "v5": "warp 8"}


def traced(version):
    script = loader.find(KERNELS / f"matmul_{version}.py", tilus.Script)(**SCHEDULES[version])
    return prediction.one_block(script, TILES)


@pytest.fixture(scope="module", params=SCHEDULES)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def result(version):
    return traced(version)


def test_loads_are_asked_for_by_the_producer(version, result):
    copies = [e for e in result.events if e.kind == "copy"]
    assert {e.issuer for e in copies} == {LOADERS.get(version, "warps 0-3")}
    assert all(e.issued <= e.start < e.end for e in copies)
    assert sum(e.amount for e in copies) == TILES * 2 * 16 * (128 + 64)


def test_copies_and_products_know_tile_and_stage(version, result):
    depth = DEPTHS.get(version, STAGES)
    for kind in ("copy", "compute"):
        mine = [e for e in result.events if e.kind == kind]
        assert {e.tile for e in mine} == set(range(TILES))
        assert all(e.stage == e.tile % depth for e in mine)


def test_products_are_those_of_the_consumers(version, result):
    products = [e for e in result.events if e.kind == "compute"]
    groups = GROUPS.get(version, ("warps 0-3",))
    by_group = Counter(e.issuer or e.lane for e in products)
    assert by_group == dict.fromkeys(groups, TILES)
    assert sum(e.amount for e in products) == 2 * 128 * 64 * 16 * TILES


def test_nobody_reads_before_the_copies_of_the_tile_have_landed(result):
    landed = Counter()
    for e in result.events:
        if e.kind == "copy":
            landed[e.tile] = max(landed[e.tile], e.end)
    readers = [e for e in result.events if e.reads]
    assert readers and all(e.start >= landed[e.tile] for e in readers)


def test_a_wait_is_as_long_as_the_barrier_lets_it(result):
    """It ends after the phase that it names, and at once where that phase was over before."""
    over = {(s.label, s.phase): s.time for s in result.barriers if s.cause == "phase"}
    waits = [e for e in result.events if e.kind == "wait" and e.barrier]
    assert waits
    for e in waits:
        end = over[e.barrier, e.phase + 1] if e.phase >= 0 else 0
        c = simulator.Costs()
        assert e.end == max(e.start + c.issue, end) + c.wake


def test_barriers_change_one_thing_at_a_time(result):
    labels = {s.label for s in result.barriers}
    assert labels
    for label in labels:
        first, *rest = states = [s for s in result.barriers if s.label == label]
        assert first.cause == "init" and first.phase == 0 and first.bytes == 0
        for a, b in pairwise(states):
            assert a.time <= b.time
            if b.cause == "phase":
                assert (a.arrivals, a.bytes) == (0, 0)
                assert (b.phase, b.arrivals, b.bytes) == (a.phase + 1, first.arrivals, 0)
            else:
                assert b.phase == a.phase
                changed = b.bytes - a.bytes, a.arrivals - b.arrivals
                assert {"bytes": changed[0] < 0 and changed[1] == 0,
                        "expect": changed[0] > 0 and changed[1] > 0,
                        "arrive": changed[0] == 0 and changed[1] > 0}[b.cause]  # fmt: skip
        assert any(s.cause == "phase" for s in rest)


def test_tracing_is_asked_for():
    script = loader.find(KERNELS / "matmul_v3.py", tilus.Script)(**SCHEDULES["v3"])
    result = prediction.one_block(script, 2, trace=False)
    assert result.events == result.barriers == () and result.cycles > 0
