# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu: parts by name, each in children that are stopped in time, the truth at the end."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from tests.sample_record import sample

from tilus import runtime
from tilus.errors import DeviceError

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu"


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The script as a module, with a folder of its own and a GPU to believe in."""
    loader = SourceFileLoader("scripts_gpu", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scripts_gpu", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loader.exec_module(module)
    monkeypatch.setattr(module, "OUT", tmp_path / "out")
    monkeypatch.setattr(runtime, "require_gpu", lambda: None)
    monkeypatch.setenv("TILUS_CACHE_DIR", str(tmp_path / "cache"))
    return module


def test_parts_can_be_named(gpu, monkeypatch, capsys):
    seen = []
    for name in ("check", "v3"):
        monkeypatch.setitem(gpu.PARTS, name, lambda part, name=name: seen.append(name) or True)
    assert gpu.main(["v3"]) == 0 and seen == ["v3"]
    assert gpu.main(["check", "v3"]) == 0 and seen == ["v3", "check", "v3"]
    assert gpu.main(["v9"]) == 2 and "unknown part v9" in capsys.readouterr().err
    assert gpu.main(["--list"]) == 0 and "three fresh processes" in capsys.readouterr().out


def test_a_part_that_fails_fails_the_run_but_not_the_others(gpu, monkeypatch, capsys):
    monkeypatch.setitem(gpu.PARTS, "check", lambda part: part.run("-c", "print('bad'); exit(3)"))
    monkeypatch.setitem(gpu.PARTS, "v3", lambda part: part.run("-c", "print('good')"))
    assert gpu.main(["check", "v3"]) == 1
    out = capsys.readouterr().out
    assert out.index("exit status 3") < out.index("==== summary")
    summary = (gpu.OUT / "summary.txt").read_text().splitlines()
    assert summary[1].split()[:2] == ["check", "FAILED"] and summary[2].split()[:2] == ["v3", "ok"]
    assert "good" in (gpu.OUT / "v3.log").read_text()


def test_a_child_that_does_not_end_is_stopped(gpu, monkeypatch):
    monkeypatch.setitem(
        gpu.PARTS, "check", lambda part: part.run("-c", "import time; time.sleep(60)", limit=0.5)
    )
    assert gpu.main(["check"]) == 1
    assert "stopped after 0 s" in (gpu.OUT / "check.log").read_text()


def test_no_part_takes_more_than_nine_minutes(gpu, tmp_path):
    assert gpu.LIMIT_S <= 540
    with (tmp_path / "log").open("w") as log:
        part = gpu.Part("check", log)
        part.end -= gpu.LIMIT_S  # all of its time is over
        assert not part.run("-c", "import time; time.sleep(60)")


def test_without_a_gpu_nothing_succeeds(gpu, monkeypatch, capsys):
    def no_gpu():
        raise DeviceError("no GPU that will do\nfound: nothing")

    monkeypatch.setattr(runtime, "require_gpu", no_gpu)
    assert gpu.main([]) == 1 and "no GPU that will do" in capsys.readouterr().err


def test_three_processes_become_one_record(gpu, monkeypatch, tmp_path, capsys):
    count = iter(range(100))

    def example(part, *words, limit=0.0):
        made = sample()
        size, process = int(words[words.index("--size") + 1]), next(count)
        for row in made["measurements"]:
            row |= dict.fromkeys("mnk", size)
        made["measurements"][1]["latency_ms"] = [2.0 + process] * 3
        made["measurements"][1]["vs_cublas"] = 1.5 / (2.0 + process)
        Path(words[words.index("--json") + 1]).write_text(json.dumps(made))
        return True

    monkeypatch.setattr(gpu.Part, "run", example)
    assert gpu.main(["v3", "v3-4096"]) == 0
    record = gpu.records.load(gpu.OUT / "v3.json")
    assert [r["process"] for r in record.select(version="v3", m=8192)] == [0, 1, 2]
    assert [r["process"] for r in record.select(version="v3", m=4096)] == [0, 1, 2]
    assert record.summary("v3", 8192, 8192, 8192).latency_ms == 3.0
    out = capsys.readouterr().out
    assert "v3-8192.json" in out and "3.0000 ms" in out and "0.500 (0.375-0.750) x cuBLAS" in out
    assert len(list(gpu.OUT.iterdir())) <= 8
