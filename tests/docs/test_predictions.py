# SPDX-License-Identifier: Apache-2.0
"""Predictions stand beside measurements, with the clock they are for and what decides them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fixture
import pytest
from ladder import predictions
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from tilus import prediction, records


def compare(record: records.Record, root: Path, version: str, *problem: Any) -> Any:
    """Stand in for the cost model: it predicts four fifths of what was measured."""
    measured = record.summary(version, *problem).latency_ms
    made = {
        "limit": "copies",
        "blocks": 4096,
        "tiles": 128,
        "resident": 2,
        "sms": 132,
        "outputs": 1,
    }
    return SimpleNamespace(
        prediction=SimpleNamespace(**made, waves=15.515),
        mhz=1350.0,
        recorded=problem[-1] == "sustained",
        measured_ms=measured,
        predicted_ms=0.8 * measured,
        ratio=0.8,
    )


def build(root: Path, text: str, monkeypatch: pytest.MonkeyPatch, *, measured: bool = True) -> str:
    """Build one page in a project of its own; return its text with | for tags."""
    monkeypatch.setattr(prediction, "compare", compare)
    (root / "docs").mkdir()
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    if measured:
        records.write(fixture.record(), root / "data" / "v3.json")
    extensions = ["ladder.gallery", "ladder.numbers", "ladder.predictions"]
    settings = {"extensions": extensions, "record_folders": ["data"]}
    conf = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    (root / "conf.py").write_text(conf, encoding="utf-8")
    folders = root / "docs", root, root / "out", root / "trees"
    Sphinx(*folders, "html", status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


def test_a_prediction_stands_beside_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build(tmp_path, ".. prediction-table:: v3 m=8192", monkeypatch)
    cells = [cell.strip() for cell in text.split("|") if cell.strip()]
    head = cells.index("Size")
    assert cells[head : head + 7] == list(predictions.HEADER)
    times = ["2.000 ms", "2.500 ms", "0.80", "copies"]
    burst = ["8192³", "burst", "1.35 GHz, the peak’s clock", *times]
    assert cells[head + 7 : head + 14] == burst
    assert cells[head + 14 : head + 21] == ["8192³", "sustained", "1.35 GHz", *times]
    note = "room for 2 blocks on each of 132 multiprocessors: 15.5 waves."
    assert any(cell.endswith(note) for cell in cells)
    assert "measured now, FIXTURE GPU" in cells


def test_without_a_record_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = build(tmp_path, ".. prediction-table:: v3 m=8192", monkeypatch, measured=False)
    assert "there is no record plots/data/v3.json" in text


def test_a_problem_that_was_not_measured_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExtensionError, match=r"index\.rst:4: .*no problem fits m=77"):
        build(tmp_path, ".. prediction-table:: v3 m=77", monkeypatch)
