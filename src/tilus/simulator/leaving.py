# SPDX-License-Identifier: Apache-2.0
"""What a block may not leave behind when it ends, and what may not come to it any more."""

from __future__ import annotations

from tilus.errors import SimulationError
from tilus.simulator.engines import LANES, Effect
from tilus.simulator.machine import BlockMachine


def check_effects(machine: BlockMachine) -> None:
    """Refuse effects that were not made sure of, or have not landed."""
    for effect, state in machine.engines.abandoned():
        _refuse(machine, effect, state)


def check_loads(machine: BlockMachine) -> None:
    """Refuse copies that have landed here, but nobody has waited for; what lands in a peer is the
    peer's to wait for."""
    known = machine.knowledge()
    for effect in machine.engines.loads:
        here = any(barrier.rank == machine.rank for barrier in effect.barriers)
        if here and not effect.agent.mark.known(known):
            _refuse(machine, effect, "never waited for")


def check_bytes(machine: BlockMachine) -> None:
    """Refuse barriers that still expect bytes."""
    for barrier in (b for array in machine.barriers.values() for b in array):
        if barrier.bytes:
            machine.fail(
                "protocol",
                f"the block ends, but {barrier.label} still expects {barrier.bytes} bytes",
                **barrier.facts(),
            )


def check_visits(machine: BlockMachine) -> None:
    """Refuse a peer's access of this block's memory or barriers that may come after its end."""
    known = machine.knowledge()
    for agent, signal, read in machine.visited:
        past = known.over if read else known
        if not agent.mark.known(past) and not signal.known(past):
            missing = f"block {machine.block} does not wait for {agent.noun} before it ends"
            signals = f", to signal {' or '.join(agent.signals)}" if agent.signals else ""
            message = (
                f"{agent.location}: block {machine.block} may end while {agent.role} of block "
                f"{agent.block} still comes to its shared memory by {agent.noun}{signals}: "
                f"{missing}"
            )
            first = agent.facts() | {"kind": "write"}
            second = {"block": machine.block, "kind": "exit"}
            facts = agent.facts() | {"first": first, "second": second, "missing": missing}
            raise SimulationError("race", message, **facts)


def _refuse(machine: BlockMachine, effect: Effect, state: str) -> None:
    machine.enter(effect.group, effect.location)
    what = f"{effect.what} ({LANES[effect.engine]}) is {state} when the block ends"
    machine.fail("protocol", what, engine=effect.engine, state=state)
