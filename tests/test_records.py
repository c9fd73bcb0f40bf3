# SPDX-License-Identifier: Apache-2.0
"""Records: what is refused, what survives a round trip, and what makes one stale."""

import copy
import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.sample_record import KERNEL, SCHEDULE, row, sample

import tilus
from tilus import loader, records
from tilus.errors import ArgumentError
from tilus.records import Record

ROOT = Path(__file__).parents[1]


@pytest.fixture
def data():
    return sample()


def test_a_record_survives_the_round_trip(data, tmp_path):
    path = tmp_path / "deep" / "v3.json"
    records.write(Record(data), path)
    assert records.load(path).data == data
    assert '"latency_ms": [1.4, 1.5, 1.6]' in path.read_text()


def spoil(data, path, value):
    *steps, last = path
    for step in steps:
        data = data[step]
    if value is ...:
        del data[last]
    else:
        data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["schema"], 1, "2 was expected"),
        (["environment", "driver"], ..., "'driver' is a required property"),
        (["environment", "form"], "rack", "'rack' is not one of"),
        (["environment", "date"], "yesterday", "does not match"),
        (["sources", "kernels", "v3", "file"], "/home/me/v3.py", "does not match"),
        (["sources", "kernels", "v3", "generated"], [], "[] should be non-empty"),
        (["sources", "kernels", "v3", "class"], ..., "'class' is a dependency of 'generated'"),
        (["sources", "kernels", "v3", "generated", 0, "facts"], {}, "'threads' is a required"),
        (["measurements", 1, "verified"], False, "True was expected"),
        (["measurements", 1, "verified"], ..., "'verified' is a required property"),
        (["measurements", 1, "latency_ms"], [], "[] should be non-empty"),
        (["measurements", 1, "latency_ms", 0], -1.0, "less than or equal"),
        (["measurements", 1, "latency_ms", 0], float("nan"), "nan at $.measurements[1].latency"),
        (["measurements", 1, "latency_ms", 0], float("inf"), "inf at"),
        (["measurements", 1, "latency_ms", 0], "2.0", "is not of type 'number'"),
        (["measurements", 1, "m"], 8192.5, "is not of type 'integer'"),
        (["measurements", 1, "regime"], "warm", "is not one of"),
        (["measurements", 1, "tflops"], 600, "Additional properties"),
        (["measurements", 1, "vs_cublas"], 0.84, "vs_cublas 0.750000"),
        (["measurements", 0, "vs_cublas"], 1.01, "vs_cublas 1.000000"),
        (["measurements", 1, "cycles"], 9, "should not be valid"),
    ],
)  # fmt: skip
def test_what_a_record_must_not_say(data, path, value, said, tmp_path):
    spoil(data, path, value)
    with pytest.raises(ArgumentError) as caught:
        Record(data)
    assert said in str(caught.value)
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(ArgumentError):
        records.load(tmp_path / "bad.json")


def test_a_ratio_needs_its_baseline(data):
    del data["measurements"][0]
    with pytest.raises(ArgumentError, match="without vs_cublas where cublas was not timed"):
        Record(data)
    data["measurements"][0]["vs_cublas"] = None
    assert Record(data).summary("v3", 8192, 8192, 8192).vs_cublas is None


def test_times_of_another_process_are_no_baseline(data):
    data["measurements"][1]["process"] = 1
    with pytest.raises(ArgumentError, match="without vs_cublas"):
        Record(data)


def test_simulated_cycles_are_no_times(data):
    simulated = row("v3", [], None, regime="simulated", cycles=5000)
    data["measurements"] = [simulated]
    record = Record(data)
    with pytest.raises(ArgumentError, match="no timed simulated measurement"):
        record.summary("v3", 8192, 8192, 8192, "simulated")
    for change in ({"latency_ms": [1.0]}, {"vs_cublas": 1.0}):
        data["measurements"] = [simulated | change]
        with pytest.raises(ArgumentError):
            Record(data)


def test_a_summary_takes_medians_over_rounds_then_processes(data):
    more = [copy.deepcopy(data) for _ in range(3)]
    for other, times in zip(more, ([1.0, 2.0, 2.0], [3.0] * 3, [1.0, 1.0, 9.0]), strict=True):
        other["measurements"][1] = row("v3", times, records.ratio([1.4, 1.5, 1.6], times))
    merged = records.merge([Record(other) for other in more])
    summary = merged.summary("v3", 8192, 8192, 8192)
    assert summary.latency_ms == 2.0 and summary.processes == 3 and summary.schedule == SCHEDULE
    assert (summary.low, summary.vs_cublas, summary.high) == (0.5, 0.8, 1.4)
    assert summary.tflops == pytest.approx(2 * 8192**3 / 2e-3 / 1e12)
    assert [r["process"] for r in merged.select(version="v3")] == [0, 1, 2]


def test_sizes_are_merged_each_with_its_own_processes(data):
    other = copy.deepcopy(data)
    for measurement in other["measurements"]:
        measurement["m"] = 4096
    merged = records.merge([Record(d) for d in (data, other, data, other)])
    found = [(r["m"], r["process"]) for r in merged.select(version="v3")]
    assert found == [(8192, 0), (4096, 0), (8192, 1), (4096, 1)]


@pytest.mark.parametrize(
    "path",
    [
        ["environment", "gpu"],
        ["environment", "driver"],
        ["method", "inputs"],
        ["sources", "kernels", "v3", "sha256"],
        ["sources", "measuring", "src/tilus/bench.py"],
    ],
)
def test_only_runs_of_one_program_on_one_machine_are_merged(data, path):
    other = copy.deepcopy(data)
    spoil(other, path, "1" * 64)
    with pytest.raises(ArgumentError, match="of the same"):
        records.merge([Record(data), Record(other)])


def renamed(data, version):
    """Return the record with another version in the place of V3."""
    text = json.dumps(data).replace('"v3"', f'"{version}"')
    return json.loads(text)


def test_versions_measured_apart_keep_the_cublas_beside_them(data):
    other = renamed(data, "v4")
    other["measurements"][0]["latency_ms"] = [2.8, 3.0, 3.2]
    other["measurements"][1]["vs_cublas"] = 1.5
    merged = records.merge([Record(data), Record(other)])
    assert set(merged.sources["kernels"]) == {"v3", "v4"}
    assert [(r["version"], r["process"]) for r in merged.measurements] == [
        ("cublas", 0), ("v3", 0), ("cublas", 1), ("v4", 1)
    ]  # fmt: skip
    assert merged.summary("v4", 8192, 8192, 8192).vs_cublas == 1.5


def test_a_rival_may_be_missing_from_a_record_but_not_be_another(data):
    other = copy.deepcopy(data)
    data["environment"]["cublas"]["triton"] = {"library": "triton 3.6.0", "version": None}
    for parts in ((data, other), (other, data)):
        merged = records.merge([Record(part) for part in parts])
        assert set(merged.data["environment"]["cublas"]) == {"cublas", "triton"}
    other["environment"]["cublas"]["cublas"]["version"] = "12.0"
    with pytest.raises(ArgumentError, match="of the same cublas"):
        records.merge([Record(data), Record(other)])


def test_a_process_keeps_its_number_where_it_is_free(data):
    for measurement in data["measurements"]:
        measurement["process"] = 2
    merged = records.merge([Record(data), Record(sample())])
    assert [r["process"] for r in merged.select(version="v3")] == [2, 0]


def test_merged_schedules_are_listed_once_with_the_first_facts(data):
    other, third = copy.deepcopy(data), copy.deepcopy(data)
    facts = {"threads": 160, "registers": 168, "shared_bytes": 4096, "blocks_per_sm": 1}
    for d, seconds in ((data, 0.25), (other, 0.5)):
        d["sources"]["kernels"]["v3"]["generated"][0]["facts"] = facts | {"compile_s": seconds}
    third["sources"]["kernels"]["v3"]["generated"][0]["arguments"] = {"n_size": 4096}
    merged = records.merge([Record(d) for d in (data, other, third)])
    first, second = merged.sources["kernels"]["v3"]["generated"]
    assert first["facts"]["compile_s"] == 0.25 and second["arguments"] == {"n_size": 4096}


# ---- staleness ----------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    for name in (KERNEL, *records.MEASURING):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def fresh(data, tree):
    cls = loader.find(tree / KERNEL, tilus.Script)
    entry = records.generated(cls, SCHEDULE, {"n_size": 256, "k_size": 256})
    data["sources"] = records.sources({"v3": records.kernel(KERNEL, tree, cls, [entry])}, tree)
    return Record(data)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_changed_nothing_stale(fresh, tree):
    assert records.staleness(fresh, tree) == ()


def test_comments_and_docstrings_make_nothing_stale(fresh, tree):
    edit(tree / KERNEL, "one warp only loads", "some load")
    edit(tree / KERNEL, "    def __call__", "    # the program\n    def __call__")
    assert records.staleness(fresh, tree) == ()


def test_a_measuring_module_makes_a_record_stale(fresh, tree):
    edit(tree / "src/tilus/verify.py", "BAND = 64", "BAND = 65")
    assert records.staleness(fresh, tree) == ("src/tilus/verify.py changed",)
    (tree / "src/tilus/verify.py").unlink()
    assert records.staleness(fresh, tree) == ("src/tilus/verify.py changed",)


def test_a_changed_kernel_makes_other_machine_code(fresh, tree):
    edit(tree / KERNEL, "self.wgmma.wait_group(0)", "self.wgmma.wait_group(1)")
    changed = records.staleness(fresh, tree)
    assert changed[0] == f"{KERNEL} changed"
    assert changed[1].startswith("the CUDA of MatmulWGMMAV3 at {'num_stages': 4")


def test_a_change_of_one_version_makes_only_its_own_numbers_stale(fresh, tree):
    other = "examples/hopper_matmul/matmul_v9.py"
    (tree / other).write_text("class Other: pass\n")
    kernels = fresh.data["sources"]["kernels"]
    kernels["rival"] = records.kernel(other, tree)
    assert records.staleness(fresh, tree) == ()
    edit(tree / other, "pass", "value = 1")
    assert records.staleness(fresh, tree, "v3") == ()
    assert records.staleness(fresh, tree, "rival") == (f"{other} changed",)
    assert records.staleness(fresh, tree) == (f"{other} changed",)


def test_facts_about_the_machine_code_do_not_age(fresh, tree):
    facts = {"threads": 160, "registers": 168, "shared_bytes": 4096, "blocks_per_sm": 1}
    fresh.data["sources"]["kernels"]["v3"]["generated"][0]["facts"] = facts | {"compile_s": 0.4}
    assert records.staleness(fresh, tree) == ()


def test_a_changed_compiler_makes_a_record_stale(fresh, tree, monkeypatch):
    emit = records.emit
    monkeypatch.setattr(records, "emit", lambda kernel: emit(kernel) + "int x;\n")
    (changed,) = records.staleness(fresh, tree)
    assert changed.startswith("the CUDA of MatmulWGMMAV3")


@pytest.mark.parametrize("new", ["class Renamed", "class !", None])
def test_a_kernel_that_is_gone_is_stale_not_a_crash(fresh, tree, new):
    if new:
        edit(tree / KERNEL, "class MatmulWGMMAV3", new)
    else:
        (tree / KERNEL).unlink()
    changed = records.staleness(fresh, tree)
    assert changed[0] == f"{KERNEL} changed" and "no longer compiles" in changed[1]


def test_staleness_leaves_an_imported_kernel_alone(fresh, tree):
    before = set(sys.modules)
    records.staleness(fresh, tree)
    assert "matmul_v3" not in set(sys.modules) - before
