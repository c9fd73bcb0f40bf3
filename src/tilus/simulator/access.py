# SPDX-License-Identifier: Apache-2.0
"""Accesses of memory and registers: what is said of two that nothing orders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import Location
from tilus.simulator.clocks import Clock, Mark
from tilus.simulator.group import Block

if TYPE_CHECKING:
    from tilus.layout import RegisterLayout

Kind = Literal["read", "write"]
Proxy = Literal["generic", "async"]

NOUNS = {"tma": "copy", "wgmma": "product", "store": "bulk store"}


@dataclass(frozen=True, eq=False)
class Agent:
    """Who accesses: a group with an instruction, or an effect of its own.

    ``clock`` is what it knew when it began, ``mark`` how others in its ``cluster`` know of it.
    ``engine`` is None for threads, ``signals`` names the mbarriers that an effect completes on.
    """

    mark: Mark
    clock: Clock
    location: Location
    role: str
    block: Block
    what: str
    cluster: object
    engine: str | None = None
    signals: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """Name it in a message: ``the product at v3.py:71``."""
        what = NOUNS[self.engine] if self.engine else self.what
        return f"the {what} at {Path(self.location.file).name}:{self.location.line}"

    def facts(self) -> dict[str, object]:
        """Return who it is in a form that tests and pages can use."""
        return {
            "file": self.location.file,
            "line": self.location.line,
            "role": self.role,
            "block": self.block,
            "what": self.what,
            "proxy": "async" if self.engine else "generic",
        }


@dataclass(frozen=True, eq=False)
class Owners:
    """Which thread touches which byte: an access by threads, each of which touches the elements
    that it holds in ``layout``."""

    places: NDArray[Any]
    """First byte of every element of the tile; negative where it is not touched."""
    size: int
    layout: RegisterLayout
    begin: int

    @cached_property
    def threads(self) -> NDArray[Any] | None:
        """The thread of every element, numbered within the block; None where several hold one."""
        if self.layout.copies():
            return None
        found = np.empty(self.layout.shape, int)
        index = tuple(np.moveaxis(self.layout.coordinates(), -1, 0))
        found[index] = self.begin + np.arange(self.layout.threads)[:, None]
        return found.reshape(self.places.shape)

    def same(self, other: Owners) -> bool:
        """Say whether each thread touches only what it has touched itself in the other access."""
        if self.threads is None or other.threads is None:
            return False
        if self is other:
            return True
        (mine, my_threads), (theirs, their_threads) = self._bytes(), other._bytes()
        _, i, j = np.intersect1d(mine, theirs, return_indices=True)
        return bool((my_threads[i] == their_threads[j]).all())

    def _bytes(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the bytes that are touched, and the thread of each."""
        assert self.threads is not None
        touched = self.places >= 0
        places = self.places[touched][:, None] + np.arange(self.size)
        return places.reshape(-1), np.repeat(self.threads[touched], self.size)


@dataclass(frozen=True, eq=False)
class Access:
    """One access of ``tensor`` by ``agent``; of shared memory, ``offset`` elements behind the start
    of its buffer, of device memory, the box ``at`` some indices. ``home``: the block that has the
    memory, where it is another one."""

    agent: Agent
    kind: Kind
    proxy: Proxy
    tensor: ir.Tensor
    offset: int = 0
    owners: Owners | None = None
    at: tuple[int, ...] = ()
    home: Block | None = None

    @property
    def stage(self) -> int | None:
        """The first index into a buffer that consists of several tiles."""
        if not isinstance(self.tensor, ir.SharedTensor) or len(self.tensor.buffer.shape) < 3:
            return None
        return self.offset // math.prod(self.tensor.buffer.shape[1:])

    def conflicts(self, earlier: Access) -> str | None:
        """Return what is missing between an earlier access of the same bytes and this one, None
        where they are ordered."""
        if self.kind == earlier.kind == "read" or self._own(earlier):
            return None
        if earlier.agent.cluster is not self.agent.cluster:
            return "blocks of a grid run in any order, and at the same time"
        if not self._after(earlier):
            return self._unordered(earlier)
        generic = earlier.kind == "write" and earlier.proxy == "generic"
        if generic and self.proxy == "async":
            return self._unfenced(earlier)
        return None

    def _after(self, earlier: Access) -> bool:
        """Say whether an earlier access is known. That it is over is enough before a write where it
        has read, or where it is a copy that has landed, in the one memory that both write."""
        mark, clock = earlier.agent.mark, self.agent.clock
        landed = earlier.kind == "read" or earlier.agent.engine == "tma"
        return mark.known(clock) or (self.kind == "write" and landed and mark.known(clock.over))

    def _unfenced(self, earlier: Access) -> str | None:
        """Return what is missing between a write by threads and this access by an engine."""
        first, second = earlier.agent, self.agent
        if isinstance(self.tensor, ir.GlobalTensor):
            return f"fence.proxy_async orders no write to device memory before {second.noun}"
        if earlier.home:
            return f"fence.proxy_async orders no write to another block before {second.noun}"
        if first.mark.fenced(second.clock):
            return None
        return (
            f"{first.role} must call fence.proxy_async between {first.noun} and the barrier "
            f"that orders it before {second.noun}"
        )

    def _own(self, earlier: Access) -> bool:
        """Say whether each thread only meets itself."""
        mine, theirs = self.owners, earlier.owners
        if mine is None or theirs is None or self.agent.block != earlier.agent.block:
            return False
        # Threads with copies of an element all write it: each reads back what it wrote.
        return (mine is theirs and self.kind == "read") or mine.same(theirs)

    def _unordered(self, earlier: Access) -> str:
        first, second = earlier.agent, self.agent
        if first.engine == "tma":
            return _nobody(first, second)
        same = (first.role, first.block) == (second.role, second.block)
        if first.engine and (same or first.mark.issued(second.clock)):
            return f"wait_group has not made sure of {first.noun} before {_cause(second)}"
        if same:
            return f"no sync() of {first.role} lies between {first.noun} and {second.noun}"
        return f"no mbarrier or sync() leads from {first.noun} to {second.noun}"

    def unawaited(self, read: Access) -> str | None:
        """Say what is missing where bytes were read before this, the first write to them, which is
        a copy: who read them wants what it brings, and no barrier that holds it back."""
        return _nobody(self.agent, read.agent) if self.agent.engine == "tma" else None

    def unmet(self, earlier: Access) -> str:
        """Say what is missing behind an effect that one thread of this group has waited for."""
        first, second = earlier.agent, self.agent
        return (
            f"no sync() of {second.role} lies between the wait of one of its threads for "
            f"{first.noun} and {second.noun}"
        )

    def relaxed(self, earlier: Access, arrival: Agent) -> str:
        """Say what is missing where a relaxed arrival leads from an earlier access to this one."""
        rule = (
            f"orders no write before {self.agent.noun}"
            if earlier.kind == "write"
            else "orders a read by threads only with a sync() between the two"
        )
        return (
            f"{arrival.noun} is relaxed, and {rule}: it must say sem='release', and its wait "
            "scope='cluster'"
        )

    def verdict(self, earlier: Access, missing: str) -> tuple[str, dict[str, object]]:
        """Return message and facts of the race with an earlier access."""
        where = f" at {list(self.at)}" if self.at else ""
        where += f" (stage {self.stage})" if self.stage is not None else ""
        where += f" of block {self.home}" if self.home else ""
        first, second = earlier.agent, self.agent
        who = f"{first.noun} by {first.role}"
        who += f" of block {first.block}" if first.block != second.block else ""
        name = f" as {earlier.tensor.name}" if earlier.tensor.name != self.tensor.name else ""
        message = (
            f"{second.noun} {self.kind}s {self.tensor.name}{where}, which {who} "
            f"{earlier.kind}s{name}: {missing}"
        )
        facts: dict[str, object] = {
            "tensor": self.tensor.name,
            "stage": self.stage,
            "first": earlier.facts(),
            "second": self.facts(),
            "missing": missing,
        }
        return message, facts

    def facts(self) -> dict[str, object]:
        """Return the access in a form that tests and pages can use."""
        what = {"kind": self.kind, "tensor": self.tensor.name, "stage": self.stage}
        return self.agent.facts() | {"proxy": self.proxy} | what


def _nobody(copy: Agent, other: Agent) -> str:
    signals = " or ".join(copy.signals) or "an mbarrier"
    return f"nobody has waited on {signals} for {copy.noun} before {other.noun}"


def _cause(agent: Agent) -> str:
    return f"what {agent.noun} waited for" if agent.engine else agent.noun
