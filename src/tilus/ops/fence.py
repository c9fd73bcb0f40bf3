# SPDX-License-Identifier: Apache-2.0
"""Fences between the two proxies (PTX ISA, "Async proxy")."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.ir import Emitter, Instruction, Machine


@dataclass(frozen=True, eq=False, kw_only=True)
class proxy_async(Instruction):
    """Order this thread's accesses of shared memory before those of TMA and WGMMA that follow.

    It speaks for the thread that says it and for what that thread has done: every thread that wrote
    what an engine will read says it, and then comes to the barrier that orders both. It speaks for
    the block's own shared memory, not for what was written to another block's or to device memory.

    NumPy: none
    PTX:   fence.proxy.async
    """

    space: str = "shared"

    def verify(self) -> None:
        self.require(self.space == "shared", "space", "'shared'", repr(self.space))

    def emit(self, e: Emitter) -> None:
        e.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')

    def simulate(self, m: Machine) -> None:
        m.fence_proxy()
