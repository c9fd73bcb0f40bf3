# SPDX-License-Identifier: Apache-2.0
"""The suite on its page: all rows, the mean computed from the record, and what is missing."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from ladder import suite
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from tests import sample_record

from tilus import records
from tilus.kernels import Schedule
from tilus.kernels.schedules import Size
from tilus.kernels.suite import SUITE, UNSEEN, VERSION
from tilus.records import Record

SCHEDULE = {
    **{"block_m": 256, "block_n": 16, "num_stages": 6, "num_blocks": 132, "group_m": 8},
    **{"consumers": 2, "split_k": 4, "swapped": True, "turns": False},
}


def record(*ratios: float, sizes: tuple[Size, ...] = SUITE) -> Record:
    """Return a record with as many rows of the suite, each so many times as fast as cuBLAS."""
    data = sample_record.sample()
    data["sources"]["kernels"] = {VERSION: data["sources"]["kernels"]["v3"]}
    rows = []
    for (m, n, k), ratio in zip(sizes, ratios, strict=False):
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


def build(root: Path, made: Record | None, directive: str = "suite-table::") -> str:
    """Build one page in a project of its own; return its text."""
    (root / "docs").mkdir(parents=True)
    text = f"Page\n====\n\n:suite:`{' '.join(map(str, SUITE[1]))}`.\n\n.. {directive}\n"
    (root / "docs" / "index.rst").write_text(text)
    if made:
        records.write(made, root / "plots" / "data" / "suite.json")
    settings = {"extensions": ["ladder.numbers", "ladder.suite"], "record_folders": ["plots/data"]}
    (root / "conf.py").write_text("".join(f"{k} = {v!r}\n" for k, v in settings.items()))
    folders = root / "docs", root, root / "out", root / "trees"
    Sphinx(*folders, "html", status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


def test_a_page_has_ratio_rows_and_means(tmp_path):
    text = build(tmp_path, record(2.0, 0.5))
    assert "|0.500×|" in text and text.count("not measured yet") == len(SUITE) - 2
    assert f"geometric mean 1.000× over 2 of {len(SUITE)} sizes" in text
    assert f"geometric mean 0.500× over 2 of {len(SUITE)} sizes" in text


def test_a_page_without_a_record_says_so(tmp_path):
    text = build(tmp_path, None)
    assert text.count("not measured yet") == 1 + len(SUITE) and "geometric mean" not in text
    assert "there is no record plots/data/suite.json" in text


def test_sizes_beside_the_suite_have_a_table_of_their_own_without_a_mean(tmp_path):
    made = record(0.75, sizes=UNSEEN[3:])
    text = build(tmp_path, made, "suite-table:: unseen")
    assert "0.750×" in text and text.count("not measured yet") == len(UNSEEN)  # one in the text
    assert "default at 1 of 1 sizes." in text and "geometric mean" not in text
    assert suite.ratio(made, " ".join(map(str, UNSEEN[3])), "here") == "0.750×"


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
    default, best = suite.means(record(*ratios))
    assert f"geometric mean {mean:.3f}× over {len(ratios)} of {len(SUITE)} sizes" in default
    assert f"from {min(ratios):.3f}× to {max(ratios):.3f}×, slower at 1." in default
    assert f"geometric mean {mean / 2:.3f}×" in best


def test_without_rows_of_ours_there_is_no_mean():
    data = record(1.0).data
    bare = Record({**data, "measurements": data["measurements"][:1]})
    assert not suite.means(bare) and suite.ratio(bare, "mean", "here") is None
