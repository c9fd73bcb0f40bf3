# SPDX-License-Identifier: Apache-2.0
"""Figures show what the kernels and the simulator hold, and nothing else."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import fragment
import raster
import ring
import shared_map
import simulated
import timelines
from tilus import layout, records, timeline
from tilus.simulator import Costs

pytestmark = pytest.mark.usefixtures("closed")
VERSIONS = list(simulated.SCHEDULES)
DRAWN = [
    *(getattr(timelines, name) for name in [*VERSIONS, "ladder"]),
    *(getattr(ring, name) for name in VERSIONS[1:]),
    *(getattr(shared_map, name) for name in [*VERSIONS, "swizzle"]),
    *(fragment.wgmma, fragment.mma, raster.v4),
]


@pytest.mark.parametrize("draw", DRAWN)
def test_every_figure_can_be_drawn(draw: Any) -> None:
    """On a dark page; the site's build draws them for both."""
    draw("dark")
    assert any(ax.has_data() for ax in plt.gcf().axes)
    plt.gcf().canvas.draw()


# ---- timelines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_tile_is_loaded_and_multiplied_in_its_stage(version: str) -> None:
    rows = {row.label.split("\n")[0]: row for row in timelines.rows(simulated.run(version))}
    stages = [row for label, row in rows.items() if label.startswith("stage")]
    depth, groups = len(stages), 2 if version >= "v4" else 1
    fills = simulated.TILES * simulated.OUTPUTS[version]
    assert depth == (1 if version in ("v0", "v1") else simulated.STAGES)
    for i, row in enumerate(stages):
        tiles = [e.tile for e in row.events if e.kind == "copy"]
        assert tiles == list(range(i, fills, depth))
        for tile in tiles:
            copy, *readers = [e for e in row.events if e.tile == tile]
            assert readers and all(e.start >= copy.end for e in readers)
    products = [e.tile for e in rows["tensor cores"].events]
    assert sorted(products) == sorted(list(range(fills)) * groups)


@pytest.mark.parametrize("version", VERSIONS)
def test_tensor_cores_are_busy_for_as_long_as_their_flop_take(version: str) -> None:
    rate = Costs().mma_flop if version == "v0" else Costs().wgmma_flop
    schedule = simulated.SCHEDULES[version] | {"k": simulated.TILES * simulated.OUTPUTS[version]}
    flop = 2 * math.prod(schedule[key] for key in ("block_m", "block_n", "block_k", "k"))
    result = simulated.run(version)
    assert timelines.busy(result) == pytest.approx(flop / rate / result.cycles)
    assert 0.2 < timelines.busy(result) < 1


def test_versions_stand_on_one_scale() -> None:
    timelines.v3("light")
    limits = {ax.get_xlim() for ax in plt.gcf().axes}
    assert len(limits) == 1
    assert limits.pop()[1] >= max(simulated.run(v).cycles for v in ("v2", "v3"))


def test_roles_are_lanes() -> None:
    labels = [row.label.replace("\n", " ") for row in timelines.rows(simulated.run("v4"))]
    assert labels[0] == "warp 8 loads"
    assert {"warps 0-3 computes", "warps 4-7 computes"} < set(labels)
    assert timelines.rows(simulated.run("v2"))[0].label == "warps 0-3\nloads, computes"


# ---- ring ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_phases_follow_each_other_until_the_end(version: str) -> None:
    result = simulated.run(version)
    for label in {s.label for s in result.barriers}:
        phases = list(ring.phases(result.barriers, label, result.cycles))
        assert [p.number for p in phases] == list(range(len(phases)))
        edges = [p.start for p in phases] + [result.cycles]
        assert [p.end for p in phases] == edges[1:]
        assert all(0 <= x <= 1 for p in phases for x in p.lacks)


def test_a_barrier_of_two_groups_has_half_of_its_arrivals_after_the_first() -> None:
    result = simulated.run("v4")
    first = next(ring.phases(result.barriers, "empty[0]", result.cycles))
    assert first.lacks[:3] == (1, 0.5, 0)


def test_barriers_tell_full_and_empty() -> None:
    states = simulated.run("v3").barriers
    assert ring.role(states, "consumer_barriers") == "full"
    assert ring.role(states, "producer_barriers") == "empty"


@pytest.mark.parametrize("version", ["v3", "v4", "v5", "v6", "v7"])
def test_a_stage_is_full_when_its_barrier_says_so(version: str) -> None:
    result = simulated.run(version)
    array = next(s.array for s in result.barriers if ring.role(result.barriers, s.array) == "full")
    for span in timeline.stages(result.events):
        if span.state == "filling":
            barrier = timeline.at(result.barriers, span.end)[f"{array}[{span.stage}]"]
            assert barrier.phase == span.tile // simulated.STAGES + 1
            before = timeline.at(result.barriers, span.end - 1)[barrier.label]
            assert before.bytes > 0 and before.phase == barrier.phase - 1


# ---- raster -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v3", "v4", "v6", "v7"])
def test_each_tile_is_visited_once(version: str) -> None:
    tiles, down = raster.visits(version, 2048), 2048 // simulated.SCHEDULES[version]["block_m"]
    assert len(tiles) == 16 * down and set(tiles) == {
        (i, j) for i in range(down) for j in range(16)
    }


def test_the_orders_of_persistent_blocks_are_those_of_the_record(tmp_path: Path) -> None:
    data = records.load(raster.ROOT / "plots" / "data" / "ladder.json")
    raster.v7("light", "plots/data/ladder.json")
    assert [ax.get_title() for ax in plt.gcf().axes] == ["V6", "V7"]
    for ax, version in zip(plt.gcf().axes, ("v6", "v7"), strict=True):
        schedule = data.summary(version, *raster.LARGEST).schedule
        wave = raster.visits(version, **schedule)[: raster.SMS]
        assert f"{len({row for row, _ in wave})} panels of A" in ax.get_xlabel()


def test_v3_goes_down_the_columns_and_v4_in_groups_of_eight_rows() -> None:
    assert raster.visits("v3", 2048)[:17] == (*((i, 0) for i in range(16)), (0, 1))
    assert raster.visits("v4", 2048)[:9] == (*((i, 0) for i in range(8)), (0, 1))


def test_working_set_counts_each_panel_once() -> None:
    read = raster.working_set([(0, 0), (0, 1), (1, 1)], (128, 256), 64)
    assert (read.a_panels, read.b_panels) == (2, 2)
    assert read.nbytes == 2 * 64 * (2 * 128 + 2 * 256)


def test_a_wave_of_v4_reads_less() -> None:
    waves = [raster.visits(version)[: raster.SMS] for version in ("v3", "v4")]
    column, group = (raster.working_set(tiles, (128, 128), raster.SIZE) for tiles in waves)
    assert (column.a_panels, column.b_panels) == (64, 3)
    assert (group.a_panels, group.b_panels) == (8, 17)


# ---- shared memory and fragments ----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_parts_of_shared_memory_do_not_overlap(version: str) -> None:
    script = simulated.step(version)
    plan = script.lower(n_size=script.block_n, k_size=512).plan
    parts = shared_map.parts(plan)
    assert all(a.begin + a.nbytes <= b.begin for a, b in pairwise(parts))
    assert parts[0].begin == 0 and parts[-1].begin + parts[-1].nbytes <= plan.shared_bytes
    tiles = sum(p.nbytes for p in parts if not p.barrier)
    assert tiles == sum(buffer.nbytes for buffer in plan.shared)


def test_the_swizzle_spreads_a_column_over_all_banks_and_stays_in_its_line() -> None:
    shape = (128, 64)
    plain = shared_map.chunks(layout.SharedLayout(shape, 2))
    spread = shared_map.chunks(layout.SharedLayout(shape, 2, layout.Swizzle.B128))
    assert {plain[row, 0][1] for row in range(8)} == {0}
    assert {spread[row, 0][1] for row in range(8)} == set(range(8))
    assert plain.keys() == spread.keys()
    assert all(plain[at][0] == spread[at][0] for at in plain)


def test_each_element_of_the_accumulator_has_one_holder() -> None:
    held = fragment.holders(fragment.tile("v1", "acc"))
    assert len(held) == 128 * 128 and all(len(who) == 1 for who in held.values())
    assert held[0, 0] == [(0, 0)] and held[8, 1] == [(0, 3)] and held[16, 0] == [(32, 0)]


def test_mma_accumulates_as_wgmma_does_in_the_first_warp() -> None:
    warp, group = (fragment.holders(fragment.tile(v, "acc")) for v in ("v0", "v1"))
    assert all(warp[i, j] == group[i, j] for i in range(16) for j in range(16))
