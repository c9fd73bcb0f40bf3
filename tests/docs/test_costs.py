# SPDX-License-Identifier: Apache-2.0
"""The page on the cost model shows every number of the model, with what it is and where from."""

from __future__ import annotations

from dataclasses import asdict

from ladder import costs

from tilus.simulator import Costs


def test_every_number_is_shown_with_its_source() -> None:
    shown = {name: (value, what, source) for name, value, what, source in costs.rows()}
    assert shown.keys() == asdict(Costs()).keys()
    assert (
        shown["wgmma_flop"][0] == "4096 FLOP per cycle" and "989 TFLOPS" in shown["wgmma_flop"][2]
    )
    assert shown["tma_latency"][2] == "round number"
    assert all(what and source for _, what, source in shown.values())
