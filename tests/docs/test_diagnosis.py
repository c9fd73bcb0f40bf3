# SPDX-License-Identifier: Apache-2.0
"""A broken kernel gets the diagnosis that the page prints; a sound one ends the build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ladder.diagnosis import compare, diagnose, patched, run_program
from sphinx.errors import ExtensionError

COUNT = [
    "- producer_barriers = self.mbarrier.alloc([128] * self.num_stages)",
    "+ producer_barriers = self.mbarrier.alloc([129] * self.num_stages)",
]
EARLY = [
    "- self.wgmma.wait_group(0)",
    "- self.mbarrier.arrive(producer_barriers[stage])",
    "+ self.mbarrier.arrive(producer_barriers[stage])",
    "+ self.wgmma.wait_group(0)",
]


KERNELS = Path(__file__).parents[2] / "examples" / "hopper_matmul"
SYNC = "self.sync()  # all warps have read the tiles: they may be overwritten"
DOT = "self.dot(a, b, acc, out=acc)"


def broken(folder: Path, kernel: list[str], diff: list[str], name: str = "matmul_v3.py") -> Path:
    """Write the kernel that ``diff`` makes."""
    path = folder / name
    path.write_text("\n".join(patched(kernel, diff)) + "\n", encoding="utf-8")
    return path


def test_a_diff_keeps_indentation_and_all_other_lines(kernel: list[str]) -> None:
    made = patched(kernel, EARLY)
    moved = [i for i in range(len(kernel)) if kernel[i] != made[i]]
    assert len(made) == len(kernel)
    assert [kernel[i] for i in moved] == [made[i] for i in reversed(moved)]


def test_hunks_change_their_own_places_and_lines_keep_their_depth() -> None:
    lines = ["if a:", "    b", "c", "d"]
    diff = ["- b", "+ while b:", "+     e", "", "- c", "- d", "+ f"]
    assert patched(lines, diff) == ["if a:", "    while b:", "        e", "f"]
    assert lines == ["if a:", "    b", "c", "d"]


@pytest.mark.parametrize("line", ["self.wgmma.launch()", "phases[stage] ^= 1"])
def test_lines_that_do_not_stand_there_once_are_refused(kernel: list[str], line: str) -> None:
    with pytest.raises(ExtensionError, match=r"stand (0|3) times"):
        patched(kernel, [f"- {line}", "+ pass"])


def test_a_deadlock_is_reported_by_role_and_place(tmp_path: Path, kernel: list[str]) -> None:
    report = diagnose(broken(tmp_path, kernel, COUNT))
    waits = [i for i, line in enumerate(kernel, 1) if "wait(producer_barriers[stage]" in line]
    assert report.startswith("SimulationError: deadlock")
    assert f"matmul_v3.py:{waits[0]}: warp 4: waits for producer_barriers[0]" in report
    assert "lacks 1 of 129 arrivals" in report
    assert str(tmp_path) not in report


def test_a_race_is_reported_with_both_accesses(tmp_path: Path, kernel: list[str]) -> None:
    report = diagnose(broken(tmp_path, kernel, EARLY))
    assert report.startswith("SimulationError: race: matmul_v3.py:")
    assert "the copy at matmul_v3.py" in report and "the product at matmul_v3.py" in report


def test_a_kernel_that_is_not_broken_ends_the_build(tmp_path: Path, kernel: list[str]) -> None:
    same = [COUNT[0], COUNT[0].replace("-", "+", 1)]
    with pytest.raises(ExtensionError, match="goes unnoticed"):
        diagnose(broken(tmp_path, kernel, same))


def test_a_program_shows_what_it_says_as_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import sys\nassert sys.argv[1:] == ['--device', 'sim']\nsys.exit(__file__)\n")
    assert run_program(path) == "program.py"


def test_a_program_that_does_not_fail_ends_the_build(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("")
    with pytest.raises(ExtensionError, match="goes unnoticed"):
        run_program(path)


def solved(folder: Path, version: str, diff: list[str]) -> tuple[Path, Path]:
    """Return the file of a version, and the one that ``diff`` makes of it."""
    source = KERNELS / f"matmul_{version}.py"
    lines = source.read_text(encoding="utf-8").splitlines()
    return source, broken(folder, lines, diff, source.name)


def test_a_solution_tells_of_cycles_and_of_the_compiler_for_both_schedules(tmp_path: Path) -> None:
    both = solved(tmp_path, "v0", [f"- {DOT}", f"- {SYNC}", "+ self.sync()", f"+ {DOT}"])
    first, *told = compare(*both, "warps=8").splitlines()
    assert first.startswith("right, proved: no order of moves has a verdict")
    assert re.fullmatch(r"(\d+) simulated cycles for a block and K = 512, and \1 before", told[0])
    assert told[1] == told[4] == "built for a GPU without a note by ptxas"
    assert told[2] == "with warps=8:"


def test_a_solution_that_is_not_built_says_why(tmp_path: Path) -> None:
    loop, fence = "for offset_k in self.range(0, k_size, self.block_k):", "self.wgmma.fence()"
    product = "self.wgmma.mma(sa, sb.transpose(), acc)"
    diff = [
        f"- {loop}",
        f"+ {fence}",
        f"+ {loop}",
        "",
        f"- {fence}",
        f"- {product}",
        f"+ {product}",
    ]
    told = compare(*solved(tmp_path, "v1", diff), "block_n=64").splitlines()
    assert told[1] != told[4]
    for line in told[2], told[5]:
        assert re.match(r"not built for a GPU: .*ptxas says 'injected'", line)


def test_a_solution_that_is_wrong_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match="the solution is none: race: SimulationError"):
        compare(*solved(tmp_path, "v0", [f"- {SYNC}"]))
