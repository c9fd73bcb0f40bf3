# SPDX-License-Identifier: Apache-2.0
"""The diff of a step is difflib's, a patch that works, and folded; a missing file is named."""

from __future__ import annotations

import difflib
import html
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from ladder import steps
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "hopper_matmul"
STEPS = list(pairwise(f"v{i}" for i in range(8)))


def file(version: str) -> Path:
    """Return the file of a version."""
    return EXAMPLES / f"matmul_{version}.py"


def changed(lines: list[str]) -> list[str]:
    """Return the lines that a diff adds or takes away, without the two that name the files."""
    return [line for line in lines if re.match(r"[-+](?!-- |\+\+ )", line)]


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_it_is_difflibs_but_for_title_and_last_line(old: str, new: str) -> None:
    texts = [file(v).read_text(encoding="utf-8").splitlines() for v in (old, new)]
    whole = changed(list(difflib.unified_diff(*texts, lineterm="")))
    shown = changed(steps.diff(file(old), file(new)))
    left = [line for line in whole if line not in shown]
    assert [line for line in whole if line in shown] == shown
    assert all(
        line[1:].startswith((old.upper(), new.upper(), "====", "    main(")) for line in left
    )
    assert len(left) in (4, 6)


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_it_is_a_patch(tmp_path: Path, old: str, new: str) -> None:
    shutil.copy(file(old), tmp_path)
    patch = "\n".join(steps.diff(file(old), file(new))) + "\n"
    command = ["git", "apply", "-p0", "-"]
    patch = patch.replace(f"+++ {file(new).name}", f"+++ {file(old).name}", 1)
    subprocess.run(command, cwd=tmp_path, input=patch, text=True, check=True)
    made = (tmp_path / file(old).name).read_text(encoding="utf-8").splitlines()
    wanted = file(new).read_text(encoding="utf-8").splitlines()
    assert made[steps.body(made)] == wanted[steps.body(wanted)]


def test_a_program_without_a_title_is_refused() -> None:
    with pytest.raises(ExtensionError, match="begins with a docstring"):
        steps.body(["import tilus", "if __name__ == '__main__':", "    main()"])


def build(root: Path, text: str) -> str:
    """Build one page in a project with two versions; return its HTML."""
    examples = root / "examples" / "hopper_matmul"
    examples.mkdir(parents=True)
    for version in ("v2", "v3"):
        shutil.copy(file(version), examples)
    pages = root / "docs"
    pages.mkdir()
    (pages / "index.rst").write_text(f"Page\n====\n\n{text}\n", encoding="utf-8")
    settings = {"extensions": ["sphinx_design", "ladder.steps"]}
    Sphinx(
        pages, None, root / "out", root / "trees", "html", settings, status=None, warning=None
    ).build()
    return (root / "out" / "index.html").read_text(encoding="utf-8")


def test_the_page_folds_the_diff(tmp_path: Path) -> None:
    page = build(tmp_path, ".. ladder-diff:: v2 v3")
    folded = re.search(r"<details.*?</details>", page, re.DOTALL)
    assert folded
    assert "From V2 to V3" in folded[0]
    assert "open" not in re.findall(r"<details[^>]*>", folded[0])[0]
    block = re.search(r'<div class="highlight-diff.*?<pre>(.*?)</pre>', folded[0], re.DOTALL)
    assert block
    text = html.unescape(re.sub(r"<[^>]+>", "", block[1]))
    assert text.rstrip("\n").split("\n") == steps.diff(file("v2"), file("v3"))


def test_a_missing_file_ends_the_build_by_name(tmp_path: Path) -> None:
    missing = r"index\.rst:4: there is no examples/hopper_matmul/matmul_v9\.py"
    with pytest.raises(ExtensionError, match=missing):
        build(tmp_path, ".. ladder-diff:: v3 v9")
