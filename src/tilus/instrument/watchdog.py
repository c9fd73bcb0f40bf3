# SPDX-License-Identifier: Apache-2.0
"""The watchdog: a wait that does not end says so into the host's memory, then stops the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilus.errors import Location
from tilus.instrument.sites import Site, label
from tilus.options import Block

WORDS = 8
"""Of a slot: whether it is used, then index, parity, x, y, z of the block, thread."""
LINGER_NS = 100_000_000
"""How long a wait that has reported leaves the others of its block to report too."""

TIMER = """\
__device__ __forceinline__ unsigned long long global_timer() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) :: "memory");
  return ns;
}"""

TRAP = """\
__device__ __forceinline__ void trap() { asm volatile("trap;"); }"""

HANG = """\
constexpr unsigned long long HANG_NS = {limit}ull, LINGER_NS = {linger}ull;
__device__ unsigned hanging_block;  /* 1 + the first block that hangs: the one that reports */

/* A slot for each wait and warp, in the host's memory. The trap ends the whole grid: before it, the
   other waits of the block get the time to report too. */
__device__ __forceinline__ void hang(unsigned *hangs, unsigned site, unsigned index,
                                     unsigned parity) {{
  const unsigned block = 1 + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned first = atomicCAS(&hanging_block, 0u, block);
  if (first == 0 || first == block) {{
    volatile unsigned *slot = hangs + (site * {warps} + threadIdx.x / 32) * {words};
    slot[1] = index; slot[2] = parity;
    slot[3] = blockIdx.x; slot[4] = blockIdx.y; slot[5] = blockIdx.z;
    slot[6] = threadIdx.x;
    __threadfence_system();
    slot[0] = 1;
  }}
  const unsigned long long begin = global_timer();
  while (global_timer() - begin < LINGER_NS) {{}}
  __threadfence_system();
  trap();
}}"""


def helpers(seconds: float, warps: int) -> tuple[str, ...]:
    """Return the device functions of a build whose waits may take ``seconds``."""
    limit = max(1, round(seconds * 1e9))
    return TIMER, TRAP, HANG.format(limit=limit, linger=LINGER_NS, warps=warps, words=WORDS)


@dataclass(frozen=True)
class Hang:
    """A wait that did not end: for the phase of ``parity`` of ``barrier``, such as ``full[2]``."""

    barrier: str
    parity: int
    role: str
    location: Location
    block: Block
    thread: int

    def __str__(self) -> str:
        who = f"{self.role} of block {self.block}, thread {self.thread}"
        return f"{self.location}: {who}: waits for {self.barrier}, parity {self.parity}"


def words(sites: Sequence[Site], warps: int) -> int:
    """Return how many 32-bit words the report takes."""
    return max(1, len(sites)) * warps * WORDS


def hangs(sites: Sequence[Site], warps: int, memory: NDArray[np.uint32]) -> tuple[Hang, ...]:
    """Return what the waits of one block said, by thread; none where none hung."""
    slots = memory.reshape(-1, warps, WORDS)
    return tuple(
        _hang(sites[site], slots[site, warp]) for warp, site in np.argwhere(slots[..., 0].T)
    )


def _hang(site: Site, slot: NDArray[np.uint32]) -> Hang:
    _, index, parity, x, y, z, thread = (int(word) for word in slot[:7])
    runner, barrier = site.runner(thread), site.barrier
    assert barrier is not None
    role, place = runner.lane.role, runner.location
    return Hang(label(barrier, index), parity, role, place, (x, y, z), thread)
