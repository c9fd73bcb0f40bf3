# SPDX-License-Identifier: Apache-2.0
"""Figures show what the records hold, beside what the simulator says."""

from __future__ import annotations

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
import predicted
import simulated
import timelines
from tilus import prediction, records, timeline, traces
from tilus.records import Record
from tilus.simulator.engines import LANES

pytestmark = pytest.mark.usefixtures("closed")


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
