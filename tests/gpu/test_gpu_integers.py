# SPDX-License-Identifier: Apache-2.0
"""Run-time integers on the GPU follow Python: hundreds of generated expressions in one kernel."""

import random

import numpy as np
import pytest
from tests import integers

from tilus import runtime

CASES = [integers.inputs(random.Random(seed)) for seed in range(8)]


@pytest.fixture(scope="module")
def program(gpu, tmp_path_factory):
    """Trees, and the kernel that stores what each of them gives."""
    trees = integers.valid(400, CASES, seed=11)
    path = tmp_path_factory.mktemp("integers") / "integers_kernel.py"
    return trees, integers.kernel(path, trees)


@pytest.mark.parametrize("values", CASES, ids=range(len(CASES)))
def test_integers_follow_python(program, values, device):
    device("cuda")
    trees, kernel = program
    out = runtime.DeviceArray.from_numpy(np.zeros(len(trees), np.int64))
    kernel(*values.values(), out)
    found, wanted = out.to_numpy(), integers.expected(trees, values)
    wrong = np.flatnonzero(found != wanted)
    shown = [(integers.text(trees[k]), found[k], wanted[k]) for k in wrong[:5]]
    assert not len(wrong), (shown, values)
