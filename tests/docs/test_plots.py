# SPDX-License-Identifier: Apache-2.0
"""V3's figures show what the simulator ran and what the record holds, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fixture
import matplotlib.pyplot as plt
import pytest

import plot_v3
from tilus import records
from tilus.records import Record


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Leave no figure open."""
    yield
    plt.close("all")


def lengths() -> list[float]:
    """Return the lengths of the bars of the current figure."""
    return [float(bar.get_width()) for bar in plt.gca().patches]


def test_every_stage_is_loaded_and_multiplied_once_a_tile() -> None:
    placed = [(lane, event.kind) for lane, event in plot_v3._placed(plot_v3.trace())]
    stages = [lane for lane in plot_v3.STAGE_LANES for _ in range(2)]
    assert len([p for p in placed if p == ("tensor cores", "compute")]) == plot_v3.TILES
    for kind in ("copy", "compute"):
        found = [lane for lane, k in placed if k == kind and lane.startswith("stage")]
        assert sorted(found) == sorted([*stages, "stage 0", "stage 1"])


def test_a_product_begins_after_its_load() -> None:
    loaded: dict[str, float] = {}
    for lane, event in plot_v3._placed(plot_v3.trace()):
        if event.kind == "copy":
            loaded[lane] = event.end
        elif event.kind == "compute" and lane in plot_v3.STAGE_LANES:
            assert event.start >= loaded.pop(lane)


def test_the_record_is_what_is_drawn(tmp_path: Path) -> None:
    records.write(fixture.record(), tmp_path / "v3.json")
    plot_v3.performance("dark", str(tmp_path / "v3.json"))
    expected = [2 * m * n * k / (f * ms) / 1e9 for f in (1.25, 1) for m, n, k, ms in fixture.SIZES]
    assert sorted(lengths()) == pytest.approx(sorted(expected * 2))


def test_a_record_without_cublas_is_drawn(tmp_path: Path) -> None:
    data = fixture.record().data
    alone = [row | {"vs_cublas": None} for row in data["measurements"] if row["version"] == "v3"]
    records.write(Record({**data, "measurements": alone}), tmp_path / "v3.json")
    plot_v3.performance("light", str(tmp_path / "v3.json"))
    assert len(lengths()) == 2 * len(fixture.SIZES)
