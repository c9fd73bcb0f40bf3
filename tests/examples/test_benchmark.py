# SPDX-License-Identifier: Apache-2.0
"""benchmark.py: what its command line asks for, and that it says no times where there is no GPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilus import baseline, loader, option, records, runtime, workload
from tilus.errors import ArgumentError
from tilus.frontend import kernel_function

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "hopper_matmul" / "benchmark.py"


@pytest.fixture
def benchmark(monkeypatch, tmp_path):
    monkeypatch.setattr(option, "_cache_dir", str(tmp_path))
    monkeypatch.setattr(option, "_device", "auto")
    return loader.load(FILE)


def asked(benchmark, monkeypatch, *words):
    """Return the scripts and the request that words on the command line make."""
    seen = []
    monkeypatch.setattr(workload, "carry_out", lambda *arguments: seen.extend(arguments))
    benchmark.COMMAND.main(list(words), standalone_mode=False)
    return seen


def test_versions_are_found_by_their_files(benchmark):
    files = {path.stem.removeprefix("matmul_") for path in FILE.parent.glob("matmul_v*.py")}
    assert files == set(benchmark.NAMES) and "v3" in files
    assert sorted(benchmark.NAMES) == benchmark.NAMES


def test_all_versions_unless_some_are_named(benchmark, monkeypatch):
    scripts, request = asked(benchmark, monkeypatch)
    assert list(scripts) == benchmark.NAMES
    for name, script in scripts.items():
        assert Path(kernel_function(script).__code__.co_filename).stem == f"matmul_{name}"
    assert not request.sizes and request.rounds == 9 and request.tune_at is None
    scripts, _ = asked(benchmark, monkeypatch, "--version", "v3", "--version", "v1")
    assert list(scripts) == ["v3", "v1"]


def test_what_is_asked_for_arrives(benchmark, monkeypatch):
    words = "--size 64 72 80 --size 8 8 8 --tune-at 16 16 16 --rounds 3 --runs 20 --process 2"
    _, request = asked(benchmark, monkeypatch, *words.split(), "--regime", "sustained")
    assert list(request.sizes) == [(64, 72, 80), (8, 8, 8)] and request.tune_at == (16, 16, 16)
    assert (request.rounds, request.runs, request.process) == (3, 20, 2)
    assert list(request.plans) == ["sustained"]
    _, request = asked(benchmark, monkeypatch, "--rounds", "3")
    assert request.plans["burst"].rounds == 3


def test_schedules_are_for_one_version_or_for_all(benchmark):
    given = benchmark.schedules(["num_stages=4", "v3:block_m=128,block_k=64"], ["v2", "v3"])
    assert given == {
        "v2": {"num_stages": 4}, "v3": {"num_stages": 4, "block_m": 128, "block_k": 64}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("num_stages", "must be .VERSION:.NAME=VALUE"),
        ("a=b c", "must be .VERSION:.NAME=VALUE"),
        ("v9:a=1", "must be for one of v2, v3"),
    ],
)
def test_schedules_that_mean_nothing_are_refused(benchmark, word, said):
    with pytest.raises(ArgumentError, match=said):
        benchmark.schedules([word], ["v2", "v3"])


def test_only_the_contenders_named_are_looked_for(benchmark, monkeypatch, capsys):
    def contenders(a, b, c, names):
        return [SimpleNamespace(name=name) for name in names if name == "cublas"]

    monkeypatch.setattr(baseline, "contenders", contenders)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "triton" else real(name)
    )
    (find,) = benchmark.finders(["cublas", "triton"])
    assert [rival.name for rival in find(None, None, None)] == ["cublas"]
    assert capsys.readouterr().out == "not here: triton\n"


def test_a_triton_that_fails_is_said_and_left_out(benchmark, monkeypatch):
    def fail():
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(vars(benchmark), "_triton", fail)
    with pytest.warns(UserWarning, match="triton is not measured: no such instruction"):
        assert benchmark.triton(None, None, None) == []


def test_the_triton_rival_is_a_contender_with_a_file(benchmark, monkeypatch):
    launched = []
    module = SimpleNamespace(
        launcher=lambda a, b, c: lambda: launched.append((a, b, c)), chosen=lambda: "BLOCK_M=128"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(vars(benchmark)["metadata"], "version", lambda name: "3.6.0")
    monkeypatch.setitem(vars(benchmark), "_triton", lambda: module)
    (rival,) = benchmark.triton(1, 2, 3)
    assert launched == [(1, 2, 3)]
    assert (rival.library, rival.kernel()) == ("triton 3.6.0", "BLOCK_M=128")
    assert rival.file == FILE.with_name("triton_matmul.py") and rival.file.exists()


@pytest.mark.skipif(runtime.find_gpu() is not None, reason="there is a Hopper GPU")
def test_without_a_gpu_it_simulates_and_says_no_times(tmp_path):
    record = tmp_path / "r.json"
    words = [
        "--version",
        "v3",
        "--version",
        "v2",
        "--json",
        str(record),
        "--size",
        "64",
        "72",
        "40",
    ]
    command = [sys.executable, str(FILE), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("No Hopper GPU here: running on the simulator")
    assert "simulated cycles" in done.stdout and "TFLOPS" not in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines()[-2:]] == [
        ["ok", "v3"], ["ok", "v2"]
    ]  # fmt: skip
    assert set(records.load(record).sources["kernels"]) == {"v2", "v3"}


def test_profiling_launches_each_once_between_the_marks(benchmark, monkeypatch, tmp_path):
    log = []

    class Marks:
        def __init__(self, device):
            assert device == 0

        def __enter__(self):
            log.append("[")

        def __exit__(self, *error):
            log.append("]")

    product = SimpleNamespace(
        check=lambda: log.append("check"),
        find=lambda finders: log.append("find"),
        launches=lambda: {name: (lambda name=name: log.append(name)) for name in ("v3", "cublas")},
        account=lambda: {"launches": ["v3", "cublas"]},
    )
    monkeypatch.setattr(runtime, "require_gpu", lambda: SimpleNamespace(index=0))
    monkeypatch.setattr(runtime, "profiled", Marks)
    monkeypatch.setattr(workload, "products", lambda scripts, request, gpu: [product])
    path = tmp_path / "profile.json"
    words = ["--version", "v3", "--profile", "--json", str(path)]
    benchmark.COMMAND.main(words, standalone_mode=False)
    warm = [["v3"] * 3 + ["[", "v3", "]"], ["cublas"] * 3 + ["[", "cublas", "]"]]
    assert log == ["check", "find", *warm[0], *warm[1]]
    assert json.loads(path.read_text()) == {"launches": ["v3", "cublas"]}
