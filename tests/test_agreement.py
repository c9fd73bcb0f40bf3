# SPDX-License-Identifier: Apache-2.0
"""The simulator leaves in memory what a GPU left there, byte by byte, on every recorded call."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.programs import load

agree = load("agree")
RECORD = json.loads(agree.RECORD.read_text())
CASES = {f"{Path(c.file).stem} {' '.join(map(str, c.numbers.values()))}": c for c in agree.cases()}


def test_the_record_was_made_on_a_gpu_and_holds_every_case():
    assert RECORD["environment"]["device"] == "cuda"
    missing = [name for name, case in CASES.items() if recorded(case) is None]
    if missing:
        pytest.skip(f"not run on a GPU yet: {', '.join(missing)}")
    assert len(RECORD["cases"]) == len(CASES)


def recorded(case):
    """Return the record's entry of a case, None where it has none."""
    mine = {"file": case.file, "schedule": dict(case.schedule), "numbers": dict(case.numbers)}
    return next((e for e in RECORD["cases"] if e | mine == e), None)


@pytest.mark.parametrize("name", CASES)
def test_all_memory_is_what_the_gpu_left(name, monkeypatch):
    case = CASES[name]
    entry = recorded(case)
    if entry is None:
        pytest.skip("not run on a GPU yet")
    monkeypatch.setattr(agree.option, "_device", agree.option.current_device)
    assert case.on_simulator() == entry["memory"]


def test_a_write_beside_an_array_is_seen():
    held = agree.Guarded.around(np.zeros((3, 5), np.float16))
    before = agree.digest([held.raw])
    assert held.raw.nbytes == 3 * 5 * 2 + 2 * agree.GUARD
    held.raw[-1] = 0
    assert agree.digest([held.raw]) != before


def test_an_array_keeps_its_strides_between_the_guards():
    padded = np.zeros((4, 8), np.int32)[:, :6]
    held = agree.Guarded.around(padded)
    assert held.array.strides == padded.strides
    held.array[...] = 7
    assert (held.raw[: agree.GUARD // 4] == -1).all() and (held.raw == 7).sum() == 24
