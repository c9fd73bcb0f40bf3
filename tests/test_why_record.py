# SPDX-License-Identifier: Apache-2.0
"""The record of joules and clocks agrees with itself, and with what a profiler counted."""

import json
from pathlib import Path

import pytest

from tilus import joules
from tilus.simulator import Costs

FOLDER = Path(__file__).parents[1] / "plots" / "data"
RECORD = joules.load(FOLDER / "why.json")
PROFILE = json.loads((FOLDER / "profile.json").read_text())["launches"]
PROFILED = [
    load.name
    for load in RECORD.series("sustained")
    if load.name in PROFILE
    and PROFILE[load.name]["schedule"] == RECORD.data["schedules"].get(load.name)
]
KINDS = {load.name.partition("-")[0] for load in RECORD.series("zeros")}


def busy(load):
    """Return the share of what all tensor cores can do in the load's cycles."""
    most = RECORD.data["environment"]["sms"] * Costs().wgmma_flop * load.cycles * 1e6
    return load.data["flops"] / most


def test_it_has_every_series_and_what_was_judged_by_a_bound_was_within_it():
    assert {load.data["series"] for load in RECORD.all} == set(joules.SERIES)
    assert RECORD.series("half-sums")[0].data["verified"]
    assert RECORD.data["environment"]["device"] == "cuda"
    assert PROFILED


@pytest.mark.parametrize("load", RECORD.all, ids=lambda load: load.name)
def test_nobody_does_more_than_the_tensor_cores_can_in_the_counted_cycles(load):
    assert 0.85 < busy(load) <= 1
    assert load.sm_mhz < load.nvml_mhz


@pytest.mark.parametrize("name", PROFILED)
def test_the_counted_clock_agrees_with_the_profiler(name):
    """Which counted on its own how busy the tensor cores were, in a launch of the same schedule."""
    counted = busy(RECORD.of("sustained", name))
    assert counted == pytest.approx(PROFILE[name]["tensor_pipe_pct"] / 100, abs=0.02)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_on_zeros_a_kernel_takes_as_many_cycles_and_fewer_joules(name):
    random, zeros = (RECORD.of("zeros", f"{name}-{inputs}") for inputs in ("random", "zeros"))
    assert zeros.cycles == pytest.approx(random.cycles, rel=0.01)
    assert zeros.joules < 0.7 * random.joules
