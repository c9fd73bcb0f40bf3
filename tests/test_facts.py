# SPDX-License-Identifier: Apache-2.0
"""Facts about machine code: compiled cold, on one core, and nothing is left behind."""

import os
from types import SimpleNamespace

import pytest

from tilus import compiler, facts, nvrtc, option, runtime


@pytest.fixture
def builds(monkeypatch, tmp_path):
    """Where, on which cores and into how full a cache kernels are compiled."""
    seen = []

    def build(kernel):
        folder = option.current_cache_dir
        seen.append((folder, os.sched_getaffinity(0), sorted(folder.glob("*"))))
        (folder / "cubin").write_text("kept")
        return SimpleNamespace(cubin=SimpleNamespace(code=b"code", registers=168))

    monkeypatch.setattr(option, "_cache_dir", str(tmp_path))
    monkeypatch.setattr(compiler, "build", build)
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "13.0")
    return seen


def test_each_compilation_is_cold_and_on_one_core(builds, tmp_path):
    cores = os.sched_getaffinity(0)
    assert facts.compile_seconds(None) > 0
    assert len(builds) == 3 and len({folder for folder, *_ in builds}) == 3
    assert all(len(used) == 1 and not before for _, used, before in builds)
    assert option.current_cache_dir == tmp_path and os.sched_getaffinity(0) == cores
    assert not any(folder.exists() for folder, *_ in builds)


def test_a_failure_leaves_cores_and_cache_as_they_were(builds, monkeypatch, tmp_path):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(compiler, "build", lambda kernel: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        facts.compile_seconds(None)
    assert option.current_cache_dir == tmp_path and os.sched_getaffinity(0) == cores


def test_the_driver_says_how_many_blocks_an_sm_holds(builds, monkeypatch):
    function = SimpleNamespace(name="v3", threads=SimpleNamespace(count=160))
    kernel = SimpleNamespace(function=function, plan=SimpleNamespace(shared_bytes=99_000))

    def load(code, name, shared_bytes, device):
        assert (code, name, shared_bytes, device) == (b"code", "v3", 99_000, 3)
        return SimpleNamespace(blocks_per_sm=lambda threads: 320 // threads)

    monkeypatch.setattr(runtime, "load", load)
    found = facts.facts(kernel, SimpleNamespace(index=3))
    assert found.pop("compile_s") > 0
    assert found == {
        "threads": 160, "registers": 168, "shared_bytes": 99_000, "blocks_per_sm": 2
    }  # fmt: skip
