# SPDX-License-Identifier: Apache-2.0
"""The gallery's page: every mutant with patch, diagnosis and hardware; one misjudged ends it."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import fixture
import mutants
import outcomes
import pytest
from ladder import failures, hardware
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from pathlib import Path

MUTANT = mutants.mutants()["missing-arrive"]
WATCHED = {tool: {"outcome": "not noticed", "said": ""} for tool in outcomes.TOOLS}
ALONE = {"outcome": "right", "launches": 20, "right": 20, "said": ""}
NOTICED = {"outcome": "noticed", "said": "a complaint"}
FAILED = {"outcome": "noticed", "said": "Unknown Error"}
HANGS = {tool: {"outcome": "timed out", "said": ""} for tool in outcomes.TOOLS}


def runs(**changes: Any) -> dict[str, Any]:
    """Return the runs of a mutant that nobody noticed, some of them changed."""
    return {"compiler": "", "plain": ALONE, **WATCHED, **changes}


def record(
    mutant: dict[str, Any], kernel: dict[str, Any] | None = None, **others: dict[str, Any]
) -> dict[str, Any]:
    """Return a made-up record of one mutant and its kernel, and of ``others`` by id."""
    return {
        "schema": 1,
        "environment": fixture.environment() | {"driver": "0", "nvrtc": "0", "sanitizer": "0"},
        "method": {
            "inputs": "",
            "launches": 20,
            "limit_s": 5,
            "tool_launches": 2,
            "tool_limit_s": 9,
        },
        "sources": copy.deepcopy(outcomes.sources()),
        "kernels": {MUTANT.kernel.name: kernel or runs()},
        "mutants": {MUTANT.id: mutant} | {name.replace("_", "-"): r for name, r in others.items()},
    }


def build(root: Path, text: str, made: dict[str, Any] | None = None) -> str:
    """Build one page in a project of its own; return its text."""
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    if made:
        (root / "data").mkdir()
        (root / "data" / "failures.json").write_text(json.dumps(outcomes.check(made)))
    for mutant in mutants.mutants().values():  # what the links lead to
        (root / mutant.kernel.file).parent.mkdir(parents=True, exist_ok=True)
        (root / mutant.kernel.file).touch()
    parts = ["failures", "sources", "gallery", "numbers"]
    settings = {"extensions": [f"ladder.{p}" for p in parts], "record_folders": ["data"]}
    folders = root / "docs", None, root / "out", root / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"(<[^>]+>|\s)+", " ", html)


PAGE = """\
.. failures-summary::
.. failures-passes::
.. failures-table::
.. failures-verdicts::

Kinds
-----

.. failures:: deadlock
.. failures:: race
.. failures:: protocol
.. failures:: refused
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gallery hold one mutant of each verdict, and judge none."""
    every = mutants.mutants().values()
    chosen = {m.verdict: m for m in reversed(every)} | {"deadlock": MUTANT}
    monkeypatch.setattr(mutants, "mutants", lambda: {m.id: m for m in chosen.values()})
    monkeypatch.setattr(
        failures,
        "diagnosed",
        lambda mutant, _: mutants.Diagnosis(
            mutant.verdict, f"told of {mutant.id}", (), "schedule x"
        ),
    )


def test_a_page_has_patch_diagnosis_and_says_that_nothing_was_run(
    tmp_path: Path, short: None
) -> None:
    html = build(tmp_path, PAGE)
    assert "told of missing-arrive" in html and "mbarrier" in html
    assert html.count("Not run on a GPU yet: there is no record plots/data/failures.json.") == 4
    assert html.count("On the GPU: not run on a GPU yet.") == 3
    assert html.count("On the GPU: never runs.") == 1
    assert MUTANT.title in html and "simulated, schedule x" in html


@pytest.mark.parametrize(
    ("outcome", "launches", "right", "text", "cell"),
    [
        ("right", 20, 20, "right numbers in all 20 launches", "**right** 20/20"),
        ("wrong", 20, 17, "wrong numbers in 3 of 20 launches", "wrong 3/20"),
        ("hang", 1, 0, "hangs in launch 1", "hangs"),
        ("error", 2, 1, "stops with an error in launch 2", "error in launch 2"),
        ("refused", 0, 0, "is not built", "not built"),
        ("not run", 0, 0, "not run", "not run"),
    ],
)
def test_what_the_gpu_did_in_words(
    outcome: str, launches: int, right: int, text: str, cell: str
) -> None:
    plain = {"outcome": outcome, "launches": launches, "right": right, "said": ""}
    gpu = hardware.Hardware(record(runs(plain=plain)))
    assert (gpu.alone(MUTANT), gpu.brief(MUTANT)) == (text, cell)


@pytest.mark.parametrize(
    ("changes", "kernel", "text", "cell"),
    [
        ({}, {}, "nothing said by memcheck, racecheck, synccheck", "none"),
        ({"synccheck": NOTICED}, {},
         "an error named by synccheck; nothing said by memcheck, racecheck", "synccheck"),
        ({"memcheck": FAILED}, {},
         "a failed launch and no reason told by memcheck; nothing said by racecheck, synccheck",
         "none"),
        ({"racecheck": NOTICED}, {"racecheck": NOTICED},
         "nothing said by memcheck, synccheck; racecheck complains of the correct kernel too",
         "none"),
        (HANGS, {}, "hangs without a word under memcheck, racecheck, synccheck", "none (hangs)"),
        (HANGS | {"memcheck": NOTICED}, {},
         "an error named by memcheck; hangs without a word under racecheck, synccheck", "memcheck"),
        ({"plain": ALONE | {"outcome": "refused"}}, {}, "never runs", "–"),
    ],
)  # fmt: skip
def test_what_the_tools_noticed_in_words(
    changes: dict[str, Any], kernel: dict[str, Any], text: str, cell: str
) -> None:
    gpu = hardware.Hardware(record(runs(**changes), runs(**kernel)))
    assert (gpu.tools(MUTANT), gpu.named(MUTANT)) == (text, cell)


def test_a_record_of_another_program_is_said_to_be_old() -> None:
    made = record(runs())
    assert "the kernel changed since" not in hardware.Hardware(made).badge().astext()
    made["sources"]["mutants"][MUTANT.id]["cuda"] = "0" * 64
    made["sources"]["kernels"][MUTANT.kernel.name]["source"] = "0" * 64
    gpu = hardware.Hardware(made)
    assert gpu.alone(MUTANT).endswith(" (changed since)")
    assert gpu.brief(MUTANT).endswith(" (changed since)")
    assert "the kernel changed since" in gpu.badge().astext()
    told = "Changed since, and perhaps of another outcome now: v3, missing-arrive."
    assert told in list(hardware.findings(gpu))


PLAIN = {kind: {"plain": ALONE | {"outcome": kind}} for kind in ("wrong", "hang", "error")}


@pytest.fixture
def several() -> hardware.Hardware:
    """A record of six mutants: two right, one of each other kind, one that is refused."""
    return hardware.Hardware(
        record(
            runs(**PLAIN["hang"], **HANGS),
            no_proxy_fence=runs(),
            missing_wgmma_fence=runs(compiler="a note"),
            consumer_phase=runs(**PLAIN["error"], memcheck=FAILED, synccheck=NOTICED),
            load_removed=runs(**PLAIN["wrong"], compiler="a note", synccheck=NOTICED),
            consumer_at_warps_1_to_4=outcomes.refused("a reason"),
        )
    )


def test_what_came_of_all_is_counted(several: hardware.Hardware) -> None:
    absent = len(mutants.mutants()) - 6
    assert several.counts() == [
        ("right", 2, 1, 0), ("wrong", 1, 1, 1), ("error", 1, 0, 1), ("hangs", 1, 0, 0)
    ]  # fmt: skip
    assert several.verdicts() == [
        ("deadlock", 0, 1, 0, 1), ("race", 1, 0, 1, 0), ("protocol", 1, 0, 0, 0)
    ]  # fmt: skip
    assert hardware.ran(several) == (
        f"5 of the {absent + 6} mutants ran on an FIXTURE GPU (1 refused at build, {absent} not in "
        "the record): 20 launches alone, and 2 under each tool, unless one of them hangs or fails. "
        "A hang is a launch that takes over 5 s alone, or 9 s under a tool."
    )
    assert list(hardware.findings(several)) == [
        "A tool names an error in 2 of the 5: synccheck in 2. First words: ``a complaint``",
        "In 1 of the 5 memcheck says only that the launch failed.",
        "1 of the 5 hang under every tool, without a word.",
        "The simulator calls 2 of them races: racecheck names an error in none of the 2.",
        "The correct kernels ran in the same way: all 1 gave right numbers, and all 1 ended under "
        "every tool without a complaint.",
    ]
    assert hardware.passes(several) == (
        "Right numbers in every launch: 2 of the 5 mutants. A tool names an error in none of the "
        "2. ptxas has a note for 1 of the 2, and ``tilus`` builds nothing that has such a note; "
        "here it was told to."
    )
    assert hardware.agreement(several).startswith("The GPU hangs in 1 of the 2 that the judge")


def test_those_with_right_numbers_come_first_and_those_without_runs_last(
    several: hardware.Hardware,
) -> None:
    assert [m.id for m in several.ordered()][:6] == [
        "no-proxy-fence", "missing-wgmma-fence", "load-removed", "consumer-phase", "missing-arrive",
        "consumer-at-warps-1-to-4",
    ]  # fmt: skip
    assert len(several.ordered()) == len(mutants.mutants())


def test_a_record_in_which_nothing_was_noticed_has_its_sentences_too() -> None:
    gpu = hardware.Hardware(
        record(runs(**PLAIN["wrong"]), runs(**PLAIN["wrong"], memcheck=NOTICED))
    )
    first, *others = hardware.findings(gpu)
    assert first == "A tool names an error in none of the 1."
    assert others[-1].endswith("none of the 1 gave right numbers, and none of the 1 ended under "
                               "every tool without a complaint.")  # fmt: skip
    assert hardware.passes(gpu) == "Right numbers in every launch: none of the 1 mutants."


def test_an_explanation_is_shown_for_the_outcome_that_it_explains(several: Any) -> None:
    known = mutants.mutants()
    assert (
        several.why(known["no-proxy-fence"]) == known["no-proxy-fence"].explained["right"].strip()
    )
    assert several.why(known["consumer-phase"]).endswith("stops a launch that makes one.")
    assert several.why(known["load-removed"]) == several.why(known["bytes-too-small"]) == ""


def test_a_page_with_a_record_says_when_and_what_was_said(tmp_path: Path, short: None) -> None:
    failed = runs(**PLAIN["error"], synccheck=NOTICED)
    made = record(runs(compiler="a note", memcheck=NOTICED), consumer_phase=failed)
    html = build(tmp_path, PAGE, made)
    assert html.count("recorded on 1999-12-31, FIXTURE GPU") == 3
    assert "2 of the 4 mutants ran on an FIXTURE GPU (2 not in the record)" in html
    assert "right 1 1 1 wrong 0 0 0 error 1 0 1 hangs 0 0 0" in html
    assert "Right numbers in every launch: 1 of the 2 mutants" in html
    assert f"{MUTANT.title} (V3, deadlock). We do not know why." in html
    assert "deadlock right 20/20 memcheck" in html and "race error in launch 20 synccheck" in html
    assert "compiler: a note memcheck: a complaint" in html
    assert "On the GPU: right numbers in all 20 launches. compute-sanitizer: an error" in html
    assert "On the GPU: stops with an error in launch 20. Our explanation: The consumers" in html
    assert "deadlock 1 0 0 0 race 0 0 1 0 protocol 0 0 0 0" in html
    assert "The GPU hangs in none of the 1 that the judge calls a deadlock." in html


def test_one_mutant_stands_on_another_page_with_what_the_gpu_did(
    tmp_path: Path, short: None
) -> None:
    html = build(tmp_path, f".. failure:: {MUTANT.id}", record(runs(**PLAIN["hang"], **HANGS)))
    assert "told of missing-arrive" in html and "simulated, schedule x" in html
    assert "On the GPU: hangs in launch 20. compute-sanitizer: hangs without a word" in html
    assert html.count("recorded on 1999-12-31, FIXTURE GPU") == 1
    without = build(tmp_path / "second", f".. failure:: {MUTANT.id}")
    assert "On the GPU: not run on a GPU yet." in without and "recorded on" not in without


def test_a_mutant_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match="no mutant is called 'nothing'; there are missing-"):
        build(tmp_path, ".. failure:: nothing")


def test_a_mutant_that_gets_another_diagnosis_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "diagnose", lambda *_: mutants.Diagnosis("race", "a message"))
    for at, text in enumerate((".. failures:: deadlock", ".. failure:: missing-arrive")):
        with pytest.raises(ExtensionError, match=r"(?s)missing-arrive .*verdict race.*a message"):
            build(tmp_path / str(at), text)


def test_a_patch_that_no_longer_fits_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outgrown(*_: object) -> None:
        raise mutants.PatchError("@@ must stand once")

    monkeypatch.setattr(mutants, "applied", outgrown)
    with pytest.raises(ExtensionError, match="missing-arrive: @@ must stand once"):
        build(tmp_path, ".. failures:: deadlock")


def test_a_verdict_that_no_mutant_has_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match="no mutant has the verdict 'fine'"):
        build(tmp_path, ".. failures:: fine")


def test_a_correct_kernel_that_gets_a_verdict_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "proved: no order of moves has a verdict" in build(tmp_path, ".. failures-kernels::")
    monkeypatch.setattr(mutants, "judge", lambda *_: mutants.Diagnosis("race", "a message"))
    with pytest.raises(ExtensionError, match=r"matmul_v0\.py gets the verdict .*a message"):
        build(tmp_path / "second", ".. failures-kernels::")
