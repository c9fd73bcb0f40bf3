# SPDX-License-Identifier: Apache-2.0
"""Arguments, blocks and results of a run."""

import numpy as np
import pytest
from small import do, kernel, run

from tilus import ir, simulator
from tilus.dtypes import float16, int32, uint64
from tilus.errors import ArgumentError

N, P = ir.Var("n", int32), ir.Var("p", uint64)
PARAMS = ir.Param("n", int32, N), ir.Param("p", float16, P, pointer=True)


def test_blocks_run_in_order_x_fastest():
    log = []
    it = kernel(do(lambda m: log.append(m.block)), params=PARAMS, blocks=(N, 2, 1))
    result = simulator.run(it, {"n": 2, "p": np.zeros(1, np.float16)})
    assert log == list(result.blocks) == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]


def test_empty_grid_runs_nothing():
    it = kernel(do(lambda m: 1 / 0), params=PARAMS, blocks=(N, 1, 1))
    assert simulator.run(it, {"n": 0, "p": np.zeros(1, np.float16)}).cycles == 0


def test_events_only_where_asked_for():
    assert run(do(lambda m: None)).events == ()
    (event,) = run(do(lambda m: None), trace=True).events
    assert (event.lane, event.kind, event.start, event.what) == ("warps 0-4", "issue", 0, "_Do")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": None}, "n must be given"),
        ({"n": 2**31}, "n must be a value of int32, got 2147483648"),
        ({"n": np.zeros(1)}, "n must be a value of int32, got an array"),
        ({"p": 3}, "p must be a one-dimensional contiguous NumPy array of float16, got int"),
        ({"p": np.zeros(4)}, "got float64 of shape"),
        ({"p": np.zeros((2, 2), np.float16)}, r"got float16 of shape \(2, 2\)"),
        ({"p": np.zeros(4, np.float16)[::2]}, "contiguous"),
    ],
)
def test_arguments_that_do_not_fit(change, message):
    arguments = {"n": 1, "p": np.zeros(1, np.float16)} | change
    arguments = {name: value for name, value in arguments.items() if value is not None}
    with pytest.raises(ArgumentError, match=message):
        simulator.run(kernel(params=PARAMS), arguments)


def test_unknown_schedule_and_block():
    with pytest.raises(ArgumentError, match="schedule must be one of timed, early, late, random"):
        run(schedule="fast")
    with pytest.raises(ArgumentError, match=r"blocks must be inside the grid \(1, 1, 1\)"):
        run(blocks=[(1, 0, 0)])


def test_a_grid_holds_whole_clusters():
    with pytest.raises(ArgumentError, match=r"multiple of the cluster \(2, 1, 1\), got"):
        simulator.run(kernel(cluster=(2, 1, 1)), {})


def test_a_selected_block_brings_its_cluster():
    log = []
    it = kernel(do(lambda m: log.append((m.block, m.rank))), blocks=(4, 2, 1), cluster=(2, 2, 1))
    simulator.run(it, {}, blocks=[(3, 0, 0)])
    assert log == [((2, 0, 0), 0), ((3, 0, 0), 1), ((2, 1, 0), 2), ((3, 1, 0), 3)]
