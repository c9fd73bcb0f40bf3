# SPDX-License-Identifier: Apache-2.0
"""A program's hash follows what it does: not its words, its places or the Python that reads it."""

import ast

import pytest

from tilus import fingerprint
from tilus.fingerprint import cuda_hash, program_hash

SOURCE = '''
"""Module."""
def f(x, *, y=None):
    """Do f."""
    return f"{x!r:>{y}}", [i for i in x if i], -1  # why
class C:
    """A class."""
    a: int = 0
'''
SAME = '''
def f(x, *, y = None):
    return (f"{x!r:>{y}}",
            [i for i in x if i], -1)
class C:
    """Another word."""

    a: int = 0
'''


def test_a_program_is_what_it_does():
    assert program_hash(SOURCE) == program_hash(SAME)


@pytest.mark.parametrize(
    ("old", "new"),
    [("-1", "-2"), ("y=None", "y=0"), ("if i", "if x"), ("!r", "!s"), ("a: int = 0", "a: int = 1"),
     ("0", "0.0"), ("0", "False")],
)  # fmt: skip
def test_another_program_has_another_hash(old, new):
    assert program_hash(SOURCE) != program_hash(SOURCE.replace(old, new))


def test_the_hash_has_no_field_that_only_some_pythons_have():
    # 3.12 adds type_params to functions and classes, 3.13 leaves empty fields out of ast.dump.
    assert "type_params" not in fingerprint._shape(ast.parse(SOURCE))
    known = "1a4637"
    assert program_hash(SOURCE)[:6] == known, "a hash must not depend on the Python that makes it"


def test_cuda_counts_without_its_comments():
    text = 'f(1);  // a.py:3  mma\n  // a.py:4\nprintf("// %d\\n", x);'
    moved = 'f(1);  // b.py:7  mma\n\nprintf("// %d\\n", x);\n'
    assert cuda_hash(text) == cuda_hash(moved)
    assert cuda_hash(text) != cuda_hash(text.replace("f(1)", "f(2)"))
    assert cuda_hash(text) != cuda_hash(text.replace("// %d", "// %x"))


def test_a_package_is_hashed_with_all_its_files_and_their_names(tmp_path):
    seen = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("deep/b.py", "1"), ("deep/c.py", "1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        seen.add(fingerprint.package_hash.__wrapped__(tmp_path))
    (tmp_path / "data.json").write_text("not a source")
    seen.add(fingerprint.package_hash.__wrapped__(tmp_path))
    assert len(seen) == 4
    assert (fingerprint.PACKAGE / "compiler.py").is_file()
