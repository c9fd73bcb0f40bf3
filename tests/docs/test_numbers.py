# SPDX-License-Identifier: Apache-2.0
"""Numbers come from records, with their badges; without a record a page says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import fixture
import pytest
from ladder import found, numbers
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from tilus import records

ROOT = Path(__file__).parents[2]


@pytest.fixture
def v3() -> found.Found:
    """Return the made-up record as a page finds it."""
    return found.Found("v3", ROOT, "plots/data/v3.json", fixture.record())


@pytest.mark.parametrize(
    ("field", "picks", "text"),
    [
        ("latency_ms", ["m=8192", "burst"], "2.500\N{NO-BREAK SPACE}ms"),
        ("tflops", ["m=8192", "sustained"], "440\N{NO-BREAK SPACE}TFLOPS"),
        ("vs_cublas", ["n=904", "regime=burst"], "0.800×"),
        ("processes", ["n=904", "burst"], "median of three fresh processes"),
    ],
)
def test_a_number(v3: found.Found, field: str, picks: list[str], text: str) -> None:
    assert numbers.number(v3, field, picks) == text


@pytest.mark.parametrize(
    ("field", "picks", "complaint"),
    [
        ("speed", ["m=8192", "burst"], "no field 'speed'"),
        ("tflops", ["m=8192"], "2 problems fit m=8192"),
        ("tflops", ["m=77", "burst"], "0 problems fit"),
        ("tflops", ["colour=red"], "0 problems fit"),
        ("tflops", [], "6 problems fit no condition"),
    ],
)
def test_a_number_that_is_not_one(
    v3: found.Found, field: str, picks: list[str], complaint: str
) -> None:
    with pytest.raises(ExtensionError, match=complaint):
        numbers.number(v3, field, picks)


def build(folder: Path, text: str, with_record: bool) -> str:
    """Build one page in a project of its own; return its HTML."""
    pages = folder / "docs"
    pages.mkdir(exist_ok=True)
    page = pages / "index.rst"
    if not page.exists():
        page.write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    if with_record:
        records.write(fixture.record(), folder / "plots" / "data" / "v3.json")
    settings = {"extensions": ["ladder.numbers"], "record_folders": ["measured", "plots/data"]}
    (folder / "conf.py").write_text("".join(f"{k} = {v!r}\n" for k, v in settings.items()))
    app = Sphinx(pages, folder, folder / "out", folder / "trees", "html", status=None, warning=None)
    app.build()
    return (folder / "out" / "index.html").read_text(encoding="utf-8")


PAGE = "It reaches :record:`v3 tflops m=8192 burst`.\n\n.. record-table:: v3\n"


def test_a_page_without_the_record(tmp_path: Path) -> None:
    html = build(tmp_path, PAGE, with_record=False)
    assert '<span class="not-yet">not measured yet</span>' in html
    assert "there is no record plots/data/v3.json" in html
    assert "TFLOPS" not in html


def test_a_record_that_comes_later_is_seen(tmp_path: Path) -> None:
    build(tmp_path, PAGE, with_record=False)
    html = build(tmp_path, PAGE, with_record=True)
    assert '<span class="measured">440\N{NO-BREAK SPACE}TFLOPS</span>' in html
    assert "recorded on 1999-12-31, FIXTURE GPU" in html
    assert "num_stages 4" in html


def test_the_badge_says_when_the_kernel_has_changed(tmp_path: Path) -> None:
    """The tree of this test holds no kernel at all, so the record cannot be of it."""
    assert "the kernel changed since" in build(tmp_path, PAGE, with_record=True)


def test_a_fresh_record_has_no_such_badge(monkeypatch: pytest.MonkeyPatch, v3: found.Found) -> None:
    monkeypatch.setattr(found, "stale", lambda root, path, version: False)
    assert v3.badge().astext() == "recorded on 1999-12-31, FIXTURE GPU"


def test_one_process_is_no_median(v3: found.Found) -> None:
    rows = [row for row in v3.record.measurements if row["process"] == 0]
    alone = records.Record({**v3.record.data, "measurements": rows})
    one = found.Found("v3", ROOT, "plots/data/v3.json", alone)
    assert numbers.number(one, "processes", ["m=8192", "burst"]) == "one process"


@pytest.mark.parametrize("version", ["v3", "v4", "ladder"])
def test_a_version_is_found_in_the_record_of_the_ladder(tmp_path: Path, version: str) -> None:
    records.write(fixture.record(), tmp_path / "plots" / "data" / "ladder.json")
    env = SimpleNamespace(
        srcdir=str(tmp_path / "docs"),
        config=SimpleNamespace(record_folders=["measured", "plots/data"]),
        note_dependency=lambda path: None,
    )
    record = found.find(env, version)  # type: ignore[arg-type]
    assert (record is None) == (version == "v4")
    assert record is None or record.path == "plots/data/ladder.json"


def test_only_the_version_itself_makes_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(records, "load", lambda path: fixture.record())
    monkeypatch.setattr(records, "staleness", lambda *words: asked.append(words[2]) or ())
    for version in ("v3", "ladder"):
        assert not found.stale(ROOT, "plots/data/ladder.json", version)
    assert asked == ["v3", None]


def test_what_this_build_measured_says_so() -> None:
    now = found.Found("v3", ROOT, "docs/_build/measured/v3.json", fixture.record())
    assert now.badge().astext() == "measured now, FIXTURE GPU"


def test_a_wrong_number_ends_the_build_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=r"index\.rst:4: .*0 problems fit m=1"):
        build(tmp_path, ":record:`v3 tflops m=1 burst`", with_record=True)


def test_no_fixture_among_the_records() -> None:
    for path in (ROOT / "plots" / "data").glob("*.json"):
        assert "FIXTURE" not in path.read_text(), f"{path} is no measurement"


def both() -> records.Record:
    """Return the record with a V2 beside V3 that takes twice as long, and facts of V3."""
    data = fixture.record().data
    rows = [row for row in data["measurements"] if row["version"] == "v3"]
    twice = [
        row
        | {
            "version": "v2",
            "latency_ms": [2 * t for t in row["latency_ms"]],
            "vs_cublas": row["vs_cublas"] / 2,
        }
        for row in rows
    ]
    kernel = data["sources"]["kernels"]["v3"]
    tuning = {"schedules": 90, "compiled": 54, "right": 54, "seconds": 21.5}
    tuning["aside"] = {"too many registers": 30, "too much shared memory": 6}
    facts = {"threads": 160, "registers": 154, "shared_bytes": 98352, "blocks_per_sm": 2}
    facts |= {"compile_s": 0.314, "tuning": tuning}
    known = kernel | {"generated": [kernel["generated"][0] | {"facts": facts}]}
    sources = {**data["sources"], "kernels": {"v3": known}}
    everything = [*data["measurements"], *twice]
    return records.Record({**data, "sources": sources, "measurements": everything})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("vs_v2", "2.00×"),
        ("vs_v1", numbers.NOT_YET),
        ("compile_s", "0.31 s"),
        ("seconds", "22 s"),
        ("schedules", "90"),
        ("aside", "36"),
        ("registers", "154"),
    ],
)
def test_another_version_and_facts(field: str, text: str) -> None:
    v3 = found.Found("v3", ROOT, "plots/data/ladder.json", both())
    assert numbers.number(v3, field, ["m=8192", "burst"]) == text


def test_a_record_without_facts_has_none(v3: found.Found) -> None:
    assert numbers.number(v3, "aside", ["m=8192", "burst"]) == numbers.NOT_YET


def test_a_number_comes_from_the_first_record_that_has_it(v3: found.Found) -> None:
    rows = [row for row in v3.record.measurements if row["m"] == 8192]
    small = records.Record({**v3.record.data, "measurements": rows})
    now = found.Found("v3", ROOT, "docs/_build/measured/v3.json", small)
    assert numbers.having([now, v3], ["m=8192"]) == [now, v3]
    assert numbers.having([now, v3], ["m=4096"]) == [v3]
    assert numbers.having([now, v3], ["m=77"]) == [now, v3]


def test_a_column_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="has no name"):
        numbers.table(["", "Time"], [["V1", "2 ms"]])
