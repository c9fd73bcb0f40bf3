# SPDX-License-Identifier: Apache-2.0
"""What a call costs is shown from its record, with where and when; without one, that is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fixture
import pytest
from ladder import launches
from sphinx.application import Sphinx

from tilus.fingerprint import program_hash

ROOT = Path(__file__).parents[2]
FILE = "src/tilus/launch/known.py"
KERNEL = "examples/hopper_matmul/matmul_v5.py"


def record() -> dict[str, Any]:
    """Return a made-up record about the programs that there are."""
    kernel, path = ((ROOT / name).read_text(encoding="utf-8") for name in (KERNEL, FILE))
    return {
        "environment": fixture.environment(),
        "processor": "FIXTURE CPU",
        "libraries": {"torch": "0.0"},
        "method": {"us": "fixture", "host": "one thread"},
        "size": [256, 256, 128],
        "sources": {
            "kernel": {"file": KERNEL, "sha256": program_hash(kernel)},
            "path": {FILE: program_hash(path)},
        },
        "us": {"triton": [30.0, 20.0, 22.04], "tilus": [5.0, 4.46, 4.0], "tilus_launch": [3.2]},
    }


def build(root: Path, made: dict[str, Any] | None) -> str:
    """Build one page in a copy of the tree; return its text."""
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text("Page\n====\n\n.. launch-table::\n")
    for name in (KERNEL, FILE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    if made:
        (root / "plots" / "data").mkdir(parents=True)
        (root / "plots" / "data" / "launch.json").write_text(json.dumps(made))
    settings = {"extensions": ["ladder.launches"]}
    folders = root / "docs", None, root / "out", root / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


def test_the_table_has_medians_in_its_own_order(tmp_path: Path) -> None:
    text = build(tmp_path / "now", record())
    ours, triton = text.index("4.5 µs"), text.index("22.0 µs")
    assert ours < triton and "4.0 – 5.0" in text and "20.0 – 30.0" in text
    assert "Each round: fixture; one thread." in text
    assert "FIXTURE CPU" in text and "torch 0.0" in text and "256×256×128" in text
    assert "recorded on 1999-12-31, FIXTURE GPU" in text and "changed since" not in text


@pytest.mark.parametrize(("us", "met"), [(6.0, "met"), (6.1, "not met")])
def test_the_aim_is_met_or_not(us: float, met: str) -> None:
    said = launches.judged({"tilus": [us, us, 99.0], "tilus_launch": [3.2]})
    assert f"of ours is 6 µs: {met}, with {us} µs" in said and "takes 3.2 µs" in said


@pytest.mark.parametrize("part", ["kernel", "path", "gone"])
def test_a_record_of_another_program_says_so(tmp_path: Path, part: str) -> None:
    made = record()
    if part == "kernel":
        made["sources"]["kernel"]["sha256"] = fixture.NOTHING
    else:
        name = FILE if part == "path" else "src/tilus/gone.py"
        made["sources"]["path"][name] = fixture.NOTHING
    assert launches.changed(made["sources"], ROOT)
    assert not launches.changed(record()["sources"], ROOT)
    assert "the way of a call changed since" in build(tmp_path / "then", made)


def test_without_a_record_nothing_is_made_up(tmp_path: Path) -> None:
    assert "Not measured yet: there is no record plots/data/launch.json." in build(tmp_path, None)
