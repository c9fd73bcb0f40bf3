# SPDX-License-Identifier: Apache-2.0
"""No measured number is typed into a page, and the lint that says so finds one."""

from __future__ import annotations

import json
from pathlib import Path

import prose
import pytest


@pytest.mark.parametrize(
    "text",
    [
        "reaches 575 TFLOPS",
        "takes 1.52 ms",
        "12 µs",
        "5% faster",
        "94 % busy",
        "0.84x cuBLAS",
        "1,2 GB/s",
        "0.84 × cuBLAS",
    ],
)
def test_a_typed_number_is_found(text: str) -> None:
    assert len(prose.typed_numbers(f"first line\n{text}")) == 1
    assert prose.typed_numbers(f"first line\n{text}")[0][0] == 2


@pytest.mark.parametrize(
    "text",
    [
        "128 threads",
        ":record:`v3 tflops m=8192 burst`",
        "stage % 2",
        "227 KB",
        "128x256 tiles",
        "2 msgs",
        "V3 in 5 steps",
    ],
)
def test_other_numbers_are_left_alone(text: str) -> None:
    assert prose.typed_numbers(text) == []


def test_the_pages_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main([]) == 0, capsys.readouterr().out


def test_an_offence_fails_by_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.rst"
    page.write_text("It takes 3 ms.\n")
    assert prose.main([str(page)]) == 1
    assert f"{page}:1: '3 ms' is typed" in capsys.readouterr().out


def test_the_picture_in_the_readme_is_of_the_record_there_is() -> None:
    root = Path(__file__).parents[2]
    record = json.loads((root / "plots" / "data" / "ladder.json").read_text(encoding="utf-8"))
    day, gpu = record["environment"]["date"][:10], record["environment"]["gpu"]
    assert (
        f"recorded on {day}, {gpu}](docs/pictures/result.png)" in (root / "README.md").read_text()
    )
    assert (root / "docs" / "pictures" / "result.png").exists()
