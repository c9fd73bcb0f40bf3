# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu: parts by name, each in children that are stopped in time, the truth at the end."""

import dataclasses
import json
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.programs import load
from tests.sample_record import sample

from tilus import records, runtime
from tilus.errors import DeviceError


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The script as a module, with a folder of its own and a GPU to believe in."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = load("gpu")
    monkeypatch.setattr(module, "OUT", tmp_path / "out")
    monkeypatch.setattr(runtime, "require_gpu", lambda: None)
    monkeypatch.setenv("TILUS_CACHE_DIR", str(tmp_path / "cache"))
    return module


def replace(monkeypatch, gpu, name, work):
    """Let a part do something else."""
    row = dataclasses.replace(gpu.PARTS[name], work=work)
    monkeypatch.setitem(gpu.PARTS, name, row)


def test_parts_can_be_named(gpu, monkeypatch, capsys):
    seen = []
    for name in ("check", "tune"):
        replace(monkeypatch, gpu, name, lambda part, name=name: seen.append(name) or True)
    assert gpu.main(["tune"]) == 0 and seen == ["tune"]
    assert gpu.main(["check", "tune"]) == 0 and seen == ["tune", "check", "tune"]
    assert gpu.main(["v9"]) == 2 and "unknown part v9" in capsys.readouterr().err
    assert gpu.main(["--list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == list(gpu.PARTS)
    assert "250 s  suite.json      tilus.kernels.matmul beside" in "\n".join(rows)


def test_some_versions_are_measured_with_known_schedules(gpu, monkeypatch):
    seen = []
    monkeypatch.setattr(gpu, "COMMITTED", gpu.OUT / "committed.json")
    records.write(records.Record(sample()), gpu.COMMITTED)
    monkeypatch.setattr(gpu.Part, "run", lambda part, *words: seen.append(words) or True)
    assert gpu.main(["--only", "v3,v6", "tune"]) == 0
    assert "--version v3 --version v6 --contender cublas" in " ".join(seen[0])
    assert gpu.main(["tune", "--only", "v3,v6"]) == 0 and seen[1] == seen[0]
    words = gpu.chosen(["v3"])
    assert words[0] == "--schedule" and words[1].startswith("v3:") and words[-1] == "v3"
    assert gpu.chosen(["v6"]) == ["--version", "v6"]  # nothing is known of it


def test_a_part_that_fails_fails_the_run_but_not_the_others(gpu, monkeypatch, capsys):
    replace(monkeypatch, gpu, "check", lambda part: part.run("-c", "print('bad'); exit(3)"))
    replace(monkeypatch, gpu, "tune", lambda part: part.run("-c", "print('good')"))
    assert gpu.main(["check", "tune"]) == 1
    out = capsys.readouterr().out
    assert out.index("exit status 3") < out.index("==== tune") < out.index("==== summary")
    summary = (gpu.OUT / "summary.txt").read_text().splitlines()
    assert summary[1].split()[:2] == ["check", "FAILED"]
    assert summary[2].split()[:2] == ["tune", "ok"]
    log = (gpu.OUT / "parts.log").read_text()
    assert log.index("==== check\n") < log.index("bad\n") < log.index("==== tune\n")
    assert log.index("==== tune\n") < log.index("good\n")


def test_a_part_that_raises_has_failed(gpu, monkeypatch, capsys):
    def broken(part):
        raise DeviceError("the counters cannot be read")

    replace(monkeypatch, gpu, "profile", broken)
    assert gpu.main(["profile"]) == 1
    assert "DeviceError: the counters cannot be read" in capsys.readouterr().out


def sleep(part):
    """Be a part that takes a minute."""
    return part.run("-c", "import time; time.sleep(60)")


def test_a_child_that_does_not_end_is_stopped(gpu, monkeypatch):
    row = dataclasses.replace(gpu.PARTS["check"], work=sleep, seconds=0.5)
    monkeypatch.setitem(gpu.PARTS, "check", row)
    assert gpu.main(["check"]) == 1
    assert "stopped after 0 s" in (gpu.OUT / "parts.log").read_text()


def test_no_part_takes_more_than_nine_minutes(gpu, tmp_path):
    assert max(row.seconds for row in gpu.PARTS.values()) <= 540
    with (tmp_path / "log").open("w") as log:
        assert not sleep(gpu.Part(log, seconds=-1.0))  # all of its time is over


def test_without_a_gpu_nothing_succeeds(gpu, monkeypatch, capsys):
    def no_gpu():
        raise DeviceError("no GPU that will do\nfound: nothing")

    monkeypatch.setattr(runtime, "require_gpu", no_gpu)
    assert gpu.main([]) == 1 and "no GPU that will do" in capsys.readouterr().err


def example(log):
    """Return a benchmark that writes a made-up record, and notes what it was asked for."""

    def run(part, *words):
        log.append(words)
        made, path = sample(), Path(words[words.index("--json") + 1])
        regimes = [words[i + 1] for i, word in enumerate(words) if word == "--regime"] or ["burst"]
        process = int(words[words.index("--process") + 1]) if "--process" in words else 0
        sizes = [words[i + 1 : i + 4] for i, word in enumerate(words) if word == "--size"]
        pair, made["measurements"] = made["measurements"], []
        pair[1] |= {"latency_ms": [2.0 + process] * 3, "vs_cublas": 1.5 / (2.0 + process)}
        for (m, n, k), regime in product(sizes, regimes):
            size = {"m": int(m), "n": int(n), "k": int(k), "regime": regime, "process": process}
            made["measurements"] += [row | size for row in pair]
        path.write_text(json.dumps(made))
        return True

    return run


def test_the_ladder_becomes_one_record(gpu, monkeypatch, capsys):
    log = []
    monkeypatch.setattr(gpu.Part, "run", example(log))
    assert gpu.main(["ladder-8192", "ladder-sizes", "ladder-large"]) == 0
    record = gpu.records.load(gpu.OUT / "ladder.json")
    for regime in ("burst", "sustained"):
        rows = record.select(version="v3", m=8192, regime=regime)
        assert [row["process"] for row in rows] == [0, 1, 2]
    assert record.summary("v3", 8192, 8192, 8192).latency_ms == 3.0
    sizes = {(r["m"], r["n"], r["k"]) for r in record.select(regime="burst")}
    assert sizes == {
        (8192, 8192, 8192), (4096, 4096, 4096), (4096, 4096, 14336), (10240, 10240, 10240),
        (1000, 904, 520),
    }  # fmt: skip
    runs = [words[words.index("--runs") + 1] for words in log]
    assert runs == ["20", "1", "1", "20", "20"]
    assert all("--tune-at" in words for words in log[3:])
    out = capsys.readouterr().out
    assert "3.0000 ms" in out and "0.500 (0.375-0.750) x cuBLAS" in out


def test_all_parts_together_leave_a_handful_of_files(gpu, monkeypatch):
    monkeypatch.setattr(gpu.Part, "run", example([]))
    ladder = {"ladder-8192", "ladder-4096", "ladder-sizes", "ladder-large"}

    def write(name):
        return bool((gpu.OUT / name).write_text("{}")) if name else True

    for name, row in list(gpu.PARTS.items()):
        if name not in ladder:
            replace(monkeypatch, gpu, name, lambda part, row=row: write(row.writes))
    assert gpu.main([]) == 0
    records = {row.writes for row in gpu.PARTS.values()} - {""}
    assert {path.name for path in gpu.OUT.iterdir()} == {"parts.log", "summary.txt", *records}


def test_a_process_that_fails_leaves_no_record(gpu, monkeypatch):
    monkeypatch.setattr(gpu.Part, "run", lambda part, *words: False)
    assert gpu.main(["ladder-8192"]) == 1
    assert not list(gpu.OUT.glob("*.json"))


def test_parts_measured_apart_are_joined_without_a_gpu(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(runtime, "require_gpu", lambda: 1 / 0)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(sample()))
    paths = [str(tmp_path / f"{name}.json") for name in ("joined", "a", "b")]
    assert gpu.main(["--join", *paths]) == 0
    rows = gpu.records.load(tmp_path / "joined.json").select(version="v3")
    assert [row["process"] for row in rows] == [0, 1]


# ---- Nsight Compute -----------------------------------------------------------------------------

ACCOUNT = {"launches": [{"version": "v3", "schedule": {"num_stages": 4}}]}
TABLE = ['"ID","Kernel Name","gpu__time_duration.sum"', '"","","ns"', '"0","V3","1500000"']


@pytest.fixture
def nsight(gpu, monkeypatch):
    """An ncu that writes what ``table`` holds; ``commands`` has what was called."""
    world = SimpleNamespace(table=TABLE, commands=[], good=True)

    def execute(part, *command):
        world.commands.append(command)
        if command[0] == "ncu":
            Path(command[command.index("--log-file") + 1]).write_text("\n".join(world.table))
            Path(command[command.index("--json") + 1]).write_text(json.dumps(ACCOUNT))
        return world.good or command[0] != "ncu"

    monkeypatch.setattr(gpu.Part, "execute", execute)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: name)
    monkeypatch.setattr(gpu, "said_by", lambda tool, word: f"Nsight\nVersion 2025 of {word}")
    monkeypatch.setattr(gpu.ncu, "metrics", lambda listed: ["gpu__time_duration.sum", "x"])
    return world


def test_the_profile_is_kept_with_who_did_what(gpu, nsight):
    assert gpu.main(["profile"]) == 0
    found = json.loads((gpu.OUT / "profile.json").read_text())
    assert found["launches"]["v3"]["duration_ns"] == 1500000 and "2025" in found["profiler"]
    tuned, profiled = nsight.commands
    assert "--profile" not in tuned and "--profile" in profiled
    text = " ".join(profiled)
    assert "--clock-control none" in text and "--profile-from-start off" in text
    assert "--metrics gpu__time_duration.sum,x" in text


@pytest.mark.parametrize("fault", ["counters", "exit"])
def test_counters_that_cannot_be_read_fail_the_part(gpu, nsight, fault, capsys):
    nsight.good = fault != "exit"
    nsight.table = ["==ERROR== ERR_NVGPUCTRPERM"]
    assert gpu.main(["profile"]) == 1
    assert "ERR_NVGPUCTRPERM" in capsys.readouterr().out
    assert not (gpu.OUT / "profile.json").exists()


def test_without_ncu_there_is_no_profile(gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    monkeypatch.setattr(gpu, "NSIGHT", str(tmp_path))
    assert gpu.main(["profile"]) == 1 and "There is no ncu" in capsys.readouterr().out
