# SPDX-License-Identifier: Apache-2.0
"""Tuning with the simulator as the GPU: who is set aside and why, who wins, what is remembered."""

import importlib
import os
import shutil
import time

import numpy as np
import pytest
from tests.autotune.rig import (
    CycleTimer,
    Fill,
    Simulated,
    call_of,
    made_arrays,
    set_options,
    space,
    tune,
)

import tilus
from tilus import bench, float32, int32, option
from tilus.autotune import Tuner, candidates
from tilus.autotune.expected import small
from tilus.autotune.trial import images
from tilus.errors import ArgumentError, CompileError, LanguageError
from tilus.frontend import kernel_function
from tilus.launch import bind
from tilus.utils import cdiv


def line_of(function):
    """Return the line at which a function begins."""
    return function.__code__.co_firstlineno


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A tuning of Fill, its arrays afterwards, and the folder it left: made once, as it takes
    seconds."""
    folder, arrays = tmp_path_factory.mktemp("tuned") / "cache", made_arrays()
    with pytest.MonkeyPatch.context() as patch:
        set_options(patch, folder)
        return tune(Fill, arrays), arrays, folder


@pytest.fixture
def tuned(once, cache):
    """A tuning of Fill, whose result is on the disk."""
    tuning, _, folder = once
    shutil.copytree(folder, cache)
    return tuning


# ---- the decorator ------------------------------------------------------------------------------


def test_the_space_is_the_product_of_the_axes():
    schedules = candidates(Fill)
    pairs = [(s["behaviour"], s["rows"]) for s in schedules]
    assert pairs == [(b, rows) for b in ("right", "right slow") for rows in (32, 64)]
    assert candidates(Fill, {"rows": 16}) == [
        {"behaviour": b, "rows": 16} for b in ("right", "right slow")
    ]


def test_names_in_one_string_change_together():
    @tilus.autotune("x, y", [(1, 2), [3, 4]])
    @tilus.autotune("z", [5, 6])
    class Some(tilus.Script):
        def __init__(self, x, y, z): ...

    found = [(s["x"], s["y"], s["z"]) for s in candidates(Some)]
    assert found == [(1, 2, 5), (1, 2, 6), (3, 4, 5), (3, 4, 6)]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([("w", [1])], "'w' must be a parameter of __init__, which has x, y"),
        ([("x", [1]), ("x", [2])], "'x' must be named once"),
        ([("x, y", [(1, 2)]), ("y", [3])], "'y' must be named once"),
        ([("x, x", [(1, 2)])], "'x' must be named once"),
        ([("x, y", [(1, 2), (3,)])], "each value must have 2 parts, got (3,)"),
        ([("x", [])], "at least one, got none"),
    ],
)
def test_what_a_space_must_not_say(axes, said):
    class Some(tilus.Script):
        def __init__(self, x, y): ...

    with pytest.raises(LanguageError) as caught:
        for names, values in axes:
            Some = tilus.autotune(names, values)(Some)
    assert said in str(caught.value)


def test_a_subclass_does_not_change_its_parents_space():
    before = Fill.autotune_space

    class Child(Fill):
        def __init__(self, behaviour, rows, more):
            super().__init__(behaviour, rows)

    tilus.autotune("more", [1, 2])(Child)
    assert Fill.autotune_space == before and len(candidates(Child)) == 2 * len(candidates(Fill))


# ---- choosing -----------------------------------------------------------------------------------


def test_the_fastest_right_schedule_wins(once):
    tuning, *_ = once
    assert tuning.schedule == {"behaviour": "right", "rows": 32} and tuning.origin == "measured"
    assert tuning.total == 4 and len(tuning.ranking) == 4
    times = [ms for _, ms in tuning.ranking]
    assert times == sorted(times)


def test_the_callers_arrays_are_not_touched(once):
    _, (a, c), _ = once
    assert (a == 7).all() and (c == 8).all()


def test_wrong_schedules_are_never_kept_however_fast(arrays):
    cls = space("wrong", "nothing", "beyond", "input", "deadlock", "right slow")
    tuning = tune(cls, arrays)
    assert [s["behaviour"] for s, _ in tuning.ranking] == ["right slow"]
    reasons = "\n".join(tuning.aside)
    assert "c is wrong: 4096 of" not in reasons  # a float has four bytes; all four were compared
    for said in (
        "first at [0, 0]",
        "first outside the array",
        "a is wrong",
        "raises SimulationError",
    ):
        assert said in reasons
    assert sum(tuning.aside.values()) == 5


def test_a_schedule_that_hangs_takes_only_its_child_with_it(arrays):
    cls, before = space("endless", "right", "endless", "wrong"), time.monotonic()
    cls.autotune_space = (
        (("behaviour", "rows"), (("endless", 64), ("right", 64), ("endless", 32))),
    )
    tuning = tune(cls, arrays, limit=2.0)
    assert tuning.schedule == {"behaviour": "right", "rows": 64}
    assert dict(tuning.aside) == {"hangs: not done after 2 s": 2}
    assert time.monotonic() - before < 60


def test_a_schedule_the_hardware_cannot_run_is_set_aside_uncompiled(arrays):
    built = []

    class Counting(Simulated):
        def build(self, kernel):
            built.append(kernel)
            return kernel

    tuning = tune(space("right", rows=(1024, 2048, 64)), arrays, Counting)
    assert len(built) == 1 and sum(tuning.aside.values()) == 2
    facts = tuning.facts()
    assert (facts["schedules"], facts["compiled"], facts["right"]) == (3, 1, 1)
    assert facts["aside"] == dict(tuning.aside) and "1 of them compiled" in tuning.lines()[0]
    assert len(tuning.aside) == 1, "schedules that break one rule share one line"


def test_a_schedule_that_does_not_compile_is_set_aside(arrays):
    class Refusing(Simulated):
        def build(self, kernel):
            raise CompileError("Fill: serialized\nlong log")

    with pytest.raises(
        LanguageError, match=r"no schedule of its space will do\n  2 schedules: Fill: serialized$"
    ):
        tune(space("right", rows=(32, 64)), arrays, Refusing)


def test_nothing_left_names_every_reason(arrays):
    with pytest.raises(LanguageError) as caught:
        tune(space("wrong", rows=(1024, 64)), arrays)
    said = str(caught.value)
    assert "1 schedule: c is wrong" in said and said.count("\n  1 schedule: ") == 2


@tilus.autotune("rows", [32, 64])
class Misspelt(tilus.Script):
    """Has a line that no schedule gets past, in a method that is inlined."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def __call__(self, m: int, n: int, a: ~float32, c: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        if self.rows > 64:
            self.wgmma.fens()
        self.finish()

    def finish(self):
        self.wgmma.fenc()


@pytest.mark.parametrize("device", ["sim", "cuda:0"])
def test_a_line_that_stops_every_schedule_is_shown_with_its_caret(arrays, device):
    tuner = Tuner(Misspelt, {}, Simulated)
    with pytest.raises(LanguageError) as caught:
        tuner.choose(call_of(Misspelt, arrays), device)
    said, line = str(caught.value).splitlines(), line_of(Misspelt.finish) + 1
    assert said[0].startswith(f"{__file__}:{line}: Misspelt: none of 2 schedules will do: 'self.wg")
    assert "did you mean" in said[0] and said[2].strip() == "^" * len("self.wgmma.fenc")
    assert "called from" in caught.value.__notes__[0]


def test_lines_that_stop_some_schedules_each_are_shown_with_their_carets(arrays):
    class Two(Misspelt):
        autotune_space = ((("rows",), ((32,), (64,), (128,))),)

    with pytest.raises(LanguageError) as caught:
        tune(Two, arrays)
    said, line = str(caught.value), line_of(Misspelt.finish) + 1
    assert f"\n  2 schedules: {__file__}:{line}: 'self.wgmma' has no 'fenc'" in said
    assert f"\n  1 schedule: {__file__}:" in said and said.count("^" * 15) == 2


@tilus.autotune("value", [1.0, 1.5, 1.0 + 2**-20])
@tilus.autotune("rows", [1024, 64])
class Plain(tilus.Script):
    """Has no reference; what the first schedule does on the simulator is right."""

    def __init__(self, value, rows):
        super().__init__()
        self.value, self.rows = value, rows

    def __call__(self, m: int, n: int32, c: ~float32):
        self.attrs.blocks, self.attrs.warps = cdiv(m, self.rows), 4
        gc = self.global_view(c, dtype=float32, shape=[m, n])
        tile = self.register_tensor(dtype=float32, shape=[self.rows, 64], init=self.value)
        self.store_global(gc, tile, offsets=[self.blockIdx.x * self.rows, 0])


def test_without_a_reference_the_simulator_judges_a_small_problem():
    c, sizes = np.zeros((300, 40), np.float32), []

    class Noting(Simulated):
        def build(self, kernel):
            sizes.append(kernel.function.blocks[0])
            return kernel

    tuner = Tuner(Plain, {}, Noting)
    tuner.choose(bind(kernel_function(Plain), (300, 40, c), {}), "cuda:0")
    assert [s for s, _ in tuner.last.ranking] == [{"value": 1.0, "rows": 64}]
    assert sum(count for why, count in tuner.last.aside.items() if "c is wrong" in why) == 2
    assert [size.value for size in sizes] == [5] * 3 + [4] * 3


def test_a_small_problem_keeps_what_belongs_together():
    c = np.zeros((300, 40), np.float32)
    cut = small(bind(kernel_function(Plain), (300, 40, c), {}))
    assert (dict(cut.constants), dict(cut.scalars)) == ({"m": 256}, {"n": 40})
    assert cut.arrays["c"].shape == (256, 40) and cut.arrays["c"].strides == (160, 4)
    with pytest.raises(ArgumentError, match="c must be row-major to be tuned without one"):
        small(bind(kernel_function(Plain), (300, 20, c[:, ::2]), {}))


def test_arrays_that_do_not_fit_are_refused_before_anything_is_compiled(arrays):
    class Never(Simulated):
        def build(self, kernel):
            raise AssertionError("compiled")

    a, c = arrays
    with pytest.raises(ArgumentError, match="a must be of shape"):
        tune(Fill, (a[:, :8], c), Never)


def test_nothing_is_tuned_on_the_simulator_or_for_nothing(arrays):
    class Never(Simulated):
        def facts(self):
            raise AssertionError("tuned")

    a, c = arrays
    tuner = Tuner(space("right", rows=(1024, 32, 64)), {}, Never)
    for call, device in (
        (call_of(Fill, arrays), "sim"),
        (call_of(Fill, (a[:0], c[:0])), "cuda:0"),
    ):
        assert tuner.choose(call, device) == {"behaviour": "right", "rows": 32}
        assert tuner.last.origin == "first"
        assert tuner.last.lines()[0].endswith("(not timed), 3 schedules in all")


def test_the_best_meet_again_in_a_play_off(arrays):
    """One lucky glance must not decide: the second, longer look does."""
    looks = []

    class Moody(CycleTimer):
        def run(self, launch, count, expected_ms=0.0):
            window = super().run(launch, count)
            looks.append(window)
            return bench.Window(1e6 / window.milliseconds, count) if count <= 8 else window

    class Rig(Simulated):
        def timer(self):
            return Moody()

    tuning = tune(Fill, arrays, Rig)
    assert tuning.schedule == {"behaviour": "right", "rows": 32}
    assert len({round(window.latency_ms, 6) for window in looks}) == 4
    times = [ms for _, ms in tuning.ranking]
    assert times == sorted(times) == sorted({w.latency_ms for w in looks if w.launches == 30})


def test_results_are_judged_on_integers_and_timed_on_normal_numbers(arrays, monkeypatch):
    module, kinds = importlib.import_module("tilus.autotune.session"), []

    def noted(call, written, kind):
        kinds.append(kind)
        return images(call, written, kind)

    monkeypatch.setattr(module, "images", noted)
    tune(space("right"), arrays)
    assert kinds == ["exact", "normal"]


# ---- remembering --------------------------------------------------------------------------------


class Never(Simulated):
    """A rig on which nothing may be compiled any more."""

    def build(self, kernel):
        raise AssertionError("compiled again")


def test_a_result_is_taken_from_the_disk(arrays, tuned):
    again = tune(Fill, arrays, Never)
    assert again.origin == "stored" and again.schedule == tuned.schedule
    assert list(again.ranking) == list(tuned.ranking) and again.total == 4
    assert again.facts() == tuned.facts() and again.seconds > 0


@pytest.mark.parametrize("fact", list(Simulated.found))
def test_another_device_or_compiler_tunes_anew(arrays, tuned, fact, monkeypatch):
    monkeypatch.setitem(Simulated.found, fact, "other")
    with pytest.raises(AssertionError, match="compiled again"):
        tune(Fill, arrays, Never)


def test_other_arguments_or_other_sources_tune_anew(arrays, tuned, monkeypatch):
    a, c = arrays
    with pytest.raises(AssertionError):
        tune(Fill, (a[:32], c[:32]), Never)
    with pytest.raises(AssertionError):
        tune(Fill, arrays, Never, rows=64)
    for name in ("package_hash", "program_hash", "cuda_hash"):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.import_module("tilus.autotune.tuner"), name, lambda *_: "other")
            with pytest.raises(AssertionError):
                tune(Fill, arrays, Never)


def test_a_damaged_entry_is_made_anew(arrays, tuned, cache):
    (entry,) = (cache / "tuning").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert tune(Fill, arrays).origin == "measured"
    assert tune(Fill, arrays, Never).origin == "stored"


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc"), reason="needs /proc")
def test_a_disk_that_cannot_be_written_costs_one_warning(arrays, monkeypatch):
    monkeypatch.setattr(option, "_cache_dir", "/proc/tilus-cannot-write-here")
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        assert tune(space("right"), arrays).origin == "measured"
        assert tune(space("right"), arrays).origin == "measured"
    assert len([w for w in caught if "cannot be written" in str(w.message)]) == 1
