# SPDX-License-Identifier: Apache-2.0
"""Every version of the ladder: right on the simulator for any shape, sound as machine code."""

import time

import pytest
from tests import sass
from tests.products import SMALL, VERSIONS, execute, version

from tilus import compiler, ir, simulator

SCHEDULES = list(simulator.SCHEDULES)
RINGS = [name for name in VERSIONS if any("stages" in key for key in SMALL[name])]
FULL = {  # the tiles that measure best or nearly so
    "v0": {"warps": 4, "block_m": 128, "block_n": 128, "block_k": 64},
    "v1": {"block_m": 128, "block_n": 128, "block_k": 64},
    "v2": {"max_num_stages": 2, "block_m": 128, "block_n": 128, "block_k": 64},
    "v3": {"num_stages": 2, "block_m": 128, "block_n": 128, "block_k": 64},
    "v4": {"num_stages": 4, "block_m": 128, "block_n": 256, "block_k": 64, "group_m": 16},
    "v5": {"num_stages": 4, "block_m": 128, "block_n": 256, "block_k": 64, "group_m": 16},
    "v6": {"num_stages": 3, "block_m": 128, "block_n": 256, "group_m": 16},
    "v7": {"num_stages": 3, "block_m": 256, "block_n": 200, "group_m": 11, "num_blocks": 132},
}


def lower(name: str, n: int, k: int, **changes: int) -> ir.Kernel:
    """Return a version with its small schedule, some of it changed, planned for a size."""
    return compiler.lower(version(name)(**SMALL[name] | changes), {"n_size": n, "k_size": k})


def stages(name: str, depth: int) -> dict[str, int]:
    """Return the depth of the ring as the version's own parameter."""
    return {key: depth for key in SMALL[name] if "stages" in key}


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("name", RINGS)
def test_right_for_every_number_of_tiles_in_the_ring(name, depth):
    for tiles in range(2 * depth + 2):
        kernel = lower(name, 8, 16 * tiles, **stages(name, depth))
        for schedule in SCHEDULES:
            execute(kernel, 64, 8, 16 * tiles, schedule=schedule, seed=tiles)


@pytest.mark.parametrize("name", [name for name in VERSIONS if name not in RINGS])
def test_right_for_every_number_of_tiles(name):
    for tiles in range(6):
        kernel = lower(name, 8, 16 * tiles)
        for schedule in SCHEDULES:
            execute(kernel, 64, 8, 16 * tiles, schedule=schedule, seed=tiles)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [(200, 72, 40), (129, 24, 8), (1, 8, 8), (330, 40, 104)], ids=str)
@pytest.mark.parametrize("name", VERSIONS)
def test_right_for_sizes_that_tiles_do_not_divide(name, size, schedule):
    m, n, k = size
    execute(lower(name, n, k, block_k=32, block_n=32), m, n, k, schedule=schedule)


@pytest.mark.parametrize("name", VERSIONS)
def test_256_cubed_in_three_seconds(name):
    script = version(name)(**FULL[name])
    kernel = compiler.lower(script, {"n_size": 256, "k_size": 256})
    start = time.process_time()
    execute(kernel, 256, 256, 256)
    assert time.process_time() - start < 3


@pytest.mark.parametrize("name", VERSIONS)
def test_machine_code_has_tensor_cores_and_tma_and_no_local_memory(name):
    script = version(name)(**FULL[name])
    code = compiler.build(compiler.lower(script, {"n_size": 8192, "k_size": 8192})).cubin.code
    found = sass.complaints(code)
    if name == "v0":  # mma.sync, fed by ldmatrix
        assert found == ["no HGMMA"]
        assert {"HMMA", "LDSM"} <= sass.opcodes(code).keys()
    else:
        assert found == []


@pytest.mark.parametrize("name", VERSIONS)
def test_the_space_names_no_schedule_twice_and_holds_the_one_tested_here(name):
    schedules = [dict(kernel.schedule) for kernel in version(name)().candidates()]
    assert len(schedules) == len({tuple(s.items()) for s in schedules})
    assert FULL[name] in schedules
