# SPDX-License-Identifier: Apache-2.0
"""Barriers of thread groups."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.ir import Emitter, Instruction, Machine, Wait


@dataclass(frozen=True, eq=False, kw_only=True)
class sync(Instruction):
    """Wait for all threads of the current group; outside of groups, for the whole block.

    NumPy: none
    PTX:   barrier.sync; bar.warp.sync within one warp
    """

    issuer = "group"

    def emit(self, e: Emitter) -> None:
        e.sync_threads()

    def simulate(self, m: Machine) -> Wait:
        return m.wait_threads(m.threads)
