# SPDX-License-Identifier: Apache-2.0
"""scripts/launch-times: each caller in turn, the first round forgotten, a record that tells all."""

import gc
import json
from types import SimpleNamespace

import pytest
from tests.programs import load
from tests.runtime.fake_driver import H200

from tilus import runtime


@pytest.fixture
def times(monkeypatch):
    """The script as a module; its clock goes by what ``cost`` says of a caller, in nanoseconds."""
    module = load("launch-times")
    world = SimpleNamespace(module=module, log=[], now=0, collected=False)
    world.cost = {"tilus": 4000, "tilus_matmul": 5900}

    def call(name):
        def made():
            world.log.append(name)
            world.now += world.cost[name]
            world.collected |= gc.isenabled()

        return made

    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: world.log.append("wait")))
    monkeypatch.setattr(module, "callers", lambda *_: {name: call(name) for name in world.cost})
    monkeypatch.setattr(module.Tensors, "make", lambda torch: None)
    monkeypatch.setattr(module, "importlib", SimpleNamespace(import_module=lambda name: torch))
    monkeypatch.setattr(module, "metadata", SimpleNamespace(version=lambda name: f"{name} 1"))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: world.now))
    monkeypatch.setattr(runtime, "require_gpu", lambda: H200)
    monkeypatch.setattr(module, "settle", lambda: world.log.append("settle") or {0: 1.5, 3: 0.5})
    monkeypatch.setattr(module, "CALLS", 5)
    monkeypatch.setattr(module, "ROUNDS", 3)
    return world


def test_the_record_has_times_method_and_sources(times, tmp_path, capsys):
    assert times.module.main(str(tmp_path / "launch.json")) == 0
    made = json.loads((tmp_path / "launch.json").read_text())
    assert made["us"] == {"tilus": [4.0] * 3, "tilus_matmul": [5.9] * 3}
    assert made["environment"]["gpu"] == "Fake H200" and made["processor"]
    assert made["libraries"]["triton"] == "triton 1"
    assert made["idle_loop_us"] == {"0": 1.5, "3": 0.5}
    path = made["sources"]["path"]
    assert {"src/tilus/script.py", "src/tilus/launch/known.py"} < path.keys()
    assert all(len(sha) == 64 for sha in path.values())
    (entry,) = made["sources"]["kernel"]["generated"]
    assert entry["arguments"] == {"n_size": 256, "k_size": 256}
    assert "tilus            4.00 us (4.00 - 4.00)" in capsys.readouterr().out


def test_callers_take_turns_on_an_idle_gpu(times, tmp_path):
    times.module.main(str(tmp_path / "launch.json"))
    turn = [x for name in times.cost for x in ("wait", *[name] * 5, "wait")]
    assert times.log == ["settle", *turn * 4]
    assert not times.collected and gc.isenabled()


def test_the_least_busy_processor_is_taken(monkeypatch):
    module, where = load("launch-times"), [{4, 6, 7}]
    us = {4: [900.0] * 3, 6: [400.0, 999.0, 400.0], 7: [450.0, 450.0, 300.0]}
    medians = {4: 900.0, 6: 400.0, 7: 450.0}
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: where[-1])
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda pid, cpus: where.append(cpus))
    monkeypatch.setattr(module, "idle_loop", lambda: us[next(iter(where[-1]))].pop())
    monkeypatch.setattr(module, "LOOPS", 3)
    assert module.settle() == medians and where[-1] == {6}


def test_a_loop_is_timed_in_microseconds(monkeypatch):
    module, clock = load("launch-times"), iter([5_000, 125_000])
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    assert module.idle_loop() == 120.0


def test_a_call_that_takes_too_long_fails(times, tmp_path):
    times.cost["tilus_matmul"] = 6001
    assert times.module.main(str(tmp_path / "launch.json")) == 1
