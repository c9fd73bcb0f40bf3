# SPDX-License-Identifier: Apache-2.0
"""The figure that steps through a block shows what the simulator recorded, and says it right."""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ladder import moments, scenes, stepper, words
from sphinx.application import Sphinx

import simulated
from tilus import timeline
from tilus.ir import Event

VERSIONS = ["v2", "v3", "v4", "v5", "v6", "v7"]
ARRIVALS = {"v3": 128, "v4": 128, "v5": 1, "v6": 1, "v7": 1}
"""Of one release."""
NEXT = {
    "empty": {"empty", "filling"},
    "filling": {"filling", "full", "read"},
    "full": {"full", "read"},
    "read": {"read", "spent", "empty", "filling"},
    "spent": {"spent", "empty", "filling"},
}
ROOT = Path(__file__).parents[2]


@cache
def block(version: str) -> moments.Run:
    """Return the run of a page."""
    return moments.Run(stepper.run(version))


@cache
def shown(version: str) -> list[dict[str, Any]]:
    """Return what the figure shows, step by step."""
    return [scenes.scene(block(version), step) for step in block(version).steps]


def plain(version: str, step: int) -> str:
    """Return the text of a step without its marks."""
    text = " ".join(shown(version)[step]["text"])
    return unescape(re.sub(r"</?code>", "", text))


persistent = pytest.mark.parametrize("version", ["v6", "v7"])
each = pytest.mark.parametrize("version", VERSIONS)


@each
def test_a_reader_can_go_through_it(version: str) -> None:
    times = [s["time"] for s in shown(version)]
    assert 20 <= len(times) <= 110 and times == sorted(times)
    assert times[-1] == round(block(version).end)  # a store takes no whole number of cycles


@each
def test_the_ring_begins_anew_twice(version: str) -> None:
    held = [s["stages"][0][1] for s in shown(version)]
    assert {0, stepper.STAGES, 2 * stepper.STAGES} <= set(held)


@each
def test_nothing_changes_between_two_steps(version: str) -> None:
    run = block(version)
    changes = {s.time for s in run.states} | {s.start for s in timeline.stages(run.events)}
    for change in changes:
        assert any(step.begin <= change <= step.time for step in run.steps), change
    assert all(a.time <= b.begin for a, b in pairwise(run.steps))
    assert all(step.begin <= a.start <= a.end <= step.time for step in run.steps for a in step.acts)


@each
def test_barriers_are_what_a_replay_of_the_events_makes_of_them(version: str) -> None:
    """Count arrivals and bytes anew, from what roles and copies did, and nothing else."""
    run = block(version)
    for step, scene in zip(run.steps, shown(version), strict=True):
        made = [counted(run, label, step.time, ARRIVALS.get(version, 0)) for label in run.labels]
        assert scene["barriers"] == made


def counted(run: moments.Run, label: str, time: float, share: int) -> tuple[int, int, int]:
    """Return phase, pending arrivals and pending bytes of a barrier at ``time``."""
    count = next(s.arrivals for s in run.states if s.label == label)
    phase, pending, nbytes = 0, count, 0
    mine = [e for e in run.events if e.barrier == label and e.kind != "wait"]
    for at, event in sorted(
        ((e.end if e.writes else e.start, e) for e in mine), key=lambda x: x[0]
    ):
        if at > time:
            break
        pending -= 0 if event.writes else share if event.what == "arrive" else 1
        nbytes += -event.amount if event.writes else announced(run, event)
        if pending == nbytes == 0:
            phase, pending = phase + 1, count
    return phase, pending, int(nbytes)


def announced(run: moments.Run, event: Event) -> float:
    """Return the bytes of the copies that an arrival announces."""
    copies = sum(e.amount for e in run.events if e.kind == "copy" and e.tile == event.tile)
    return copies if event.what == moments.EXPECT else 0


@each
def test_it_begins_with_an_empty_ring_and_goes_through_every_state(version: str) -> None:
    states = [[state for state, _, _ in scene["stages"]] for scene in shown(version)]
    assert set(states[0]) == {"empty"} and {x for row in states for x in row} == set(NEXT)
    moods = {
        lane: mood
        for lane, (mood, *_) in zip(block(version).roles, shown(version)[0]["actors"], strict=False)
    }
    assert version == "v2" or moods["warps 0-3"] == "wait"


def test_a_stage_is_spent_longer_in_v5_as_its_page_says() -> None:
    assert spent("v5") > 2 * spent("v4") > 0


def spent(version: str) -> float:
    """Return the longest time from the last read of a tile until its stage is given back."""
    run = block(version)
    tiles = range(stepper.TILES)
    read = {t: max(e.end for e in run.events if e.tile == t and e.reads) for t in tiles}
    return max(run.given_back(t % run.depth, t) - read[t] for t in tiles)


@persistent
def test_a_staging_buffer_is_written_when_it_has_been_read(version: str) -> None:
    """By the threads' and the engine's events: each buffer goes round in its order."""
    run, slices = block(version), simulated.SCHEDULES[version]["block_m"] // 128
    assert run.outputs == simulated.OUTPUTS[version]
    for lane in run.computers:
        mine = [x for x in run.leaving if x.lane == lane]
        assert [x.output for x in mine] == sorted([*range(run.outputs)] * slices)
        for x in mine:
            assert x.wrote.end <= (x.read.issued or 0) <= x.read.end <= x.arrived.end
        assert all(a.read.end <= b.wrote.start for a, b in pairwise(mine))


@persistent
def test_the_table_of_stores_counts_what_was_asked_for_and_is_not_over(version: str) -> None:
    run = block(version)
    lanes = scenes.stagers(run)
    stores = [e for e in run.events if e.lane == "bulk stores"]
    for step, scene in zip(run.steps, shown(version), strict=True):
        for lane, (state, output, *counts) in zip(lanes, scene["staging"], strict=True):
            mine = [e for e in stores if e.issuer == lane and (e.issued or 0) <= step.time < e.end]
            reads = [e for e in mine if e.reads]
            assert counts == [len(reads), len(mine) - len(reads)]
            assert (state == "read") == bool(reads) and (state == "free") == (output is None)
    states = {state for scene in shown(version) for state, *_ in scene["staging"]}
    assert states >= {"free", "written", "read"}


@persistent
def test_the_next_tile_of_c_and_the_results_are_told(version: str) -> None:
    run, texts = block(version), [plain(version, i) for i in range(len(shown(version)))]
    whole = " ".join(texts)
    assert whole.count("it is the first of the next tile of C") == run.outputs - 1
    assert whole.count("have arrived in C. ") >= len(run.leaving)
    assert whole.count("One thread asks for the store.") >= len(run.leaving) / 2
    loaded, leaves = (
        next(i for i, text in enumerate(texts) if words in text)
        for words in ("the first of the next tile of C", "to stage their results")
    )
    assert loaded < leaves  # the producer is ahead


@each
def test_stages_go_through_their_states_in_order(version: str) -> None:
    for before, after in pairwise(shown(version)):
        for (old, tile, _), (new, after_tile, share) in zip(
            before["stages"], after["stages"], strict=True
        ):
            assert new in NEXT[old]
            assert 0 <= share <= 1 and (share == 1) == (new in ("full", "read", "spent"))
            assert old == new == "empty" or tile is None or after_tile is None or tile <= after_tile


@each
def test_each_phase_that_ends_is_told_with_who_waited(version: str) -> None:
    run = block(version)
    for i, (before, after) in enumerate(pairwise(shown(version)), 1):
        for label, old, new in zip(run.labels, before["barriers"], after["barriers"], strict=True):
            told = f"{run.name(label)} has all that phase {old[0]} needs" in plain(version, i)
            assert told == (new[0] > old[0])
    effects = " ".join(plain(version, i) for i in range(len(run.steps)))
    assert "goes to phase 1. Warps 0-3" in effects and "which wait for it, can go on." in effects


@each
def test_who_waits_is_shown_as_waiting_until_it_is_over(version: str) -> None:
    run = block(version)
    for step, scene in zip(run.steps, shown(version), strict=True):
        for lane, (mood, text, line, _) in zip(run.roles, scene["actors"], strict=False):
            event = run.current(lane, step.time)
            if event is None or event.kind != "wait" or event.end <= step.time:
                continue
            over = run.over(event) <= step.time
            assert mood == ("ready" if over else "wait")
            assert line == event.location.line
            if event.barrier and not over:
                state = timeline.at(run.states, step.time)[event.barrier]
                assert words.lacks(state) in text


@each
def test_every_line_stands_in_the_source(version: str) -> None:
    text = (simulated.KERNELS / f"matmul_{version}.py").read_text(encoding="utf-8").splitlines()
    page = stepper.page(version, stepper.run(version))
    lines = {line.number: unescape(re.sub(r"<[^>]*>", "", line.html)) for line in page["lines"]}
    for number, line in lines.items():
        assert number is None or line.strip() == text[number - 1].strip()
    for scene in page["steps"]:
        for mood, _, at, ran in scene["actors"]:
            assert {*ran, *([at] if at else [])} <= set(lines)
            assert mood != "wait" or at is None or re.search(r"\bwait|sync", lines[at])


@each
def test_sentences_are_whole(version: str) -> None:
    for i in range(len(block(version).steps)):
        text = plain(version, i)
        assert text and text.endswith(".") and not re.search(r"[{}|`<]|None|\bno copies", text)
        assert re.fullmatch(r"(`?[a-zA-Z].*?\. ?)+", text)
    assert plain(version, len(shown(version)) - 1).endswith("The block ends.")


@each
def test_without_javascript_a_strip_tells_the_story(version: str) -> None:
    html = stepper.html(version, stepper.run(version))
    (strip,) = re.findall(r'<ol class="strip">.*?</ol>', html, re.DOTALL)
    found = moments.moments(block(version))
    assert (
        len(found)
        == 4 + 2 * simulated.OUTPUTS[version]
        == strip.count("<li>")
        == strip.count('<svg class="ring"')
    )
    text = unescape(re.sub(r"<[^>]*>", "", strip))
    for step in found:
        assert plain(version, step).split(".")[0] in text
        assert f"cycle {shown(version)[step]['time']}" in text
    assert re.search(r'<div class="player"[^>]* hidden>', html)
    assert "<script" in html and "<script src" not in html


@each
def test_the_page_carries_the_steps(version: str) -> None:
    html = stepper.html(version, stepper.run(version))
    (data,) = re.findall(r'<script type="application/json" class="data">(.*?)</script>', html)
    assert json.loads(data)["steps"] == json.loads(json.dumps(shown(version)))
    assert len(html.encode()) < 160_000


def test_only_a_page_with_the_figure_loads_its_script(tmp_path: Path) -> None:
    settings = f"""
extensions = ["ladder.gallery", "ladder.stepper"]
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
"""
    body = "Other\n=====\n\n.. stepper:: v3\n   :stages: 2\n   :tiles: 5\n\n   Told.\n"
    pages = {"index": "Page\n====\n\n.. toctree::\n\n   other\n", "other": body}
    (tmp_path / "conf.py").write_text(settings, encoding="utf-8")
    for name, text in pages.items():
        (tmp_path / f"{name}.rst").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    Sphinx(tmp_path, tmp_path, out, tmp_path / "trees", "html", {}, None, None).build()
    index, other = ((out / f"{n}.html").read_text(encoding="utf-8") for n in pages)
    for file in ("stepper.js", "stepper.css"):
        assert (index.count(file), other.count(file)) == (0, 1)
    assert other.count('<g class="stage ') == 2 * (6 + 1) and "Told." in other
