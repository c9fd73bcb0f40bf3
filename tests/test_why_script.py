# SPDX-License-Identifier: Apache-2.0
"""scripts/why: every series of a record, of what was judged, on a timer that is made up."""

import pytest
from tests.programs import load

from tilus import bench, joules
from tilus.energy import Metered

SMALL = {"num_stages": 2, "block_m": 128, "block_n": 128, "group_m": 8}


class Timer:
    """Launches where a window is a glance of five; every launch takes two milliseconds."""

    def rest(self, seconds):
        """Nothing gets warm."""

    def run(self, launch, count, expected_ms=0.0):
        if count == 5:
            launch()
        return Metered(2.0 * count, count, 1300.0, 650.0, 1400.0)


@pytest.fixture
def why(monkeypatch):
    """The script, for small tiles, and short series."""
    module = load("why")
    monkeypatch.setattr(module.option, "_device", "sim")
    monkeypatch.setattr(
        module,
        "SCHEDULES",
        {"v4": SMALL | {"block_k": 64}, "v6": SMALL, "v7": SMALL | {"num_blocks": 2}},
    )
    monkeypatch.setattr(
        module, "CEILINGS", {"128x64": {"block_m": 128, "block_n": 64, "num_blocks": 1}}
    )
    plans = dict.fromkeys(joules.SERIES, bench.Sustained(0.001, 0.001, 1))
    monkeypatch.setattr(module, "PLANS", plans)
    return module


@pytest.fixture
def world(why):
    """A small world on the simulator."""
    return why.Measured((128, 136, 64), None, Timer(), 1e7)


def test_a_record_has_all_series_of_what_was_judged(why, world, tmp_path, capsys):
    assert why.keep(world, tmp_path / "why.json") == 0
    loads = joules.load(tmp_path / "why.json")
    names = {series: [load.name for load in loads.series(series)] for series in joules.SERIES}
    assert names == {
        "sustained": ["v4", "v6", "v7"],
        "zeros": ["v7-random", "v7-zeros"],
        "ceiling": ["128x64"],
        "half-sums": ["appendix_fp16"],
    }
    v7 = loads.of("sustained", "v7")
    assert (v7.latency_ms, v7.sm_mhz, v7.nvml_mhz, v7.power_w) == (2.0, 1300, 1400, 650.0)
    assert v7.joules == pytest.approx(650 * 0.002)
    assert v7.tflops == pytest.approx(2 * 128 * 136 * 64 / 0.002 / 1e12)
    round_flops = 2 * 128 * 64 * 64 * 3
    assert loads.of("ceiling", "128x64").data["flops"] == round(1e7 / round_flops) * round_flops
    narrow = loads.of("half-sums", "appendix_fp16").data
    assert narrow["verified"] and narrow["errors"].keys() == {"v7", "appendix_fp16"}
    assert loads.staleness(why.ROOT) == ()
    assert "sustained 1/1, v7" in capsys.readouterr().out
