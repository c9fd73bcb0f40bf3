# SPDX-License-Identifier: Apache-2.0
"""The appendix and the ceiling: right on the simulator, machine code without a flaw."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests import sass
from tests.products import execute

import tilus
from tilus import compiler, loader
from tilus.verify import integers

FOLDER = Path(__file__).parents[2] / "examples" / "hopper_matmul"
TILES = [(128, 256), (256, 200)]


def kernel(name, *words, **schedule):
    return loader.find(FOLDER / f"{name}.py", tilus.Script)(*words, **schedule)


@pytest.mark.parametrize("size", [(260, 136, 200), (520, 136, 32), (8, 8, 8)])
def test_sums_in_float16_are_exact_where_float16_is(size):
    """Edges, several tiles a block, short K; two blocks, so that a ring goes on over tiles."""
    m, n, k = size
    made = kernel("appendix_fp16", block_n=128, num_blocks=2, group_m=2)
    execute(made.lower(n_size=n, k_size=k), m, n, k)


def test_four_groups_fit_the_register_file_and_shared_memory():
    """640 threads begin with 96 registers, which is all that the budgets share out anew."""
    cubin = compiler.build(kernel("appendix_fp16").lower(n_size=8192, k_size=8192)).cubin
    counts = sass.opcodes(cubin.code)
    assert sass.complaints(cubin.code) == []
    taken, left = (
        int(re.findall(rf"setmaxnreg\.{way}\.sync\.aligned\.u32 (\d+)", cubin.ptx)[0])
        for way in ("inc", "dec")
    )
    assert 4 * 128 * taken + 128 * left == 640 * cubin.registers == 640 * 96
    assert counts["USETMAXREG"] == 2 and counts["UTMALDG"] == 2


@pytest.mark.parametrize(("block_m", "block_n"), TILES)
def test_a_ceilings_loop_has_products_and_nothing_else(block_m, block_n):
    cubin = compiler.build(kernel("ceiling", block_m, block_n).lower()).cubin
    assert sass.complaints(cubin.code) == []
    assert sass.opcodes(cubin.code)["HGMMA"] == 3 * 4 * block_m // 128


def test_a_ceiling_uses_all_that_it_multiplies(monkeypatch):
    made = kernel("ceiling", 128, 16, num_stages=2, num_blocks=2)
    rng = np.random.default_rng(3)
    a, b = integers((256, 64), rng), integers((32, 64), rng)
    found, wanted = (np.full(made.result_shape, np.nan, np.float32) for _ in range(2))
    monkeypatch.setattr(tilus.option, "_device", "sim")
    made(3, a, b, found)
    made.reference(3, a, b, wanted)
    assert np.array_equal(found, wanted) and len(np.unique(found)) > 10
    assert made.flops(3) == 2 * 2 * 128 * 16 * 64 * 2 * 3
