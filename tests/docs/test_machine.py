# SPDX-License-Identifier: Apache-2.0
"""What the pages say of machine code is what the disassembly has."""

from __future__ import annotations

from pathlib import Path

import pytest
from ladder import machine
from sphinx.application import Sphinx
from tests import sass

import simulated
from tilus import compiler

TEXT = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0] ;
.L_x_0:
        /*0010*/                   IADD3 R1, R1, 0x1 ;
.L_x_1:
        /*0020*/                   HGMMA.64x64x16.F32 R24, gdesc[UR12], R24, UP0 ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
        /*0040*/              @!UPT UIADD3 UR4, UR4, 0x1, URZ ;
.L_x_2:
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/               @P2 BRA `(.L_x_0) ;
.L_x_3:
        /*0070*/                   BRA `(.L_x_3) ;
"""


def test_the_loop_is_the_innermost_one_that_multiplies() -> None:
    code = machine.instructions(TEXT)
    assert machine.loop(code) == ["HGMMA", "BRA", "UIADD3", "BRA"]
    assert machine.opcodes(code)[:2] == ["MOV", "IADD3"] and len(machine.opcodes(code)) == 8


@pytest.mark.parametrize(("version", "products"), [("v5", 4), ("v7", 8)])
def test_counts_are_those_of_the_disassembly(version: str, products: int) -> None:
    """Products: for each 16 of 64 of K, and each 64 of the rows of a group."""
    kernel = simulated.step(version).lower(n_size=machine.SIZE, k_size=machine.SIZE)
    cubin = compiler.build(kernel).cubin
    found, counts = machine.counted(version, {}), sass.opcodes(cubin.code)
    assert found[:2] == [str(cubin.registers), str(counts.total())]
    expected = [str(counts[name]) for name in list(machine.ROWS)[:-1]]
    assert found[3:] == [*expected, str(counts["LDL"] + counts["STL"])]
    assert found[2].endswith(f", {products} of them HGMMA")


def test_a_page_has_a_column_for_each_version(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.rst").write_text("Page\n====\n\n.. sass-table:: v6\n")
    settings = 'extensions = ["ladder.gallery", "ladder.numbers", "ladder.machine"]\n'
    (tmp_path / "conf.py").write_text(settings)
    folders = tmp_path / "docs", tmp_path, tmp_path / "out", tmp_path / "trees"
    Sphinx(*folders, "html", status=None, warning=None).build()
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "V6" in html and "HGMMA" in html and "computed from the kernel" in html
