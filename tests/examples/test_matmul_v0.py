# SPDX-License-Identifier: Apache-2.0
"""V0: right with every width of rows, fragments loaded once and without conflicts, several blocks
per SM."""

import pytest
from tests import sass
from tests.ops.lanes import wavefronts
from tests.ops.test_shared import check
from tests.products import execute, version

from tilus import compiler

V0 = version("v0")


def lower(n, k, block_m=128, block_n=128, block_k=64, warps=4):
    return V0(block_m, block_n, block_k, warps).lower(n_size=n, k_size=k)


@pytest.mark.parametrize("block_k", [16, 32, 64])
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    "size", [(200, 136, 72), (128, 64, 64), (8, 8, 8), (64, 40, 24), (128, 64, 192)], ids=str
)
def test_right_with_every_width_of_rows(size, block_k, warps):
    """Rows of 32, 64 and 128 bytes lie in three different swizzles."""
    m, n, k = size
    execute(lower(n, k, 128, 64, block_k, warps), m, n, k)


@pytest.mark.parametrize("block_k", [16, 32, 64])
@pytest.mark.parametrize("warps", [4, 8])
def test_operands_come_as_matrices_without_bank_conflicts(block_k, warps):
    kernel = lower(128, 128, block_k=block_k, warps=warps)
    for nth in (0, 1):
        for function, address in check(kernel, "load_shared", nth):
            assert function == "load_matrices_4"
            assert all(wavefronts(16, warp) == 4 for warp in address.reshape(warps, 32))


@pytest.mark.parametrize(
    "warps, rows, columns, blocks", [(4, 64, 64, 3), (8, 32, 64, 2)], ids=["4 warps", "8 warps"]
)
def test_machine_code_loads_each_fragment_once(warps, rows, columns, blocks):
    """One K-block of 64 per turn: a warp multiplies rows x columns, in products of 16 x 8 x 16."""
    cubin = compiler.build(lower(8192, 8192, warps=warps)).cubin
    counts = sass.opcodes(cubin.code)
    assert counts["HMMA"] == rows // 16 * columns // 8 * 64 // 16
    assert counts["LDSM"] == (rows + columns) * 64 // (4 * 8 * 8)
    assert cubin.registers <= 65536 // (32 * warps * blocks) // 8 * 8
