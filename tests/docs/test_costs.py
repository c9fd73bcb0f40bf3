# SPDX-License-Identifier: Apache-2.0
"""The page on the cost model shows every number of the model, with what it is and where from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from ladder import costs

from tilus.simulator import Costs

PROFILE = Path(__file__).parents[2] / "plots" / "data" / "profile.json"


def test_every_number_is_shown_with_its_source() -> None:
    shown = {name: (value, what, source) for name, value, what, source in costs.rows()}
    assert shown.keys() == asdict(Costs()).keys()
    assert (
        shown["wgmma_flop"][0] == "4096 FLOP per cycle" and "989 TFLOPS" in shown["wgmma_flop"][2]
    )
    assert shown["tma_latency"][2] == "round number"
    assert all(what and source for _, what, source in shown.values())


@pytest.mark.parametrize("version", ["v0", "v1", "v2", "v3", "v4", "v5"])
def test_the_rates_of_the_tensor_cores_are_those_that_a_profiler_counted(version: str) -> None:
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    size, launch = profile["problem"], profile["launches"][version]
    flop = 2 * size["m"] * size["n"] * size["k"] / profile["environment"]["sms"]
    active = launch["tensor_pipe_pct"] / 100 * launch["duration_ns"] * 1e-9 * launch["sm_hz"]
    rate = Costs().mma_flop if version == "v0" else Costs().wgmma_flop
    assert flop / active == pytest.approx(rate, rel=1e-3)
