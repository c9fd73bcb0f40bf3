# SPDX-License-Identifier: Apache-2.0
"""Excerpts are what their markers say, and a marker that is not exact ends the build by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ladder.excerpt import MarkerError, cut
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PRODUCER = "with self.thread_group(thread_begin=128, num_threads=32):"
CONSUMER = "with self.thread_group(thread_begin=0, num_threads=128):"
DRAIN = "for _ in self.range(min(self.num_stages, cdiv(k_size, self.block_k))):"
NEXT = "stage = (stage + 1) % self.num_stages"
STORE = "self.store_global(gc, casted_acc, offsets=[offset_m, offset_n])"
PAIRS = [
    ('@tilus.autotune("num_stages",', STORE),
    (PRODUCER, CONSUMER),
    (DRAIN, NEXT),
    (CONSUMER, STORE),
]


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_markers_stand_in_the_kernel(kernel: list[str], start: str, end: str) -> None:
    first, last = cut(kernel, start, end)
    assert kernel[first - 1].strip().startswith(start)
    assert kernel[last - 1].strip().startswith(end)


def test_the_drain_is_the_drain(kernel: list[str]) -> None:
    first, last = cut(kernel, DRAIN, NEXT)
    body = "\n".join(kernel[first - 1 : last])
    assert last - first == 3
    assert "self.mbarrier.wait(producer_barriers[stage]" in body


def test_end_before_leaves_the_marker_out(kernel: list[str]) -> None:
    inclusive, exclusive = (
        cut(kernel, PRODUCER, CONSUMER),
        cut(kernel, PRODUCER, CONSUMER, inclusive=False),
    )
    assert exclusive == (inclusive[0], inclusive[1] - 1)


@pytest.mark.parametrize(("start", "end"), PAIRS)
@pytest.mark.parametrize("role", ["start", "end"])
def test_a_missing_marker_is_named(kernel: list[str], start: str, end: str, role: str) -> None:
    gone = start if role == "start" else end
    without = [line for line in kernel if not line.strip().startswith(gone)]
    with pytest.raises(MarkerError, match=f"{re.escape(repr(gone))} is missing"):
        cut(without, start, end)


@pytest.mark.parametrize(("start", "end"), PAIRS)
@pytest.mark.parametrize("role", ["start", "end"])
def test_a_doubled_marker_is_named(kernel: list[str], start: str, end: str, role: str) -> None:
    twice = start if role == "start" else end
    first, last = cut(kernel, start, end)
    at = first - 1 if role == "start" else last - 1
    doubled = [*kernel[:at], kernel[at], *kernel[at:]]
    with pytest.raises(
        MarkerError, match=f"{re.escape(repr(twice))} is doubled: lines {at + 1}, {at + 2}"
    ):
        cut(doubled, start, end)


def test_the_end_is_looked_for_in_the_role_of_the_start(kernel: list[str]) -> None:
    """The producer holds the line twice, so it is no end for it; the consumer holds it once."""
    with pytest.raises(MarkerError, match="is doubled"):
        cut(kernel, PRODUCER, NEXT)
    assert cut(kernel, CONSUMER, NEXT)


def test_reversed_markers_are_named(kernel: list[str]) -> None:
    with pytest.raises(MarkerError, match="is reversed"):
        cut(kernel, CONSUMER, PRODUCER)


def build(folder: Path, marker: str) -> str:
    """Build one page with one excerpt of V3; return its HTML."""
    source = ROOT / "examples" / "hopper_matmul" / "matmul_v3.py"
    (folder / "kernel.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    text = f"Page\n====\n\n.. excerpt:: kernel.py\n   :start-at: {marker}\n   :end-at: {NEXT}\n"
    (folder / "index.rst").write_text(text, encoding="utf-8")
    settings = {"extensions": ["ladder.excerpt"]}
    Sphinx(
        folder, None, folder / "out", folder / "trees", "html", settings, status=None, warning=None
    ).build()
    return (folder / "out" / "index.html").read_text(encoding="utf-8")


def test_a_page_shows_the_excerpt_dedented_and_numbered(tmp_path: Path, kernel: list[str]) -> None:
    html = re.sub(r"<[^>]+>", "", build(tmp_path, DRAIN))
    number = next(i for i, line in enumerate(kernel, 1) if line.strip() == DRAIN)
    assert f"{number}{DRAIN}" in html.replace(" for _", "for _")
    assert "thread_begin=0" not in html


def test_a_bad_marker_ends_the_build_also_without_warnings_as_errors(tmp_path: Path) -> None:
    with pytest.raises(MarkerError, match=r"index.*kernel\.py: marker 'for nothing' is missing"):
        build(tmp_path, "for nothing")
