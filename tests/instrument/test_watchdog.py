# SPDX-License-Identifier: Apache-2.0
"""A wait that hangs says which barrier, parity, role, place, block and thread, and stops."""

import pickle
import shutil

import numpy as np
import pytest
from tests.host import Host
from tests.instrument.hanging import SECONDS, Handover, expected, told

import tilus
from tilus import compiler, instrument
from tilus.errors import ArgumentError
from tilus.instrument import watchdog
from tilus.options import Instruments, Option

WATCHED = Instruments(watchdog=SECONDS)
WARPS = 5


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
@pytest.mark.parametrize("missing", [-1, 1])
def test_the_waits_of_one_block_report_when_none_of_them_ends(missing):
    """The generated code, run on this machine; the last block goes on, the trap is of a thread."""
    kernel, c = Handover(missing), np.zeros(3, np.float32)
    _, sites = compiler.write(kernel.lower(), WATCHED)
    report = np.zeros(watchdog.words(sites, WARPS), np.uint32)
    Host().run(kernel, 3, c, instruments=WATCHED, memory=[report])
    found = instrument.hangs(sites, WARPS, report)
    assert told(found) == ([] if missing < 0 else expected(missing))
    assert list(c) == ([1, 1, 1] if missing < 0 else [1, 0, 1])
    assert [h.thread // 32 for h in found] == ([] if missing < 0 else [0, 1, 2, 3, 4])


def test_the_text_of_a_report_names_all():
    place = tilus.errors.Location("kernel.py", 58)
    hang = instrument.Hang("full[2]", 1, "warps 4-7", place, (3, 0, 0), 130)
    said = "kernel.py:58: warps 4-7 of block (3, 0, 0), thread 130: waits for full[2], parity 1"
    assert str(hang) == said


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan")])
def test_a_wrong_limit_changes_nothing(seconds):
    debug = Option().debug
    debug.watchdog(2)
    with pytest.raises(ArgumentError, match="watchdog must be more than 0"):
        debug.watchdog(seconds)
    assert debug.instruments == Instruments(watchdog=2)
    debug.watchdog(None)
    assert not debug.instruments


def test_a_watched_program_travels_to_a_child():
    program = compiler.build(Handover(1).lower(), WATCHED)
    there = pickle.loads(pickle.dumps(program, protocol=5))
    assert there.instruments == WATCHED
    report = np.zeros(watchdog.words(there.sites, WARPS), np.uint32)
    report[:7] = 1, 2, 0, 5, 0, 0, 129
    (hang,) = instrument.hangs(there.sites, WARPS, report)
    assert (hang.barrier, hang.role) == ("empty[2]", "warp 4")
