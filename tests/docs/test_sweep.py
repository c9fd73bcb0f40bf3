# SPDX-License-Identifier: Apache-2.0
"""A sweep has what the reader's own run has, and refuses what no kernel takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ladder import sweep
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import simulated
from tilus import Script, loader, prediction

if TYPE_CHECKING:
    from pathlib import Path


def build(root: Path, words: str) -> str:
    """Build one page with a sweep; return its HTML."""
    (root / "docs").mkdir()
    (root / "docs" / "index.rst").write_text(f"Page\n====\n\n.. sweep:: {words}\n")
    settings = {"extensions": ["ladder.sweep", "ladder.gallery"]}
    folders = root / "docs", None, root / "out", root / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    return (root / "out" / "index.html").read_text(encoding="utf-8")


def test_a_row_is_a_run_of_one_block() -> None:
    script = loader.find(simulated.KERNELS / "matmul_v1.py", Script)
    schedule = {"block_m": 128, "block_n": 128, "block_k": 32}
    cycles = prediction.one_block(script(**schedule), sweep.K // 32).cycles
    (row,) = sweep.rows("v1", "block_k", [32])
    assert row[:2] == ("32", f"{cycles:.0f}")
    assert 0 < int(row[2].removesuffix("%")) < 100


def test_a_deeper_ring_is_no_slower_until_it_no_longer_helps() -> None:
    cycles = [int(row[1]) for row in sweep.rows("v2", "max_num_stages", [1, 2, 3, 4])]
    assert cycles[0] > 1.5 * cycles[1] > 1.5 * 1.2 * cycles[2]
    assert cycles[3] > 0.99 * cycles[2]


def test_a_page_has_the_table_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    html = build(tmp_path, "v2 max_num_stages 1 2")
    assert "max_num_stages" in html and "One block, K = 1024." in html
    assert "badge-simulated" in html and html.count("<tr") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("v2 depth 1", "depth"),
        ("v2 max_num_stages one", "invalid literal"),
        ("v1 block_k 48", "block_k must divide 1024, got 48"),
    ],
)
def test_what_no_kernel_takes_ends_the_build(tmp_path: Path, words: str, said: str) -> None:
    with pytest.raises(ExtensionError, match=said):
        build(tmp_path, words)
