# SPDX-License-Identifier: Apache-2.0
"""The suite on its page: all rows, the mean computed from the record, and what is missing."""

from __future__ import annotations

import math

import pytest
from ladder import suite
from sphinx.errors import ExtensionError
from tests import sample_record

from tilus.kernels import Schedule
from tilus.kernels.suite import SUITE, VERSION, geometric_mean
from tilus.records import Record

SCHEDULE = {
    **{"block_m": 256, "block_n": 16, "num_stages": 6, "num_blocks": 132, "group_m": 8},
    **{"consumers": 2, "split_k": 4, "swapped": True, "turns": False},
}


def record(*ratios: float) -> Record:
    """Return a record with as many rows of the suite, each so many times as fast as cuBLAS."""
    data = sample_record.sample()
    data["sources"]["kernels"] = {VERSION: data["sources"]["kernels"]["v3"]}
    rows = []
    for (m, n, k), ratio in zip(SUITE, ratios, strict=False):
        size = {"m": m, "n": n, "k": k}
        rows.append(sample_record.row("cublas", [1.0], 1.0, **size))
        ours = {"schedule": SCHEDULE, "vs_best_cublas": 0.5 * ratio, "best_cublas": "cublaslt"}
        rows.append(sample_record.row(VERSION, [1 / ratio], ratio, **size) | ours)
    return Record({**data, "measurements": rows})


def test_a_row_has_schedule_time_speed_and_both_ratios():
    size, schedule, time, speed, default, best = suite.cells(record(2.0), SUITE[0])
    assert (size, default, best) == ("8192³", "2.000×", "1.000×")
    assert schedule == "256×16, 6 stages, swapped, K in 4 parts"
    assert time.startswith("0.500") and speed.startswith("2199")


def test_a_schedule_in_pairs_says_so():
    pairs = Schedule(256, 160, 3, cluster=2)
    assert suite.words(pairs.values()) == "256×160, 3 stages, in pairs"


def test_a_row_that_is_not_measured_says_so():
    assert suite.cells(record(2.0), SUITE[1])[2] == "not measured yet"
    assert suite.cells(None, SUITE[1])[2] == "not measured yet"


def test_a_ratio_in_a_sentence_is_the_records():
    made = record(2.0, 0.5)
    m, n, k = SUITE[1]
    assert suite.ratio(made, f"{m} {n} {k}", "here") == "0.500×"
    assert suite.ratio(made, "mean", "here") == "1.000×"
    assert suite.ratio(made, " ".join(map(str, SUITE[2])), "here") is None
    with pytest.raises(ExtensionError, match="here: no size 1 2 3 in the suite"):
        suite.ratio(made, "1 2 3", "here")


@pytest.mark.parametrize("ratios", [(2.0, 0.5), (1.1, 1.1, 0.9)])
def test_the_mean_is_that_of_the_record_and_losses_are_counted(ratios):
    mean = math.prod(ratios) ** (1 / len(ratios))
    assert geometric_mean(list(ratios)) == pytest.approx(mean)
    default, best = suite.means(record(*ratios))
    assert f"geometric mean {mean:.3f}× over {len(ratios)} of {len(SUITE)} sizes" in default
    assert f"from {min(ratios):.3f}× to {max(ratios):.3f}×, slower at 1." in default
    assert f"geometric mean {mean / 2:.3f}×" in best


def test_without_a_record_there_is_no_mean():
    assert suite.means(record(1.0)) and not suite.means(
        Record({**record(1.0).data, "measurements": record(1.0).data["measurements"][:1]})
    )
