# SPDX-License-Identifier: Apache-2.0
"""The steps of the ladder on the simulator: same tile, same depth of the ring, few tiles of K."""

from __future__ import annotations

import linecache
from functools import cache
from pathlib import Path
from typing import Any

import tilus
from tilus import loader, prediction, simulator
from tilus.ir import Event

KERNELS = Path(__file__).parent.parent / "examples" / "hopper_matmul"
BLOCK = {"block_m": 128, "block_n": 128, "block_k": 64}
STAGES, TILES = 4, 8
SCHEDULES: dict[str, dict[str, int]] = {
    "v0": BLOCK | {"warps": 4},
    "v1": BLOCK,
    "v2": BLOCK | {"max_num_stages": STAGES},
    "v3": BLOCK | {"num_stages": STAGES},
    "v4": BLOCK | {"num_stages": STAGES, "group_m": 8},
    "v5": BLOCK | {"num_stages": STAGES, "group_m": 8},
    "v6": BLOCK | {"num_stages": STAGES, "group_m": 8},
    "v7": BLOCK | {"num_stages": STAGES, "group_m": 8, "block_m": 256, "num_blocks": 132},
}
"""Of every figure that is simulated; what tuning chooses is in the records. V7 has a larger tile,
for that is its idea."""
OUTPUTS = {version: 2 if version in ("v6", "v7") else 1 for version in SCHEDULES}
"""How many tiles of C a block computes: persistent ones have more than one."""


def step(version: str, **changes: int) -> Any:
    """Return a step's kernel with the schedule of the figures, or another one."""
    cls = loader.find(KERNELS / f"matmul_{version}.py", tilus.Script)
    return cls(**SCHEDULES[version] | changes)


STAGE = "store_shared"
"""What puts results into the staging buffer."""


def bulk(wait: Event) -> bool:
    """Return whether a ``wait_group`` waits for bulk stores: both engines have one of that name."""
    return wait.what == "wait_group" and "tma." in _source(wait)


def reading(wait: Event) -> bool:
    """Return whether it waits only until they have been read."""
    return "read=True" in _source(wait)


def _source(event: Event) -> str:
    return linecache.getline(str(KERNELS / Path(event.location.file).name), event.location.line)


@cache
def run(version: str, tiles: int = TILES) -> simulator.Result:
    """Return what one block of a step did when, with ``tiles`` of K for each tile of C."""
    return prediction.one_block(step(version), tiles, OUTPUTS[version])
