# SPDX-License-Identifier: Apache-2.0
"""Figures show what the kernels, the simulator and the records hold, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import fixture
import matplotlib.pyplot as plt
import numpy as np
import pytest

import against_cublas
import beside
import fragment
import predicted
import raster
import ring
import shared_map
import simulated
import timelines
from tilus import layout, prediction, records, timeline, traces
from tilus.records import Record
from tilus.simulator import Costs
from tilus.simulator.engines import LANES

VERSIONS = list(simulated.SCHEDULES)
DRAWN = [
    *(getattr(timelines, name) for name in [*VERSIONS, "ladder"]),
    *(getattr(ring, name) for name in VERSIONS[1:]),
    *(getattr(shared_map, name) for name in [*VERSIONS, "swizzle"]),
    *(fragment.wgmma, fragment.mma, raster.v4),
]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Leave no figure open."""
    yield
    plt.close("all")


@pytest.fixture
def ladder(tmp_path: Path) -> str:
    """Return the path of a made-up record of V3, V5 and cuBLAS, which took the time it takes."""
    data = fixture.record().data
    rows: list[dict[str, Any]] = []
    for row in data["measurements"]:
        rows.append(row)
        if row["version"] == "v3":
            rows.append({**_shorter(row, 0.8), "version": "v5", "schedule": V5_SCHEDULE})
    kernels = {**data["sources"]["kernels"], "v5": V5}
    sources = {**data["sources"], "kernels": kernels}
    path = tmp_path / "ladder.json"
    records.write(Record({**data, "sources": sources, "measurements": rows}), path)
    return str(path)


V5_SCHEDULE = simulated.SCHEDULES["v5"]
V5 = {
    "file": "examples/hopper_matmul/matmul_v5.py",
    "class": "MatmulWGMMAV5",
    "sha256": fixture.NOTHING,
    "generated": [
        {
            "schedule": V5_SCHEDULE,
            "arguments": {"n_size": 8192, "k_size": 8192},
            "sha256": fixture.NOTHING,
            "facts": {
                "threads": 288,
                "registers": 168,
                "shared_bytes": 131136,
                "blocks_per_sm": 1,
                "compile_s": 0.1,
            },
        }
    ],
}


def _shorter(row: dict[str, Any], factor: float) -> dict[str, Any]:
    times = [factor * ms for ms in row["latency_ms"]]
    clock = {"sm_mhz": [1500.0, 1510.0, 1490.0]} if row["regime"] == "sustained" else {}
    return {**row, "latency_ms": times, "vs_cublas": row["vs_cublas"] / factor, **clock}


def lengths(ax: Any = None) -> list[float]:
    """Return the lengths of the bars of the current axes."""
    return [float(bar.get_width()) for bar in (ax or plt.gca()).patches]


@pytest.mark.parametrize("draw", DRAWN)
def test_every_figure_can_be_drawn(draw: Any) -> None:
    """On a dark page; the site's build draws them for both."""
    draw("dark")
    assert any(ax.has_data() for ax in plt.gcf().axes)
    plt.gcf().canvas.draw()


# ---- a GPU's timeline beside the simulator's ----------------------------------------------------

SLOWER = 1.5


def recorded(version: str, folder: Path) -> str:
    """Return the path of a made-up record: a GPU that takes half as long again as the model."""
    script = simulated.step(version)
    tiles = beside.WINDOW + 6
    result = prediction.one_block(script, tiles)
    lanes = {LANES[engine]: timeline.SEEN[engine] for engine in LANES}
    events = [
        replace(e, start=SLOWER * e.start, end=SLOWER * e.end, lane=lanes.get(e.lane, e.lane))
        for e in result.events
    ]
    size = {"m": script.block_m, "n": script.block_n, "k": tiles * script.block_k}
    entry = {"version": version, "schedule": simulated.SCHEDULES[version], "block": [0, 0, 0]}
    entry["grid"] = [1, 1, 1]
    entry |= {"cycles": SLOWER * result.cycles, **size, **traces.rows(events)}
    source = {"file": f"examples/hopper_matmul/matmul_{version}.py", "sha256": fixture.NOTHING}
    data = {"schema": traces.SCHEMA_VERSION, "environment": fixture.environment()}
    data |= {"sources": {version: source}, "traces": [entry]}
    traces.write(data, folder / "trace.json")
    return str(folder / "trace.json")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the ring for turning after few tiles: a short trace will do."""
    monkeypatch.setattr(beside, "WINDOW", 4)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("version", ["v0", "v5", "v6"])
def test_a_recorded_block_stands_below_the_simulated_one(version: str, tmp_path: Path) -> None:
    path = recorded(version, tmp_path)
    getattr(beside, version)("light", path)
    above, below = plt.gcf().axes
    titles = [ax.get_title("left") for ax in (above, below)]
    name = version.upper()
    assert titles[0] == f"{name}, simulated (cost model)"
    assert titles[1] == f"{name}, measured on FIXTURE GPU (instrumented build)"
    labels = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in (above, below)]
    roles = len(labels[0]) - 1
    assert labels[0][:roles] == labels[1][:roles] and labels[0][roles].startswith("tensor cores")
    # mma.sync is no engine's: its threads see themselves when it is over.
    seen = "tensor cores" if version == "v0" else "products, until"
    assert labels[1][roles].startswith(seen)
    assert lengths(below) != lengths(above)
    assert below.get_xlim() == above.get_xlim()


def overlapping(spans: list[tuple[float, float]]) -> int:
    return sum(b[0] < a[1] for a, b in pairwise(sorted(spans)))


def test_products_that_are_seen_late_do_not_hide_each_other() -> None:
    """Of the committed record: those of V5 are seen when the next ones have been asked for."""
    _, gpu, _ = beside.pair("plots/data/trace.json", "v5")
    products = [e for e in gpu.events if e.kind == "compute"]
    assert overlapping([(e.start, e.end) for e in products]) > 0
    lines = [row for row in beside.seen(gpu) if any(e.kind == "compute" for e in row.events)]
    lines = [row for row in lines if not row.label.startswith("stage")]
    assert sum(len(row.events) for row in lines) == len(products)
    share = f"seen: {timelines.busy(gpu):.0%} busy"
    assert [row.label for row in lines[:2]] == ["products, until", share]
    for row in beside.seen(gpu):
        same = [e for e in row.events if e.kind == "compute"]
        assert overlapping([(e.start, e.end) for e in same]) == 0, row.label


def test_text_is_readable_on_a_phone() -> None:
    """Nine pixels or more where 342 of them are left for the figure; no number in a bar too thin
    for it, or beyond the axis."""
    beside.v5("light", "plots/data/trace.json")
    figure = plt.gcf()
    figure.canvas.draw()
    scale = 342 / (figure.get_size_inches()[0] * 72)
    for ax in figure.axes:
        texts = [*ax.texts, *ax.get_yticklabels(), *ax.get_xticklabels(), ax.xaxis.label]
        assert all(bar.get_x() < ax.get_xlim()[1] for bar in ax.patches)
        assert ax.texts and min(t.get_fontsize() for t in texts) * scale >= 9
        inside = ax.get_window_extent()
        bars = [bar.get_window_extent() for bar in ax.patches]
        for text in ax.texts:
            box = text.get_window_extent()
            assert box.x0 >= inside.x0 and box.x1 <= inside.x1
            assert any(bar.x0 <= box.x0 and box.x1 <= bar.x1 for bar in bars), text


@pytest.mark.usefixtures("soon")
def test_every_tile_that_is_to_be_seen_is_within_the_axis(tmp_path: Path) -> None:
    path = recorded("v3", tmp_path)
    beside.draw("dark", path, "v3", tiles=3)
    narrow = plt.gcf().axes[0].get_xlim()[1]
    beside.draw("dark", path, "v3", tiles=6)
    assert narrow < plt.gcf().axes[0].get_xlim()[1]
    _, gpu, _ = beside.pair(path, "v3")
    assert narrow == pytest.approx(1.02 * beside.until(gpu, 3))


def test_a_persistent_block_is_shown_at_the_end_of_its_first_tile_of_c() -> None:
    """Of the committed record: the last tiles of K of one tile of C, the first of the next."""
    path = "plots/data/trace.json"
    beside.v6("light", path)
    model, gpu, trace = beside.pair(path, "v6")
    each = trace.size[2] // 64
    first = each - beside.TILES // 2
    assert beside.begin(trace, beside.TILES) == first > 0
    assert beside.begin(beside.pair(path, "v5")[2], beside.TILES) == 0
    ends = [beside.until(r, first + beside.TILES) - beside.until(r, first) for r in (model, gpu)]
    for ax in plt.gcf().axes:
        assert ax.get_xlim() == pytest.approx((0, 1.02 * max(ends)))
        shown = {t.get_text() for t in ax.texts}
        assert {str(each - 1), str(each)} <= shown and "0" not in shown
    assert plt.gcf().axes[1].get_xlabel().endswith(f"product of tile {first - 1} was over")


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


# ---- records ------------------------------------------------------------------------------------


def test_the_ladder_shows_each_step_once(ladder: str) -> None:
    against_cublas.speed("dark", ladder)
    expected = [2 * 8192**3 / ms / 1e9 for ms in (2.5, 2.0, 2.0)]
    assert lengths() == pytest.approx(expected)
    assert [t.get_text() for t in plt.gca().get_yticklabels()] == ["V3", "V5", "cuBLAS"]
    texts = [t.get_text() for t in plt.gca().texts]
    assert texts[0] == f"{expected[0]:.0f} TFLOPS, 2.50 ms, 0.80×"


def test_other_sizes_are_ratios(ladder: str) -> None:
    found = against_cublas.ratios(records.load(Path(ladder)))
    assert list(found) == ["8192³", "4096³", "1000×904×520"]
    assert found["4096³"] == pytest.approx({"v3": 0.8, "v5": 1.0})
    against_cublas.sizes("light", ladder)
    assert [t.get_text() for t in plt.gca().texts] == ["0.80", "1.00"] * 3


def test_a_step_by_itself_is_what_its_record_says(tmp_path: Path) -> None:
    records.write(fixture.record(), tmp_path / "v3.json")
    against_cublas.v3("dark", str(tmp_path / "v3.json"))
    expected = [2 * m * n * k / (f * ms) / 1e9 for f in (1.25, 1) for m, n, k, ms in fixture.SIZES]
    assert sorted(lengths()) == pytest.approx(sorted(expected * 2))


def test_a_record_without_cublas_is_drawn(tmp_path: Path) -> None:
    data = fixture.record().data
    alone = [row | {"vs_cublas": None} for row in data["measurements"] if row["version"] == "v3"]
    path = tmp_path / "v3.json"
    records.write(Record({**data, "measurements": alone}), path)
    against_cublas.v3("light", str(path))
    assert len(lengths()) == 2 * len(fixture.SIZES)
    plt.close("all")
    against_cublas.speed("light", str(path))
    assert len(lengths()) == 1 and "×" not in plt.gca().texts[0].get_text()


def test_a_prediction_stands_beside_its_measurement(ladder: str) -> None:
    found = predicted.compared(records.load(Path(ladder)), "sustained")
    assert list(found) == ["v3", "v5"]
    assert found["v5"].recorded and found["v5"].mhz == 1500
    assert not found["v3"].recorded and found["v3"].mhz == prediction.PEAK_MHZ
    predicted.sustained("dark", ladder)
    drawn = [c.predicted_ms for c in found.values()] + [c.measured_ms for c in found.values()]
    assert np.allclose(lengths(), drawn)
