# SPDX-License-Identifier: Apache-2.0
"""What a child and a tool leave behind is read rightly, and the way there works without a GPU."""

import copy
import json
import os
import pickle
import stat
import sys
import time

import mutants
import on_gpu
import outcomes
import pytest

from tilus import runtime
from tilus.errors import ArgumentError, DeviceError

START = {"event": "start", "limit_s": 5.0}
LAUNCH, DONE = {"event": "launch"}, {"event": "done", "fault": None}
BAD = {"event": "done", "fault": "c_ptr is wrong"}
HUNG = {"event": "hang"}
FAILED = {"event": "error", "said": "waiting: CUDA_ERROR_LAUNCH_FAILED"}


@pytest.mark.parametrize(
    ("lines", "status", "outcome", "launches", "right", "said"),
    [
        ([START, LAUNCH, DONE, LAUNCH, DONE], 0, "right", 2, 2, ""),
        ([START, LAUNCH, DONE, LAUNCH, BAD], 0, "wrong", 2, 1, "c_ptr is wrong"),
        ([START, LAUNCH, DONE, LAUNCH, HUNG], None, "hang", 2, 1, "not done after 5 s"),
        ([START, LAUNCH, HUNG], 1, "hang", 1, 0, "not done after 5 s"),  # a tool ends otherwise
        ([START, LAUNCH], None, "hang", 1, 0, "not done after 5 s"),  # killed from outside
        ([START, LAUNCH], -11, "error", 1, 0, "exit status -11"),
        ([START, LAUNCH, FAILED], 0, "error", 1, 0, FAILED["said"]),
        ([START, LAUNCH, BAD, LAUNCH, FAILED], 0, "error", 2, 0, FAILED["said"]),
        ([START, FAILED], 0, "not run", 0, 0, f"before the first launch: {FAILED['said']}"),
        ([START], None, "not run", 0, 0, "before the first launch: exit status None"),
        ([], 1, "not run", 0, 0, "before the first launch: exit status 1"),
    ],
)
def test_what_came_of_a_run(lines, status, outcome, launches, right, said):
    wanted = {"outcome": outcome, "launches": launches, "right": right, "said": said}
    assert outcomes.plain(lines, status) == wanted


BANNER = "========= COMPUTE-SANITIZER\n"
CLEAN = BANNER + "========= ERROR SUMMARY: 0 errors\n"
INVALID = "========= Invalid __shared__ write of size 4 bytes\n=========     at Kernel+0x10\n"
RACE = "========= Error: Race reported between Write access at Kernel+0x10 and Read access\n"
STOPPED = "========= Error: process didn't terminate successfully\n"
BROKEN = "========= Internal Sanitizer Error: the application may be broken\n"
ENDED = {"outcome": "right", "said": ""}
HANGS = {"outcome": "hang", "said": "not done after 15 s"}
NEVER = {"outcome": "not run", "said": "before the first launch: exit status 1"}


@pytest.mark.parametrize(
    ("log", "run", "outcome", "said"),
    [
        (CLEAN, ENDED, "not noticed", ""),
        (BANNER + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n", ENDED,
         "not noticed", ""),
        (BANNER + INVALID + "========= ERROR SUMMARY: 3 errors\n", ENDED, "noticed",
         "Invalid __shared__ write of size 4 bytes"),
        (BANNER + RACE + "========= RACECHECK SUMMARY: 1 hazard displayed (1 error)\n", ENDED,
         "noticed", "Error: Race reported between Write access at Kernel+0x10 and Read access"),
        (BANNER + INVALID, HANGS, "noticed", "Invalid __shared__ write of size 4 bytes"),
        (BANNER, HANGS, "timed out", ""),
        (BANNER + STOPPED + "========= ERROR SUMMARY: 1 error\n", HANGS, "timed out", ""),
        ("", HANGS, "timed out", ""),
        (BANNER + BROKEN, ENDED, "not supported",
         "Internal Sanitizer Error: the application may be broken"),
        (BANNER + "========= Device not supported\n", NEVER, "not supported",
         "Device not supported"),
        ("", NEVER, "not supported", NEVER["said"]),
        (CLEAN, NEVER, "not supported", NEVER["said"]),
    ],
)  # fmt: skip
def test_what_a_tool_made_of_it(log, run, outcome, said):
    assert outcomes.sanitized(log, run) == {"outcome": outcome, "said": said}


MUTANT = mutants.mutants()["missing-arrive"]


@pytest.mark.parametrize(
    ("outcome", "said", "control", "worth"),
    [
        ("noticed", "Barrier error detected. Missing wait.", "not noticed", "noticed"),
        ("noticed", "Unknown Error", "not noticed", "launch failed"),
        ("noticed", "Error: unspecified launch failure", "not noticed", "launch failed"),
        ("noticed", "Unknown Error", "noticed", "no witness"),
        ("noticed", "Barrier error detected. Missing wait.", "noticed", "no witness"),
        ("not noticed", "", "noticed", "not noticed"),
        ("timed out", "", "noticed", "timed out"),
    ],
)
def test_what_a_tool_is_worth(outcome, said, control, worth):
    record = {
        "mutants": {MUTANT.id: {"memcheck": {"outcome": outcome, "said": said}}},
        "kernels": {MUTANT.kernel.name: {"memcheck": {"outcome": control, "said": ""}}},
    }
    assert outcomes.heard(record, MUTANT, "memcheck") == worth


# ---- children -----------------------------------------------------------------------------------

STUB = """\
#!{python}
import os, subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 0.1.2 (build 3)")
    sys.exit()
log = open(sys.argv[sys.argv.index("--log-file") + 1], "w")
log.write("========= COMPUTE-SANITIZER\\n")
status = subprocess.call(sys.argv[sys.argv.index({python!r}):])
tool = sys.argv[sys.argv.index("--tool") + 1]
errors = int(tool == "synccheck")
log.write("========= Barrier error detected\\n" * errors)
log.write(f"========= ERROR SUMMARY: {{errors}} errors\\n")
sys.exit(status)
"""


KERNEL, BROKEN, REFUSED = "two_loads", "one-of-two-loads-awaited", "consumer-at-warps-1-to-4"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A record of three subjects: run on the simulator, under a tool that is none."""
    folder = tmp_path_factory.mktemp("bin")
    tool, path = folder / "compute-sanitizer", folder / "failures.json"
    tool.write_text(STUB.format(python=sys.executable))
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        on_gpu.run("sim", path, [KERNEL, BROKEN, REFUSED], None)
    return outcomes.load(path)


def test_a_record_says_what_came_of_each(record):
    kernel, broken = record["kernels"][KERNEL], record["mutants"][BROKEN]
    assert kernel["plain"] == {"outcome": "right", "launches": 20, "right": 20, "said": ""}
    assert broken["plain"]["outcome"] == "error" and broken["plain"]["said"].startswith("race: ")
    for runs in (kernel, broken):
        assert [runs[tool]["outcome"] for tool in outcomes.TOOLS] == [
            "not noticed", "not noticed", "noticed"
        ]  # fmt: skip
        assert runs["synccheck"]["said"] == "Barrier error detected"
    assert record["environment"]["sanitizer"] == "0.1.2"
    refused = record["mutants"][REFUSED]
    assert refused["plain"]["outcome"] == "refused" and refused["memcheck"]["outcome"] == "not run"
    assert refused["compiler"].startswith("matmul_v3.py:")


def test_what_a_record_knows_is_not_run_again(record, tmp_path):
    path = tmp_path / "known.json"
    path.write_text(json.dumps(record))
    kept = on_gpu.still_true(path, record)
    assert kept[KERNEL] == record["kernels"][KERNEL]
    assert kept.keys() == record["kernels"].keys() | record["mutants"].keys()
    built, refused = on_gpu.subjects("sim", leave_out=set(mutants.mutants()) - {"load-removed"})
    assert "load-removed" in {subject.name for subject in built} and not refused
    assert BROKEN not in {subject.name for subject in built}
    older = copy.deepcopy(record)
    older["sources"]["mutants"][BROKEN]["cuda"] = "0" * 64
    path.write_text(json.dumps(older))
    assert kept.keys() - on_gpu.still_true(path, record).keys() == {BROKEN}
    for part, value in (("environment", {"driver": "0"}), ("method", {"launches": 1})):
        other = {**record, part: {**record[part], **value}}
        assert on_gpu.still_true(path, other) == {}
    assert on_gpu.still_true(None, record) == {}


def test_a_record_ages_with_the_program_it_ran(record):
    now = outcomes.sources()
    assert not any(outcomes.stale(record, m, now) for m in mutants.mutants())
    for key in ("source", "cuda"):
        later = copy.deepcopy(now)
        later["mutants"][BROKEN][key] = "0" * 64
        assert outcomes.stale(record, BROKEN, later)
    later = copy.deepcopy(now)
    later["mutants"][BROKEN]["patch"] = "0" * 64
    assert not outcomes.stale(record, BROKEN, later)
    old = copy.deepcopy(record)
    del old["sources"]["mutants"][BROKEN]
    assert outcomes.stale(old, BROKEN, now)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 0),
        (("mutants", BROKEN, "plain", "outcome"), "fine"),
        (("mutants", BROKEN, "memcheck"), {}),
        (("environment",), {}),
    ],
)
def test_a_record_that_is_none_is_refused(record, path, value):
    bad = copy.deepcopy(record)
    place = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ArgumentError, match=r"outcomes_schema\.json"):
        outcomes.check(bad)


def runs(folder, **options):
    return on_gpu.Runs(folder, on_gpu.Plan(**options), None, lambda line: None)


def test_what_is_late_is_not_run(tmp_path):
    subject = on_gpu.Subject("m", None, None, ())
    found = runs(tmp_path, total_s=-1.0).carry_out([subject])
    assert found["m"]["plain"]["outcome"] == found["m"]["memcheck"]["outcome"] == "not run"
    assert "over -1 s" in found["m"]["plain"]["said"]


SLEEPER = """\
import sys, time
sys.path.insert(0, {folder!r})
import on_gpu
on_gpu.Trial.judge = lambda self, program: time.sleep(60)
on_gpu.normal = lambda subject: subject.trials[1]
on_gpu.child(*sys.argv[1:])
"""


def test_a_child_whose_launch_does_not_end_ends_itself(tmp_path):
    path, events = tmp_path / "program", tmp_path / "events"
    others = set(mutants.mutants()) | set(mutants.kernels()) - {KERNEL}
    ((subject,), _) = on_gpu.subjects("sim", leave_out=others)
    path.write_bytes(pickle.dumps(subject))
    words = [str(path), str(events), "3", "0.2", "plain"]
    program = SLEEPER.format(folder=str(mutants.FOLDER))
    start = time.monotonic()
    status = on_gpu.supervised([sys.executable, "-c", program, *words], 60)
    assert status is None and time.monotonic() - start < 50
    found = outcomes.plain([json.loads(x) for x in events.read_text().splitlines()], status)
    assert found == {"outcome": "hang", "launches": 1, "right": 0, "said": "not done after 0.2 s"}


def test_a_child_that_does_not_end_is_killed():
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    start = time.monotonic()
    assert on_gpu.supervised(sleep, 0.2) is None
    assert time.monotonic() - start < 20
    assert on_gpu.supervised([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3


def test_without_a_gpu_the_program_says_so(tmp_path):
    if runtime.find_gpu() is not None:
        pytest.skip("there is a Hopper GPU")
    with pytest.raises(DeviceError):
        on_gpu.run("cuda", tmp_path / "x.json", (), None)
    assert not (tmp_path / "x.json").exists()
