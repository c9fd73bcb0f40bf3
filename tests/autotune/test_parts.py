# SPDX-License-Identifier: Apache-2.0
"""The parts of a tuning: arrays that are made up, judging in a child, what progress shows."""

import importlib
import io

import numpy as np
import pytest
from rich.console import Console
from tests.autotune.rig import PITCH, Fill, Simulated, call_of

import tilus
from tilus import compiler, float32, int32, runtime
from tilus.autotune import candidates
from tilus.autotune.judge import judge
from tilus.autotune.progress import Show
from tilus.autotune.session import Session
from tilus.autotune.trial import GUARD, Image, Trial, _same, images
from tilus.errors import ArgumentError, DeviceError
from tilus.frontend import kernel_function
from tilus.launch import bind


def test_made_up_arrays_have_guards_gaps_and_the_right_numbers(arrays):
    call = call_of(Fill, arrays)
    made = images(call, frozenset({"c"}), "exact")
    assert made["c"].strides == (4 * PITCH, 4) and (made["c"].raw == 0xFF).all()
    assert set(np.unique(made["a"].elements)) == {-1, 0, 1}
    assert (made["a"].raw[:GUARD] == 0xFF).all() and (made["a"].raw[-GUARD:] == 0xFF).all()
    normal = images(call, frozenset({"c"}), "normal")["a"].elements
    assert len(np.unique(normal)) > 4000 and 0.9 < normal.std() < 1.1


def test_indices_are_not_made_up(arrays):
    index = np.zeros((4, 4), np.int32)

    class Gather(tilus.Script):
        def __call__(self, i: ~int32): ...

    call = bind(kernel_function(Gather), (index,), {})
    with pytest.raises(ArgumentError, match="i must be of floats to be tuned for, got int32"):
        images(call, frozenset(), "exact")


def test_each_candidate_finds_the_arrays_as_they_were(arrays):
    call = call_of(Fill, arrays)
    before = images(call, frozenset({"c"}), "exact")
    after = {name: image.copy() for name, image in before.items()}
    after["c"].elements[...] = 1
    trial = Trial("sim", call.constants, call.scalars, before, after)
    behaviours = ("right", "nothing", "input", "right", "beyond", "right")
    programs = [compiler.lower(Fill(b, 64), call.constants) for b in behaviours]
    faults = [trial.judge(program) for program in programs]
    assert [fault is None for fault in faults] == [True, False, False, True, False, True]
    assert judge(programs, trial) == faults


def test_what_a_failing_candidate_wrote_helps_nobody(arrays):
    call = call_of(Fill, arrays)
    before = images(call, frozenset({"c"}), "exact")
    after = {name: image.copy() for name, image in before.items()}
    after["c"].elements[...] = 1
    behaviours = ("late deadlock", "nothing")
    programs = [compiler.lower(Fill(b, 64), call.constants) for b in behaviours]
    deadlock, nothing = judge(programs, Trial("sim", call.constants, call.scalars, before, after))
    assert deadlock.startswith("raises SimulationError: deadlock") and "c is wrong" in nothing


@pytest.mark.parametrize("kind", ["exact", "normal"])
def test_large_arrays_are_windows_into_a_pool(monkeypatch, kind):
    module = importlib.import_module("tilus.autotune.trial")
    monkeypatch.setattr(module, "POOL", 6000)
    monkeypatch.setattr(module, "WINDOW", 97)
    array = runtime.Array(0, (128, 50), (200, 4), float32, "cuda:0")
    made = module._draw(kind, array, np.random.default_rng(0))
    assert made.shape == (128, 50) and made.dtype == np.float32
    assert len(np.unique(made, axis=0)) > 120 and len(np.unique(made, axis=1).T) == 50
    assert abs(made.mean()) < 0.1 and 0.5 < made.std() < 1.2
    assert (set(np.unique(made)) == {-1, 0, 1}) == (kind == "exact")
    small = runtime.Array(0, (20, 50), (200, 4), float32, "cuda:0")
    again = [module._draw(kind, small, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert (again[0] == again[1]).all() and not (again[0] == again[2]).all()


@pytest.mark.parametrize("place", [0, 8, 12])
def test_every_byte_counts(place):
    """Also those behind the last whole word of eight."""
    before = np.zeros(13, np.uint8)
    after = before.copy()
    assert _same(before, after)
    after[place] = 1
    assert not _same(before, after)


def test_a_child_that_cannot_begin_is_no_verdict(arrays, monkeypatch):
    trial = Trial("sim", {}, {}, {"c": Image.like(call_of(Fill, arrays).arrays["c"])}, {})
    module = importlib.import_module("tilus.autotune.judge")  # the attribute is the function
    monkeypatch.setattr(module, "environment", lambda: {"PYTHONHOME": "/nonexistent"})
    with pytest.raises(DeviceError, match="did not start"):
        judge([object], trial)


def test_a_child_that_crashes_blames_the_candidate_in_hand(arrays):
    call = call_of(Fill, arrays)
    before = images(call, frozenset({"c"}), "exact")
    trial = Trial("sim", call.constants, call.scalars, before, {})  # no reference: KeyError
    program = compiler.lower(Fill("right", 64), call.constants)
    verdicts = judge([program, program], trial)
    assert verdicts == ["crashes: KeyError: 'a'"] * 2


def test_progress_names_the_stages(arrays):
    stream = io.StringIO()
    show = Show("Fill", Console(file=stream, force_terminal=True, width=100))
    session = Session(Fill, candidates(Fill), call_of(Fill, arrays), show)
    session.measure(Simulated("cuda:0"))
    for stage in ("planning", "compiling", "verifying", "timing", "play-off"):
        assert f"Fill: {stage}" in stream.getvalue()
    assert "4/4" in stream.getvalue()
