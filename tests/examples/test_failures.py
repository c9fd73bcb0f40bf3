# SPDX-License-Identifier: Apache-2.0
"""The failure gallery: each mutant gets its diagnosis, and no correct kernel gets any."""

import dataclasses
import shutil
import subprocess
import time

import mutants
import pytest
from mutants import Diagnosis

from tilus import simulator

ITEMS = [  # what the gallery must hold
    "missing arrive",
    "arrival count for one group instead of two",
    "arrival count for two groups instead of one",
    "arrivals by all threads where one is counted",
    "wrong initial phase of the producer",
    "wrong initial phase of the consumer",
    "phase not flipped on wrap (producer)",
    "phase not flipped on wrap (consumer)",
    "expected bytes too small",
    "expected bytes too large",
    "expected bytes in elements",
    "only one of two loads awaited",
    "a load removed",
    "stage released before its WGMMA retired: wait_group(1) at depth 1",
    "stage released before its WGMMA retired: release of s+1",
    "stage released before its WGMMA retired: release before the wait",
    "MMA before the wait",
    "missing wgmma.fence",
    "accumulator read before wait_group",
    "no proxy fence before a TMA store",
    "a fence by the issuing thread only before a TMA store",
    "staging rewritten before the read-wait",
    "consumer group at warps 1-4",
    "empty barrier that ignores the cluster peer",
    "a block that leaves while its peer still signals it",
    "a peer's barrier used before the cluster sync",
    "phase reset per tile",
    "no proxy fence in a persistent epilogue",
    "a fence in the wrong place",
    "staging reused early",
    "leaving before the last store has been read",
    "a tail tile done twice",
]
MUTANTS = mutants.mutants().values()
SEEDS = 100  # the tutorial promises as many


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.id)
def test_a_mutant_gets_exactly_its_diagnosis(mutant, tmp_path):
    start = time.process_time()
    diagnosis = mutants.diagnose(mutant, tmp_path)
    seconds = time.process_time() - start
    assert diagnosis.faults(mutant) == [], diagnosis.message
    assert seconds < 5
    assert str(tmp_path) not in diagnosis.message


@pytest.mark.parametrize("kernel", mutants.kernels().values(), ids=lambda k: k.name)
def test_a_correct_kernel_gets_none(kernel):
    diagnosis = mutants.judge(kernel.path, kernel.simulator)
    assert (diagnosis.verdict, diagnosis.message) == ("", "")
    assert diagnosis.how.startswith("proved: ")
    script, made = mutants.lower(kernel.path, kernel.simulator)
    for seed in range(SEEDS):
        flat, arrays = mutants.operands(script, made, kernel.simulator)
        simulator.run(made, flat, schedule="random", seed=seed)
        assert mutants.right(script, kernel.simulator, arrays), seed


def test_the_gallery_is_complete():
    assert [item for item in ITEMS if item not in {m.item for m in MUTANTS}] == []
    assert len({m.item for m in MUTANTS}) == len(MUTANTS) >= 20
    assert {m.verdict for m in MUTANTS} == set(mutants.VERDICTS)


def test_every_patch_is_in_the_table_and_breaks_a_kernel_by_itself():
    assert {path.stem for path in mutants.FOLDER.glob("*.patch")} == {m.id for m in MUTANTS}
    assert len({m.source for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.id)
def test_a_patch_is_small_and_git_applies_it(mutant):
    body = [line for part in mutants.split_hunks(mutant.patch)[1:] for line in part[1:]]
    assert sum(line[0] == "-" for line in body) <= 5 and sum(line[0] == "+" for line in body) <= 5
    if not (mutants.ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout")
    command = ["git", "apply", "--check", str(mutants.FOLDER / f"{mutant.id}.patch")]
    done = subprocess.run(command, cwd=mutants.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PATCH = """\
--- a/kernel.py
+++ b/kernel.py
@@ -1,3 +1,3 @@
 one
-two
+2

"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    case = mutants.Case({}, {})
    return mutants.Kernel("kernel", "kernel.py", case, case)


def test_a_patch_is_applied_wherever_its_lines_stand(kernel):
    kernel.path.write_text("zero\none\ntwo\n\nthree\n")
    assert mutants.applied(PATCH, kernel) == "zero\none\n2\n\nthree\n"


@pytest.mark.parametrize(
    ("text", "places"), [("one\ntwo \n\n", 0), ("one\n\n", 0), ("one\ntwo\n\none\ntwo\n\n", 2)]
)
def test_a_patch_that_does_not_fit_says_so(kernel, text, places):
    kernel.path.write_text(text)
    with pytest.raises(mutants.PatchError) as caught:
        mutants.applied(PATCH, kernel)
    assert f"once in kernel.py, got {places} places" in str(caught.value)
    assert "-two" in str(caught.value)


def test_a_patch_of_another_file_is_refused(kernel):
    kernel.path.write_text("one\ntwo\n\n")
    with pytest.raises(mutants.PatchError, match=r"a patch of other\.py must begin"):
        mutants.applied(PATCH, dataclasses.replace(kernel, file="other.py"))


def test_another_diagnosis_than_the_table_has_is_told():
    mutant = mutants.mutants()["missing-arrive"]
    good = Diagnosis("deadlock", " ".join(mutant.says), mutant.lines)
    assert good.faults(mutant) == []
    for bad, fault in [
        (Diagnosis(""), "verdict none, not deadlock"),
        (dataclasses.replace(good, verdict="race"), "verdict race, not deadlock"),
        (dataclasses.replace(good, lines=["x = 1"]), "points not at"),
        (dataclasses.replace(good, message="nothing"), "says nothing of 'producer_barriers[0]'"),
    ]:
        assert any(found.startswith(fault) for found in bad.faults(mutant))


def test_a_wrong_result_without_a_verdict_is_no_pass(tmp_path):
    kernel = mutants.kernels()["two_loads"]
    path = tmp_path / "two_loads.py"
    path.write_text(kernel.path.read_text().replace("a_ptr + b_ptr", "a_ptr - b_ptr"))
    assert mutants.judge(path, kernel.simulator).verdict == "wrong"


def test_the_program_tells_which_are_misjudged(monkeypatch, capsys):
    assert mutants.main(["missing-arrive"]) == 0
    assert "lacks 128 of 128 arrivals" in capsys.readouterr().out
    monkeypatch.setattr(mutants, "diagnose", lambda mutant, folder: Diagnosis(""))
    assert mutants.main(["missing-arrive"]) == 1
    assert "verdict none, not deadlock" in capsys.readouterr().out


def test_a_patch_is_shown_without_indentation():
    lines = mutants.shown(mutants.mutants()["release-before-the-wait"]).splitlines()
    assert "+     self.mbarrier.arrive(producer_barriers[stage])" in lines
    assert min(len(line) - len(line[1:].lstrip()) for line in lines if line) == 2
