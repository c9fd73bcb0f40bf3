# SPDX-License-Identifier: Apache-2.0
"""Answers to exercises that no directive of a page can hold: those of a pencil, and a silence."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import mutants
import pytest
from ladder import diagnosis
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "examples" / "hopper_matmul"
PAGES = ROOT / "docs" / "tutorials" / "matmul-hopper"
WIDTHS = range(128, 209, 8)


def columns(size: int, blocks: int) -> dict[int, tuple[int, int, int]]:
    """Return tiles, rounds and rounds times width, for each width of a tile of 256 rows."""
    tiles = {width: -(-size // 256) * -(-size // width) for width in WIDTHS}
    rounds = {width: -(-count // blocks) for width, count in tiles.items()}
    return {width: (tiles[width], rounds[width], rounds[width] * width) for width in WIDTHS}


def answers(version: str) -> str:
    """Return the answers of a page, in one line."""
    text = (PAGES / f"{version}.rst").read_text(encoding="utf-8")
    return " ".join(text.partition(".. dropdown:: Answers")[2].split())


def test_the_widths_of_v7_are_the_best() -> None:
    text, first, second = answers("v7"), columns(4096, 132), columns(8192, 114)
    assert min(first, key=lambda width: first[width][2]) == 128
    assert first[128] == (512, 4, 512) and "128: there are 512 tiles" in text
    assert first[176] == (384, 3, 528) and "384 tiles, three rounds and 528 columns" in text
    assert first[200] == (336, 3, 600) and "336 tiles, three rounds and 600 columns" in text
    assert second[200] == (1312, 12, 2400) and "so twelve rounds and 2400 columns" in text
    assert second[144] == (1824, 16, 2304) and "144 has 1824 tiles" in text
    assert second[128][1:] == (18, 2304) == (18, min(found[2] for found in second.values()))


def test_v2_without_its_sync_goes_unnoticed(tmp_path: Path) -> None:
    assert "4. The simulator finds nothing." in answers("v2")
    source = KERNELS / "matmul_v2.py"
    lines = source.read_text(encoding="utf-8").splitlines()
    (line,) = [line.strip() for line in lines if line.strip().startswith("self.sync()")]
    changed = tmp_path / source.name
    changed.write_text("\n".join(diagnosis.patched(lines, [f"- {line}"])) + "\n", encoding="utf-8")
    case = next(k.simulator for k in mutants.kernels().values() if k.path == source)
    assert mutants.judge(changed, case).verdict == ""


def test_for_some_k_v6_may_begin_each_tile_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "for K a multiple of 384. K = 512 is not." in answers("v6")
    begin = "pipeline.{0}_stage = 0", "pipeline.{0}_phase = self.mbarrier.{0}_initial_phase"
    offsets, previous = "offset_m: int32 = tile_m * self.block_m", "previous: int32 = 0"
    diff = [f"- {offsets}", f"+ {offsets}", *(f"+ {line.format('producer')}" for line in begin), ""]
    diff += [f"- {previous}", f"+ {previous}", *(f"+ {line.format('consumer')}" for line in begin)]
    lines = (KERNELS / "matmul_v6.py").read_text(encoding="utf-8").splitlines()
    changed = tmp_path / "matmul_v6.py"
    changed.write_text("\n".join(diagnosis.patched(lines, diff)) + "\n", encoding="utf-8")
    for k, right in ((384, True), (576, False), (768, True)):
        monkeypatch.setattr(diagnosis, "K", k)
        monkeypatch.setattr(diagnosis, "SEEDS", 2)
        with pytest.raises(ExtensionError) if right else nullcontext():
            assert diagnosis.diagnose(changed).startswith("SimulationError: race")


@pytest.mark.parametrize("page", sorted(PAGES.glob("v?.rst")), ids=lambda path: path.stem)
def test_an_answer_is_held_by_the_build_or_here(page: Path) -> None:
    text = page.read_text(encoding="utf-8").partition(".. dropdown:: Answers")[2]
    parts = re.split(r"^   \d\. ", text.partition("\nWhat is next\n")[0], flags=re.MULTILINE)[1:]
    held = [bool(re.search(r"\.\. (diagnosis|solution|sweep)::", part)) for part in parts]
    here = {"v2": [3], "v7": [0, 1]}.get(page.stem, [])
    assert [i for i, found in enumerate(held) if not found] == here
