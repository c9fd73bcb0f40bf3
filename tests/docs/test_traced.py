# SPDX-License-Identifier: Apache-2.0
"""Simulated and measured cycles: computed alike from events, by hand here; and how pages say so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from ladder import cycles, found, traced
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import beside
import simulated
from tilus import traces
from tilus.errors import Location
from tilus.ir import Event
from tilus.simulator import Costs, Result

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "plots" / "data" / "trace.json"
PLACE = Location("kernel.py", 1)


def event(lane: str, kind: str, start: float, end: float, **more: Any) -> Event:
    return Event(lane, kind, start, end, more.pop("what", kind), PLACE, (0, 0, 0), **more)


def barrier(tile: int) -> dict[str, Any]:
    """Return what an event at the full barrier of a tile has: two stages."""
    return {"barrier": f"full[{tile % 2}]", "stage": tile % 2, "phase": tile // 2, "tile": tile}


def made(tiles: int = 6) -> Result:
    """Return a block whose role, every 100 cycles, waits 10, asks for a product, and waits 50."""
    events = [event("warp 4", "issue", 5, 8)]
    for tile in range(tiles):
        at = 100.0 * tile
        copy = {"issued": at, "issuer": "warp 4", "amount": 64, **barrier(tile)}
        events += [
            event("TMA engine", "copy", at + 3, at + 13, **copy),
            event("TMA engine", "copy", at + 13, at + 23, **copy | {"issued": at + 4}),
            event("warps 0-3", "wait", at + 20, at + 30, **barrier(tile)),
            event("warps 0-3", "issue", at + 30, at + 37),
            event(
                "tensor cores", "compute", at + 31, at + 70, tile=tile, amount=4096,
                issued=at + 30, issuer="warps 0-3",
            ),
            event("warps 0-3", "wait", at + 37, at + 87),
        ]  # fmt: skip
    return Result({(0, 0, 0): 100.0 * tiles + 40}, tuple(events))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure a step by four tiles."""
    monkeypatch.setattr(beside, "WINDOW", 4)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("before", 0),
        ("first_load", 30),
        ("load", 30),
        ("product", 57),
        ("step", 100),
        ("after", 53),
        ("block", 640),
        ("busy", 6 / 640),
        ("waits:warps0-3:full", 10),
        ("waits:warps0-3:products", 50),
    ],
)
def test_quantities_of_a_block(name: str, value: float) -> None:
    assert cycles.quantity(made(), name) == pytest.approx(value)


@pytest.mark.usefixtures("soon")
def test_what_a_look_costs_at_most() -> None:
    assert cycles.probe(made()) == 3
    assert cycles.looks(made()) == 3
    assert cycles.net(made()) == 100 - 3 * 3


def test_a_product_ends_for_its_own_role_and_at_no_mbarrier() -> None:
    late = event("warps 4-7", "wait", 40, 71)
    events = [e for e in made(1).events if e.kind != "wait" or e.barrier]
    (alone,) = cycles.products(Result({(0, 0, 0): 1}, (*events, late)))
    assert alone == (30, 70)  # nobody has waited: when it was over
    assert cycles.products(made(1)) == [(30, 87)]


@pytest.mark.parametrize("version", ["v6", "v7"])
def test_a_turn_goes_from_the_wait_for_a_tiles_last_product_to_the_next_product(
    version: str,
) -> None:
    """Known here by the line of the kernel at which the wait stands."""
    result = simulated.run(version)
    text = (simulated.KERNELS / f"matmul_{version}.py").read_text(encoding="utf-8").splitlines()
    (line,) = (i for i, x in enumerate(text, 1) if x.strip() == "self.wgmma.wait_group(0)")
    expected = []
    for lane in ("warps 0-3", "warps 4-7"):
        mine = [e for e in result.events if e.lane == lane]
        ends = [e.end for e in mine if e.location.line == line][:-1]
        products = [e.start for e in mine if e.what == "mma"]
        expected += [min(at for at in products if at > end) - end for end in ends]
    assert len(expected) == 2 and sorted(cycles.turns(result)) == sorted(expected)
    assert cycles.turns(simulated.run("v5")) == [] == cycles.gaps(simulated.run("v5"))
    each = simulated.TILES
    begun, over = (
        [e for e in result.events if e.kind == "compute" and e.tile == tile]
        for tile in (each, each - 1)
    )
    later = [
        e for e in result.events if e.what == "wait_group" and e.end >= max(o.end for o in over)
    ]
    seen = min(e.end for e in later if e.lane == max(over, key=lambda o: o.end).issuer)
    issued = min(e.issued or 0.0 for e in begun)
    assert cycles.gaps(result) == [max(0.0, issued - seen)]
    waited = {what for _, what in cycles.waits(beside.pair(str(RECORD), version)[0])}
    assert waited == {"full", "empty", "products", "stores", "other threads"}


# ---- the committed record -----------------------------------------------------------------------


def recorded(version: str, path: Path = RECORD) -> found.Traced:
    return found.Traced(version, ROOT, str(path), traces.load(path))


def test_numbers_are_those_of_the_record() -> None:
    entry = json.loads(RECORD.read_text(encoding="utf-8"))["traces"]
    small, large = (next(t for t in entry if t["version"] == "v3" and t["m"] == m) for m in SIZES)
    record = recorded("v3")
    assert traced.number(record, "block", "measured") == f"{small['cycles']:,.0f}"
    assert traced.number(record, "block", "measured", "m=4096") == f"{large['cycles']:,.0f}"
    assert traced.number(record, "registers") == str(small["registers"])
    assert traced.number(record, "ms") == f"{small['ms']:.3f}\N{NO-BREAK SPACE}ms"
    longer = (large["traced_ms"] - small["traced_ms"]) / (large["ms"] - small["ms"])
    assert traced.number(record, "slowed") == f"{longer:.2f}"
    model, gpu, _ = beside.pair(str(RECORD), "v3")
    assert traced.number(record, "step", "ratio") == (
        f"{cycles.quantity(gpu, 'step') / cycles.quantity(model, 'step'):.2f}"
    )


SIZES = (1024, 4096)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["speed", "measured"], "no quantity 'speed'; there are before"),
        (["step"], "no side '' of step"),
        (["step", "guessed"], "no side 'guessed' of step"),
        (["step", "measured", "k=4096"], "2 sizes fit k=4096"),
        (["step", "measured", "m=7"], "0 sizes fit m=7"),
    ],
)
def test_a_number_that_is_not_there_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(ExtensionError, match=re.escape(complaint)):
        traced.number(recorded("v1"), *words)


def test_stores_cost_what_the_epilogues_of_the_record_took() -> None:
    rates = []
    for version in ("v0", "v1", "v2", "v3"):
        _, gpu, _ = beside.pair(str(RECORD), version)
        (store,) = [e for e in gpu.events if e.what == "store_global"]
        rates.append(store.amount / (store.end - store.start))
    assert Costs().stored_bytes == pytest.approx(median(rates), rel=0.03)
    assert max(rates) < 1.1 * min(rates)


def test_the_note_says_what_looking_costs() -> None:
    text = traced.note(recorded("v2"))
    assert text.startswith("Block (0, 4, 0) of 1024×1024×4096: 64 blocks on 132 multiprocessors.")
    for field in ("probe", "looks", "net", "ms", "traced_ms", "slowed"):
        assert traced.number(recorded("v2"), field) in text


def test_one_size_says_nothing_about_how_much_instruments_slow() -> None:
    one = found.Traced("v3", ROOT, str(RECORD), traces.Traces(only("v3", m=1024)))
    assert traced.slowed(one) == "–"
    assert "takes longer than this size" not in traced.note(one)


# ---- pages --------------------------------------------------------------------------------------


def build(root: Path, text: str, data: dict[str, Any] | None) -> str:
    """Build one page in a project of its own; return its text with | for tags."""
    (root / "docs").mkdir()
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    if data:
        traces.write(data, root / "data" / "trace.json")
    kernels = root / "examples" / "hopper_matmul"
    kernels.parent.mkdir()
    kernels.symlink_to(ROOT / "examples" / "hopper_matmul")
    extensions = ["ladder.gallery", "ladder.numbers", "ladder.traced"]
    conf = f"extensions = {extensions!r}\nrecord_folders = ['data']\n"
    (root / "conf.py").write_text(conf, encoding="utf-8")
    folders = root / "docs", root, root / "out", root / "trees"
    Sphinx(*folders, "html", status=None, warning=None).build()
    html = (root / "out" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "|", html))


def only(*versions: str, m: int | None = None) -> dict[str, Any]:
    """Return the part of the record about some versions, at one size if ``m`` is given."""
    data = json.loads(RECORD.read_text(encoding="utf-8"))
    mine = [t for t in data["traces"] if t["version"] in versions and m in (None, t["m"])]
    return {**data, "traces": mine}


def test_a_versions_table_has_both_sides_their_ratio_and_the_badge(tmp_path: Path) -> None:
    page = ".. trace-table:: v3\n\nIt takes :traced:`v3 step measured` cycles."
    text = build(tmp_path, page, only("v3"))
    cells = [cell.strip() for cell in text.split("|") if cell.strip()]
    model, gpu, _ = beside.pair(str(RECORD), "v3")
    for row in traced.rows(model, gpu):
        at = cells.index(row[0])
        assert cells[at : at + 4] == row
    waiting = "in which warp 4 waits for producer_barriers"
    assert cells.index(waiting) == cells.index("a step, from one tile of K to the next") + 4
    assert any(cell.startswith("recorded on 2026-") for cell in cells)
    assert "the kernel changed since" not in cells
    step = f"{cycles.quantity(gpu, 'step'):,.0f}"
    assert f"It takes |{step}| cycles." in text


def test_the_table_of_all_has_a_row_for_each_that_was_recorded(tmp_path: Path) -> None:
    data = only("v1", "v2")
    data["sources"]["v2"]["sha256"] = "another"
    text = build(tmp_path, ".. trace-table::", data)
    cells = [cell.strip() for cell in text.split("|") if cell.strip()]
    one, two = cells.index("V1"), cells.index("V2")
    assert two == one + len(traced.OVERVIEW) + 2 and "V3" not in cells
    model, gpu, _ = beside.pair(str(RECORD), "v1")
    both = (f"{cycles.quantity(r, 'product'):,.0f}" for r in (model, gpu))
    assert " → ".join(both) in cells[one:two]
    assert "the kernel changed since" in cells  # of one of them


def test_without_a_record_the_page_says_so(tmp_path: Path) -> None:
    text = build(tmp_path, ".. trace-table:: v3\n\n:traced:`v3 probe`", None)
    assert "there is no record plots/data/trace.json" in text and "not measured yet" in text


def test_a_wrong_word_ends_the_build_by_place(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=r"index\.rst:4: no quantity 'speed'"):
        build(tmp_path, ":traced:`v1 speed measured`", only("v1"))
