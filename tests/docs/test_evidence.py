# SPDX-License-Identifier: Apache-2.0
"""What a profiler counted is shown with units, schedule and badge; what it lacks is not made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fixture
import pytest
from ladder import evidence
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from tilus import records

ROOT = Path(__file__).parents[2]
COUNTED = {"tensor_pipe_pct": 62.46, "dram_read_bytes": 2.5e9, "shared_bytes": 98304.0}
PROFILE: dict[str, Any] = {
    "environment": fixture.environment(),
    "sources": fixture.record().sources,
    "problem": {"m": 8192, "n": 8192, "k": 8192},
    "profiler": "ncu 0.0",
    "launches": {
        "v3": {"schedule": {"num_stages": 3}, "kernel": "MatmulWGMMAV3", **COUNTED},
        "cublas": {"schedule": None, "kernel": "nvjet", "tensor_pipe_pct": 90.0},
    },
}


def build(root: Path, text: str, profile: dict[str, Any] | None = PROFILE) -> str:
    """Build one page in a project of its own; return its text."""
    (root / "docs").mkdir()
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    if profile:
        (root / "data").mkdir()
        (root / "data" / "profile.json").write_text(json.dumps(profile), encoding="utf-8")
    settings = {"extensions": ["ladder.numbers", "ladder.evidence"], "record_folders": ["data"]}
    folders = root / "docs", None, root / "out", root / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


@pytest.mark.parametrize(
    ("version", "quantity", "text"),
    [
        ("v3", "tensor_pipe_pct", "62.5 %"),
        ("v3", "dram_read_bytes", "2.50 GB"),
        ("v3", "shared_bytes", "96 KB"),
        ("v3", "registers", "–"),
        ("v9", "shared_bytes", "–"),
    ],
)
def test_a_quantity(version: str, quantity: str, text: str) -> None:
    assert evidence.Profile(PROFILE).cell(version, quantity) == text


def test_the_table_names_versions_schedules_and_where_it_comes_from(tmp_path: Path) -> None:
    text = build(tmp_path, ".. profile-table:: v3 cublas")
    cells = [cell.strip() for cell in text.split("|") if cell.strip()]
    head = cells.index("Quantity")
    assert cells[head : head + 6] == [
        "Quantity",
        "V3, num_stages 3",
        "cuBLAS",
        "Tensor cores active",
        "62.5 %",
        "90.0 %",
    ]
    assert "recorded on 1999-12-31, FIXTURE GPU" in cells
    assert "the kernel changed since" in cells
    assert "One launch at 8192³, ncu 0.0." in cells


def test_a_table_of_many_versions_may_leave_out_schedules(tmp_path: Path) -> None:
    text = build(tmp_path, ".. profile-table:: v3 cublas\n   :names:")
    assert re.search(r"\|V3\|[ |]*\|cuBLAS\|", text)
    assert "num_stages" not in text


def test_only_another_kernel_makes_counts_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    def staleness(profile: evidence.Profile, root: Path, version: str) -> list[str]:
        return [*profile.sources["measuring"], *(["other CUDA"] if version == "v3" else [])]

    monkeypatch.setattr(records, "staleness", staleness)
    kernels = {"v2": {}, "v3": {}}
    profile = evidence.Profile({**PROFILE, "sources": {"measuring": {"x": 1}, "kernels": kernels}})
    told = [
        "changed" in profile.badge(ROOT, versions).astext()
        for versions in (["v2"], ["v3"], ["cublas"])
    ]
    assert told == [False, True, False]


def test_a_number_in_a_sentence(tmp_path: Path) -> None:
    assert "busy |62.5 %|" in build(tmp_path, "busy :profile:`v3 tensor_pipe_pct`")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [("v3 speed", "no quantity 'speed'"), ("v9 registers", "no registers of v9")],
)
def test_a_number_it_lacks_ends_the_build(tmp_path: Path, words: str, complaint: str) -> None:
    with pytest.raises(ExtensionError, match=rf"index\.rst:4: .*{complaint}"):
        build(tmp_path, f":profile:`{words}`")


def test_without_a_profile_the_page_says_so(tmp_path: Path) -> None:
    page = ".. profile-table:: v3\n\n:profile:`v3 registers`"
    text = build(tmp_path, page, profile=None)
    assert "there is no record plots/data/profile.json" in text
    assert "not measured yet" in text
