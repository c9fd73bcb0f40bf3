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
from ladder import failures
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from pathlib import Path

MUTANT = mutants.mutants()["missing-arrive"]
WATCHED = {tool: {"outcome": "not noticed", "said": ""} for tool in outcomes.TOOLS}
ALONE = {"outcome": "right", "launches": 20, "right": 20, "said": ""}
NOTICED = {"outcome": "noticed", "said": "a complaint"}


def runs(**changes: Any) -> dict[str, Any]:
    """Return the runs of a mutant that nobody noticed, some of them changed."""
    return {"compiler": "", "plain": ALONE, **WATCHED, **changes}


def record(mutant: dict[str, Any], kernel: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a made-up record of one mutant and its kernel."""
    return {
        "schema": 1,
        "environment": fixture.environment() | {"driver": "0", "nvrtc": "0", "sanitizer": "0"},
        "method": dict.fromkeys(
            ("inputs", "launches", "limit_s", "tool_launches", "tool_limit_s"), 0
        ),
        "sources": copy.deepcopy(failures.now()),
        "kernels": {MUTANT.kernel.name: kernel or runs()},
        "mutants": {MUTANT.id: mutant},
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
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


PAGE = """\
.. failures-table::

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
    assert "Not run on a GPU yet: there is no record plots/data/failures.json." in html
    assert html.count("On the GPU: not run on a GPU yet.") == 3
    assert html.count("On the GPU: never runs.") == 1
    assert MUTANT.title in html and "simulated, schedule x" in html


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        (ALONE, "right numbers in all 20 launches"),
        (ALONE | {"outcome": "wrong", "right": 17}, "wrong numbers in 3 of 20 launches"),
        (ALONE | {"outcome": "hang", "launches": 1, "right": 0}, "hangs in launch 1"),
        (
            ALONE | {"outcome": "error", "launches": 2, "right": 1},
            "stops with an error in launch 2",
        ),
        (ALONE | {"outcome": "refused", "launches": 0, "right": 0}, "is not built"),
        (ALONE | {"outcome": "not run", "launches": 0, "right": 0}, "not run"),
    ],
)
def test_what_the_gpu_did_in_words(plain: dict[str, Any], text: str) -> None:
    assert failures.Hardware(record(runs(plain=plain))).alone(MUTANT) == text


@pytest.mark.parametrize(
    ("changes", "kernel", "text"),
    [
        ({}, {}, "not noticed by memcheck, racecheck, synccheck"),
        ({"synccheck": NOTICED}, {}, "not noticed by memcheck, racecheck; noticed by synccheck"),
        ({"racecheck": NOTICED}, {"racecheck": NOTICED},
         "not noticed by memcheck, synccheck; racecheck complains of the correct kernel too"),
        ({t: {"outcome": "timed out", "said": ""} for t in outcomes.TOOLS}, {},
         "no answer in time from memcheck, racecheck, synccheck"),
        ({"plain": ALONE | {"outcome": "refused"}}, {}, "never runs"),
    ],
)  # fmt: skip
def test_what_the_tools_noticed_in_words(
    changes: dict[str, Any], kernel: dict[str, Any], text: str
) -> None:
    made = record(runs(**changes), runs(**kernel))
    assert failures.Hardware(made).tools(MUTANT) == text


def test_a_record_of_another_program_is_said_to_be_old() -> None:
    made = record(runs())
    made["sources"]["mutants"][MUTANT.id]["cuda"] = "0" * 64
    assert failures.Hardware(made).alone(MUTANT).endswith(" (changed since)")


def test_a_page_with_a_record_says_when_and_what_was_said(tmp_path: Path, short: None) -> None:
    html = build(tmp_path, PAGE, record(runs(compiler="a note", memcheck=NOTICED)))
    assert "recorded on 1999-12-31, FIXTURE GPU" in html
    assert html.count("right numbers in all 20 launches") == 2
    assert "compiler: a note memcheck: a complaint" in html


def test_a_mutant_that_gets_another_diagnosis_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "diagnose", lambda *_: mutants.Diagnosis("race", "a message"))
    with pytest.raises(ExtensionError, match=r"(?s)missing-arrive .*verdict race.*a message"):
        build(tmp_path, ".. failures:: deadlock")


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
