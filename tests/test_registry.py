# SPDX-License-Identifier: Apache-2.0
"""Every instruction has all its parts: both meanings, a docstring that is its page, a test."""

import inspect
import re
from pathlib import Path

import pytest

import tilus.ops
from tilus.ir import Instruction, instructions

OPS = Path(__file__).parent / "ops"
FOUND = (c for c in instructions() if c.__module__.startswith("tilus.ops"))
ALL = sorted(FOUND, key=lambda c: c.__name__)


def faults(cls: type[Instruction]) -> list[str]:
    """Return what ``cls`` lacks."""
    found = [f"no method {m} of its own" for m in ("emit", "simulate") if not own(cls, m)]
    doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
    if not re.match(r"[A-Z][^\n]*[.;:]", doc):
        found.append("the docstring does not begin with a sentence")
    found += [f"no docstring line {key}" for key in ("NumPy:", "PTX:") if key not in doc]
    fields = {e.field for e in cls.effects} - set(cls.__dataclass_fields__)
    found += [f"effect on an unknown field {name}" for name in sorted(fields)]
    return found


def own(cls: type, method: str) -> bool:
    return getattr(cls, method) is not getattr(Instruction, method)


def test_there_are_instructions():
    assert len(ALL) >= 15


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_instruction_is_complete(cls):
    assert faults(cls) == []


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_instruction_has_a_test(cls):
    """A test is named after it: ``test_global_to_shared...`` in tests/ops/test_tma.py."""
    unit = cls.__module__.rpartition(".")[2]
    text = (OPS / f"test_{unit}.py").read_text()
    assert re.search(rf"def test_{cls.__name__}(_|\()", text)


def test_faults_are_found():
    """The check itself can fail."""

    class empty(Instruction):
        effects = (tilus.ir.reads("nothing"),)

    assert len(faults(empty)) == 6
    del empty
