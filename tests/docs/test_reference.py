# SPDX-License-Identifier: Apache-2.0
"""Every instruction that a kernel can call has its entry, made from its docstring."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from ladder import reference
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import tilus
from tilus.dtypes import DType
from tilus.options import Debug, Option

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "instructions.rst"


def listed() -> list[str]:
    """Return the modules of tilus.ops that the page names."""
    lines = re.findall(
        r"^\.\. instructions:: (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [unit for line in lines for unit in line.split()]


def test_the_page_names_every_module_once() -> None:
    offering = {cls.__module__.removeprefix("tilus.ops.") for cls in reference.spellings()}
    assert sorted(listed()) == sorted(offering)


def test_every_instruction_has_an_entry() -> None:
    made = {name for unit in listed() for name in reference.entries(unit)}
    assert made == {f"{cls.__module__}.{cls.__name__}" for cls in reference.spellings()}
    assert "tilus.ops.tma.global_to_shared" in made
    assert "tilus.ops.memory.store_global" in made


def test_helpers_are_no_entries() -> None:
    assert not [name for name in reference.entries("wgmma") if name.rpartition(".")[2][0] == "_"]


def test_a_module_without_instructions_is_refused() -> None:
    with pytest.raises(ExtensionError, match=r"tilus\.ops\.nothing offers kernels no instruction"):
        reference.entries("nothing")


def test_an_entry_shows_arguments_effect_and_instruction(tmp_path: Path) -> None:
    (tmp_path / "index.rst").write_text(
        "Page\n====\n\n.. instructions:: mbarrier memory mma sync debug\n\n:op:`arrive`\n"
    )
    settings = {"extensions": ["sphinx.ext.autodoc", "ladder.reference"], "add_module_names": False}
    folders = tmp_path, None, tmp_path / "out", tmp_path / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))
    assert "self.mbarrier.arrive(barrier, count=1)" in text and "class " not in text
    assert "barrier.pending_arrivals -= count * threads" in text
    assert "self.sync()" in text and "self.printf(format, *values)" in text
    assert "dot(a, b, acc=None, out=None)" in text  # Python, which wants defaults last
    assert "`" not in text and "outside outside of src" in text
    assert 'href="#tilus.ops.mbarrier.arrive"' in html


def test_every_name_of_the_language_page_is_where_the_page_says(tmp_path: Path) -> None:
    text = (PAGE.parent / "language.rst").read_text(encoding="utf-8")
    (tmp_path / "index.rst").write_text(text.replace(":doc:", "").replace(":ref:", ""))
    settings = {"extensions": ["sphinx.ext.autodoc", "ladder.reference"], "add_module_names": False}
    folders = tmp_path, None, tmp_path / "out", tmp_path / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    heads = re.findall(r'<dt class="sig .*?</dt>', html, re.DOTALL)
    shown = [re.sub(r"\(.*|&#182;.*|¶.*", "", re.sub(r"<[^>]+>", "", head)) for head in heads]
    names = [text.split()[-1] for text in shown if "property" not in text]
    assert {"tilus.Script", "tilus.utils.cdiv", "tilus.demo.main", "self.range"} <= set(names)
    for name in names:
        module, _, short = name.rpartition(".")
        owner = tilus.Script if module == "self" else importlib.import_module(module)
        assert hasattr(owner, short), name


def test_the_language_page_has_every_type() -> None:
    text = (PAGE.parent / "language.rst").read_text(encoding="utf-8")
    types = [name for name, value in vars(tilus).items() if isinstance(value, DType)]
    assert "float16" in types
    assert [name for name in types if f"``{name}``" not in text] == []


def test_the_language_page_has_every_option() -> None:
    text = (PAGE.parent / "language.rst").read_text(encoding="utf-8")
    for owner, prefix in ((Option, ""), (Debug, "debug.")):
        named = [name for name in vars(owner) if name[0] != "_" and callable(vars(owner)[name])]
        assert named and [n for n in named if f"``{prefix}{n}" not in text] == []
