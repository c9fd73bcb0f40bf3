# SPDX-License-Identifier: Apache-2.0
"""Kernels from files: which class is meant, what runs anew, what is left behind."""

import sys

import pytest

from tilus import loader
from tilus.errors import ArgumentError


@pytest.fixture
def file(tmp_path):
    (tmp_path / "neighbour.py").write_text("VALUE = 3\n")
    path = tmp_path / "kernel.py"
    path.write_text("from neighbour import VALUE\nclass One(int): value = VALUE\n")
    yield path
    sys.modules.pop("neighbour", None)


def test_the_only_class_needs_no_name(file):
    assert loader.find(file, int).value == 3 and loader.find(file, int, "One").value == 3


def test_classes_that_a_file_imports_are_not_its_own(file):
    file.write_text("from collections import OrderedDict, Counter\nclass Mine(dict): pass\n")
    assert loader.find(file, dict).__name__ == "Mine"


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("class One(int): pass\nclass Two(int): pass\n", "", "one of One, Two, the classes of"),
        ("class One(int): pass\n", "Two", "one of One, the classes of"),
        (
            "class One(str): pass\n",
            "",
            r"a file that defines a class derived from int, got '.*' with none\. Name another",
        ),
    ],
)
def test_what_is_not_clear_is_refused(file, text, name, said):
    file.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        loader.find(file, int, name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArgumentError, match=r"KERNEL must be a Python file, got '.*missing.py'"):
        loader.load(tmp_path / "missing.py")


@pytest.mark.parametrize("content", [b"# A page\n1st: read me", b"x = '\xff'", b"\0"])
def test_a_file_that_is_not_pythons(tmp_path, content):
    path = tmp_path / "page.md"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"KERNEL must be a Python file, got 'page\.md': "):
        loader.load(path)


def test_a_file_runs_anew_and_leaves_no_name_behind(file):
    before, path = set(sys.modules), list(sys.path)
    first = loader.load(file)
    file.write_text("VALUE = 4\n")
    assert loader.load(file).VALUE == 4 and first.VALUE == 3
    left = set(sys.modules) - before - {"neighbour"}
    assert "kernel" not in left and len(left) == 1 and sys.path == path


def test_the_path_is_restored_after_a_file_that_fails(file):
    path = list(sys.path)
    file.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        loader.load(file)
    assert sys.path == path
