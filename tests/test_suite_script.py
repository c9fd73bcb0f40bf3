# SPDX-License-Identifier: Apache-2.0
"""scripts/suite: what is judged once is judged, rows are kept, a run cut short leaves a record."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests import programs
from tests.runtime.fake_driver import H200
from tests.sample_record import SCHEDULE, row, sample

from tilus import baseline, option, records, runtime
from tilus.errors import ArgumentError, TilusError
from tilus.kernels import Schedule, table
from tilus.product import Version

SIZE = (64, 128, 256)


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.setattr(option, "_device", "sim")
    return programs.load("suite")


@pytest.fixture
def tuning(suite):
    """The part of the script that chooses schedules."""
    return sys.modules["tuning"]


@pytest.fixture
def prepared(suite):
    return judged(suite)


def judged(suite):
    """Return a product of one size with what users call as its version, judged."""
    product = suite.Prepared(next(suite.cases([SIZE])), None, lambda _: None)
    kernel = suite.Called(SIZE, *product.arrays)
    product.versions = {suite.VERSION: Version(suite.VERSION, kernel.script, kernel)}
    product.check()
    return product


def test_what_users_call_is_judged_and_its_kernel_recorded(suite, prepared):
    assert prepared.verdicts[suite.VERSION].right
    kernel = prepared.kernels()[suite.VERSION]
    assert kernel["file"] == "src/tilus/kernels/product.py"
    assert not list(records.changes(kernel, suite.ROOT))


def test_the_kernel_in_pairs_has_a_name_of_its_own_that_ages_with_the_version(suite, monkeypatch):
    pairs = Schedule(128, 64, 2, num_blocks=2, cluster=2)
    monkeypatch.setattr(sys.modules["tilus.kernels.matmul"], "fastest", lambda *_: pairs)
    product = judged(suite)
    assert product.verdicts[suite.VERSION].right
    ((name, kernel),) = product.kernels().items()
    assert (name, kernel["file"]) == (suite.IN_PAIRS, "src/tilus/kernels/pairs.py")
    assert kernel["generated"][0]["schedule"] == pairs.values()
    assert not list(records.changes(kernel, suite.ROOT))
    one = record(suite, SIZE)
    one.sources["kernels"][name] = kernel | {"sha256": "0" * 64}
    assert f"{kernel['file']} changed" in records.staleness(one, suite.ROOT, suite.VERSION)
    assert f"{kernel['file']} changed" not in records.staleness(one, suite.ROOT, "cublas")


def test_what_is_chosen_today_is_measured_again(tuning, monkeypatch):
    today = Schedule(64, 8, 2, consumers=1)  # which the estimate would not think of there
    monkeypatch.setattr(tuning, "known", lambda: SimpleNamespace(choose=lambda size: today))
    found = tuning.worth_it((8192, 8192, 8192))
    assert found[-1] == today and len(found) == tuning.CANDIDATES + 1
    monkeypatch.setattr(tuning, "known", lambda: SimpleNamespace(choose=lambda size: found[0]))
    assert tuning.worth_it((8192, 8192, 8192)) == found[:-1]


def test_the_same_bits_need_one_verdict_and_others_are_judged(suite, prepared, monkeypatch):
    first = prepared.verdicts[suite.VERSION]
    version = prepared.versions[suite.VERSION]
    same = baseline.Contender(
        "cublas", lambda: prepared.run(version, prepared.operands), "x", None, lambda: None
    )
    monkeypatch.setattr(type(prepared.operands), "judge", lambda *_: 1 / 0)
    assert prepared._judged(same) is first
    monkeypatch.undo()
    wrong = baseline.Contender("cublas", prepared.operands.blank, "x", None, lambda: None)
    with pytest.raises(TilusError, match="cublas at 64x128x256 is wrong"):
        prepared._judged(wrong)


def record(suite, *sizes):
    """Return a record of the suite with these rows."""
    data = sample()
    data["sources"]["kernels"] = {suite.VERSION: data["sources"]["kernels"]["v3"]}
    data["measurements"] = [
        one
        for m, n, k in sizes
        for one in (
            row("cublas", [1.0], 1.0, m=m, n=n, k=k),
            row(suite.VERSION, [1.0], 1.0, m=m, n=n, k=k)
            | {"schedule": SCHEDULE, "vs_best_cublas": 1.0},
        )
    ]
    return records.Record(data)


def measuring(suite, monkeypatch, *words):
    """Run the command with a fake GPU; return the sizes that were measured."""
    seen = []

    def measured(product):
        seen.append(product.size)
        if product.size[0] == 24:
            raise TilusError("wrong")
        return record(suite, product.size)

    monkeypatch.setattr(runtime, "require_gpu", lambda: None)
    monkeypatch.setattr(suite, "measured", measured)
    done = CliRunner().invoke(suite.COMMAND, ["measure", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return seen, done.output


ROWS = ["--row", "8", "8", "8", "--row", "24", "8", "8", "--row", "16", "8", "8"]


def test_a_row_that_fails_costs_no_other(suite, monkeypatch, tmp_path):
    path = tmp_path / "suite.json"
    seen, said = measuring(suite, monkeypatch, str(path), *ROWS)
    assert [m for m, *_ in seen] == [8, 24, 16]
    assert "24x8x8 FAILED: wrong" in said
    assert {r["m"] for r in records.load(path).measurements} == {8, 16}


def test_a_run_goes_on_where_one_was_cut_short(suite, monkeypatch, tmp_path):
    path, before = tmp_path / "suite.json", tmp_path / "before.json"
    records.write(record(suite, (8, 8, 8)), before)
    monkeypatch.setattr(records, "staleness", lambda *_: ())
    seen, _ = measuring(suite, monkeypatch, str(path), *ROWS, "--keep", str(before))
    assert [m for m, *_ in seen] == [24, 16]
    assert {r["m"] for r in records.load(path).measurements} == {8, 16}


def test_rows_of_another_kernel_are_measured_again(suite, monkeypatch, tmp_path):
    path, before = tmp_path / "suite.json", tmp_path / "before.json"
    records.write(record(suite, (8, 8, 8)), before)
    seen, said = measuring(suite, monkeypatch, str(path), *ROWS, "--keep", str(before))
    assert len(seen) == 3 and "is not kept" in said


def test_nothing_begins_when_the_time_is_over(suite, monkeypatch, tmp_path):
    seen, said = measuring(suite, monkeypatch, str(tmp_path / "x"), *ROWS, "--seconds", "0")
    assert not seen and "no time left" in said


def test_the_table_has_the_fastest_and_all_that_was_tried(tuning, monkeypatch, tmp_path):
    fast, slow = Schedule(256, 200, 3), Schedule(128, 256, 3)
    trial = tuning.Trial((1, 2, 3), None, {slow: 2.0, fast: 1.0}, 1.5)
    telemetry = SimpleNamespace(power_limit_w=700.0)
    monkeypatch.setattr(runtime, "telemetry", lambda _: telemetry)
    path = tmp_path / "t.json"
    tuning.write_table(path, [trial.row()], H200)
    found = json.loads(path.read_text())
    assert table.Table.of(found).rows == {(1, 2, 3): fast}
    assert [t["ms"] for t in found["rows"][0]["tried"]] == [1.0, 2.0]
    assert found["sources"] == table.hashes()
    assert tuning.kept_rows(path, H200) == found["rows"]
    with pytest.raises(ArgumentError, match=r"--keep must be a table of H1 and of today's kernels"):
        tuning.kept_rows(path, replace(H200, name="H1"))


def test_orders_that_are_the_same_for_a_size_are_tried_once(tuning):
    trial = tuning.Trial((8192, 8192, 8192), None, {Schedule(256, 200, 3): 1.0})
    assert [(s.group_m, s.num_blocks) for s in tuning.orders(trial)] == list(tuning.ORDERS)
    flat = tuning.Trial((16, 28672, 4096), None, {Schedule(64, 256, 4, consumers=1): 1.0})
    assert [(s.group_m, s.num_blocks) for s in tuning.orders(flat)] == [(1, 128)]
    assert tuning.orders(tuning.Trial((1, 1, 1), None)) == []
