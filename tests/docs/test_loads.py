# SPDX-License-Identifier: Apache-2.0
"""Joules, clocks and errors on pages come from their record; what lost comes from the log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fixture
import matplotlib.pyplot as plt
import pytest
from ladder import loads
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import energy
from tilus import joules
from tilus.errors import ArgumentError

LOG = """# Log

## How

## Today, what lost (no record)

Words.

| tried | found |
|---|---|
| this | 0.9 |
| that | 1.0 |

## Before

| tried | found |
|---|---|
| other | 2.0 |
"""


def row(series: str, name: str, ms: float, mhz: float | None, watts: float = 700.0) -> Any:
    """Return the measurement of three windows, of which the middle one is ``ms``."""
    latency = [ms, ms * 2, ms / 2]
    lists = {"launches": [9] * 3, "sm_mhz": [mhz] * 3, "nvml_mhz": [1400.0] * 3}
    powers = {"power_w": [watts] * 3, "latency_ms": latency, "flops": 1e12}
    return {"series": series, "name": name, **lists, **powers}


ERRORS = {"largest": 1e-3, "rms": 1.25e-4, "rel_err": 4e-3, "worst": 0.4, "checked": 9}
RECORD: dict[str, Any] = {
    "schema": joules.SCHEMA_VERSION,
    "environment": fixture.environment() | {"power_limit_w": 700.0, "sms": 100},
    "sources": {"bench": {"file": "src/tilus/bench.py", "sha256": fixture.NOTHING}},
    "schedules": {"v4": {"num_stages": 3}, "v7": {"num_stages": 4}},
    "measurements": [
        row("sustained", "v4", 2.0, 1200.0),
        row("sustained", "v7", 1.6, 1300.0),
        row("sustained", "cublas", 2.5, None),
        row("ceiling", "128x256", 1.0, 1500.0),
        row("ceiling", "256x200", 0.8, 1500.0),
        row("zeros", "v7-random", 1.6, 1300.0),
        row("zeros", "v7-zeros", 1.0, 1700.0, 400.0),
        {**row("half-sums", "appendix_fp16", 1.4, 1300.0), "errors": {"appendix_fp16": ERRORS}},
    ],
}
SERIES = {**RECORD, "measurements": RECORD["measurements"][:3]}


def build(root: Path, text: str, record: Any = RECORD) -> str:
    """Build one page in a project of its own; return its text."""
    (root / "docs" / "design").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    (root / "docs" / "design" / "performance-log.md").write_text(LOG, encoding="utf-8")
    if record:
        (root / "data").mkdir()
        (root / "data" / "why.json").write_text(json.dumps(record), encoding="utf-8")
    settings = {"extensions": ["ladder.numbers", "ladder.loads"], "record_folders": ["data"]}
    folders = root / "docs", None, root / "out", root / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


def cells(text: str) -> list[str]:
    return [cell.strip().replace("\xa0", " ") for cell in text.split("|") if cell.strip()]


def test_a_series_is_a_table_with_its_badge(tmp_path: Path) -> None:
    found = cells(build(tmp_path, ".. load-table:: sustained"))
    at = found.index("V7")
    assert found[at : at + 8] == [
        *("V7", "1.600 ms", "625 TFLOPS", "1300 MHz", "700 W", "1.120 J", "2.08 M", "117.4 %"),
    ]  # of a made-up record: 10^12 operations in 2.08 million cycles of 100 times 4096
    assert found[found.index("cuBLAS") + 3] == "–"  # nobody counted
    assert "recorded on 1999-12-31, FIXTURE GPU" in found and "the kernel changed since" in found
    assert "Power limit 700 W." in found
    assert "V7 on zeros" not in found


def test_zeros_are_named_and_have_no_speed(tmp_path: Path) -> None:
    found = cells(build(tmp_path, ".. load-table:: zeros"))
    assert found[found.index("V7 on zeros") + 1] == "1.000 ms"
    assert not any("TFLOPS" in cell for cell in found)


@pytest.mark.parametrize(
    ("role", "text"),
    [
        (":load:`sustained v7 joules`", "1.120 J"),
        (":load:`sustained v7 nvml_mhz`", "1400 MHz"),
        (":load:`zeros v7-zeros tflops / v7-random`", "1.60×"),
        (":load:`sustained v7 joules / v4`", "0.80×"),
        (":float16:`appendix_fp16 rms`", "0.00013"),
    ],
)
def test_a_number_in_a_sentence(tmp_path: Path, role: str, text: str) -> None:
    assert text in cells(build(tmp_path, f"it is {role}, so"))


@pytest.mark.parametrize(
    ("role", "complaint"),
    [
        (":load:`sustained v9 joules`", "v9"),
        (":load:`sustained v7 speed`", "a field of latency_ms"),
        (":load:`sustained v7 joules v4`", "SERIES NAME FIELD"),
        (":float16:`v9 rms`", "the record has no 'v9'"),
        (".. log-table:: Never", "0 entries of the performance log have 'Never'"),
    ],
)
def test_what_the_record_lacks_ends_the_build(tmp_path: Path, role: str, complaint: str) -> None:
    with pytest.raises(ExtensionError, match=rf"index\.rst:4.*{complaint}"):
        build(tmp_path, role)


@pytest.mark.parametrize("record", [None, SERIES])
def test_a_series_that_was_not_measured_is_said_to_be_missing(tmp_path: Path, record: Any) -> None:
    page = ".. load-table:: zeros\n\n.. error-table::\n\n:load:`zeros v7-zeros joules`"
    text = build(tmp_path, page, record)
    assert text.count("there is no record plots/data/why.json") == 2
    assert "not measured yet" in text


def test_the_logs_table_is_shown_as_it_stands(tmp_path: Path) -> None:
    found = cells(build(tmp_path, ".. log-table:: what lost"))
    at = found.index("Tried")
    assert found[at : at + 6] == ["Tried", "Found", "this", "0.9", "that", "1.0"]
    assert "other" not in found


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 0},
        {"measurements": [{**row("sustained", "v4", 1.0, 1.0), "sm_mhz": [1.0]}]},
        {"measurements": [row("bursts", "v4", 1.0, 1.0)]},
    ],
)
def test_a_record_of_another_form_is_refused(tmp_path: Path, change: Any) -> None:
    (tmp_path / "why.json").write_text(json.dumps(RECORD | change))
    with pytest.raises(ArgumentError, match=r"why|schema"):
        joules.load(tmp_path / "why.json")


# ---- the figures --------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "why.json").write_text(json.dumps(RECORD))
    return str(tmp_path / "why.json")


def test_energies_are_drawn_from_the_least_on_beside_that_of_products_alone(path: str) -> None:
    energy.launches("light", path)
    (ax,) = plt.gcf().axes
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([0.7 * 1.6, 0.7 * 2.0, 0.7 * 2.5])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["V7", "V4", "cuBLAS"]
    assert ax.lines[0].get_xdata()[0] == pytest.approx(0.7 * 0.8)
    plt.close("all")


def test_bytes_and_clock_belong_together_only_where_the_schedules_agree() -> None:
    three, four = {"num_stages": 3}, {"num_stages": 4}
    counted = {
        "v4": {"l2_bytes": 9e9, "schedule": three},
        "v7": {"l2_bytes": 8e9, "schedule": three},
        "cublas": {"l2_bytes": 7e9, "schedule": None},
    }
    loaded = joules.Loads(RECORD)
    assert {
        name: gigabytes
        for name, (_, gigabytes) in energy.bytes_of(loaded, {"launches": counted}).items()
    } == {"v4": 9.0, "cublas": 7.0}
    counted["v7"]["schedule"] = four
    assert "v7" in energy.bytes_of(loaded, {"launches": counted})


@pytest.mark.parametrize("draw", [energy.clock, energy.zeros])
def test_the_other_figures_are_drawn_in_both_themes(draw: Any, path: str) -> None:
    for name in ("light", "dark"):
        draw(name, path)
    plt.close("all")


def test_a_contender_is_named_as_readers_know_it() -> None:
    names = ["v7", "cublas", "cublaslt", "v7-zeros", "128x256", "appendix_fp16"]
    assert [loads.named(name) for name in names] == [
        *("V7", "cuBLAS", "cublasLt's best", "V7 on zeros", "128x256", "float16 sums"),
    ]
