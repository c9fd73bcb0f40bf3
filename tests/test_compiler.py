# SPDX-License-Identifier: Apache-2.0
"""The work that our own part of a compilation takes: counted, since time is not the same twice."""

import sys
from collections import Counter
from pathlib import Path

from tilus import Script, compiler, loader
from tilus.emitter import emit

V7 = Path(__file__).parents[1] / "examples/hopper_matmul/matmul_v7.py"


def calls(function):
    """Count the calls of Python and C functions that calling ``function`` takes."""
    count = Counter()
    sys.setprofile(lambda frame, event, argument: count.update([event]))
    try:
        function()
    finally:
        sys.setprofile(None)
    return count["call"] + count["c_call"]


def test_lowering_and_emitting_v7_take_few_calls():
    v7 = loader.find(V7, Script, "MatmulWGMMAV7")
    script = v7(block_m=256, block_n=200, group_m=8, num_blocks=132, num_stages=3)
    arguments = {"k_size": 8192, "n_size": 8192}
    kernel = compiler.lower(script, arguments)  # imports the instructions, parses the file
    lower, write = calls(lambda: compiler.lower(script, arguments)), calls(lambda: emit(kernel))
    assert lower < 130_000
    assert write < 20_000
