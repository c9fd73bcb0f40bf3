# SPDX-License-Identifier: Apache-2.0
"""A block's memory as instructions and effects come to it: each access checked and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from tilus import ir
from tilus.simulator.access import Access, Agent, Kind, Owners, Proxy
from tilus.simulator.acting import Acting, Array, Cluster
from tilus.simulator.group import Block
from tilus.simulator.memory import Geometry, SharedMemory
from tilus.simulator.pieces import check_begin, check_pieces
from tilus.simulator.schedule import Schedule
from tilus.simulator.shadow import Shadow
from tilus.simulator.trace import Trace


class LoadStore(Acting):
    """Shared memory, of the block and of its peers, and device memory."""

    def __init__(self, cluster: Cluster, schedule: Schedule, block: Block, trace: Trace) -> None:
        super().__init__(cluster, schedule, block, trace)
        self._shared, self._shadow = SharedMemory(self._plan), Shadow(self._plan.shared_bytes)
        self._global = cluster.memory
        self._parts: dict[tuple[ir.SharedTensor, int], ir.SharedTensor] = {}
        self._views: dict[ir.GlobalTensor, tuple[list[int], list[int]]] = {}

    # Shared memory

    def load_shared(
        self,
        tensor: ir.SharedTensor,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: ir.RegisterTensor | None = None,
    ) -> Array:
        home, offset = self._peer(rank), self._offset(tensor)
        if proxy == "generic":  # an effect's accesses have been entered when it was launched
            home._enter(Access(self.agent, "read", proxy, tensor, offset), self, by)
        self.work.shared += tensor.nbytes
        self.work.reads += [_region(tensor, offset)] * (home is self)
        return home._shared.read(tensor, offset)

    def store_shared(
        self,
        tensor: ir.SharedTensor,
        values: Array,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: ir.RegisterTensor | None = None,
    ) -> None:
        home, offset = self._peer(rank), self._offset(tensor)
        if proxy == "generic":
            home._enter(Access(self.agent, "write", proxy, tensor, offset), self, by)
        self.work.shared += tensor.nbytes
        self.work.writes += [_region(tensor, offset)] * (home is self)
        home._shared.write(tensor, offset, values)

    def freeze(
        self, tensor: ir.SharedTensor, kind: Kind, *, rank: int | None = None
    ) -> ir.SharedTensor:
        self._frozen.append((kind, tensor, self._peer(rank)))
        at = tensor, self._offset(tensor)
        if at not in self._parts:
            self._parts[at] = replace(tensor, offset=ir.as_expr(at[1]))
        return self._parts[at]

    def fence_proxy(self) -> None:
        self._known.fence(self._atoms)

    def _enter(self, access: Access, actor: LoadStore, by: ir.RegisterTensor | None) -> None:
        """Check and remember an access of this block's shared memory by ``actor``."""
        if actor is not self:
            self._check_begun(actor, access.agent)
            self.visited.append((access.agent, access.agent.mark, access.kind == "read"))
            access = replace(access, home=self.block)
        tensor = access.tensor
        assert isinstance(tensor, ir.SharedTensor)
        if by is not None:
            layout, begin = self._plan.registers[by], actor.threads.begin
            owners = self._shared.owners(tensor, access.offset, layout, begin)
            access = replace(access, owners=owners)
        where = self._shared.intervals(tensor, access.offset)
        conflict = self._shadow.enter(access, where)
        if conflict:
            earlier, missing = conflict
            if actor.waited_alone(earlier.agent):
                missing = access.unmet(earlier)
            actor._refuse(access, earlier, missing)

    def _refuse(self, access: Access, earlier: Access, missing: str) -> NoReturn:
        """Raise the race of an access with an earlier one."""
        clock = access.agent.clock
        for arrival, released in self._cluster.relaxed:
            if arrival.mark.known(clock.before) and earlier.agent.mark.known(released):
                missing = access.relaxed(earlier, arrival)
                break
        message, facts = access.verdict(earlier, missing)
        self.fail("race", message, **facts)

    def _check_begun(self, actor: LoadStore, agent: Agent) -> None:
        """Refuse a peer's access of this block's memory where the block may not have begun yet."""
        if not self._known.begun(self.rank, agent.clock):
            message = (
                "a peer's shared memory is used before the cluster knows it: no cluster.sync() "
                f"says that block {self.block} has begun"
            )
            actor.fail("protocol", message, peer=self.block)

    def waited_alone(self, effect: Agent) -> bool:
        """Say whether a thread of the acting group has waited for an effect, but not all of it."""
        some = self._known.release(self._atoms)
        return effect.engine is not None and effect.mark.known(some)

    def _offset(self, tensor: ir.SharedTensor) -> int:
        offset, size = int(self.value(tensor.offset)), tensor.nbytes // tensor.dtype.nbytes
        room = tensor.buffer.nbytes // tensor.dtype.nbytes
        if not 0 <= offset <= room - size:
            self.fail("protocol", f"index of {tensor.name} out of range", name=tensor.name)
        return offset

    # Device memory

    def load_global(
        self,
        view: ir.GlobalTensor,
        offsets: list[int],
        shape: tuple[int, ...],
        *,
        by: ir.RegisterTensor | None = None,
    ) -> Array:
        geometry = self._geometry(view, offsets)
        if self.agent.engine:
            check_begin(self.fail, view, geometry)
        values = self._global.read(view, geometry, shape)
        self._enter_global("read", view, geometry, shape, by)
        self.work.loaded += values.nbytes
        return values

    def store_global(
        self,
        view: ir.GlobalTensor,
        offsets: list[int],
        values: Array,
        *,
        by: ir.RegisterTensor | None = None,
    ) -> None:
        geometry = self._geometry(view, offsets)
        if self.agent.engine:
            check_pieces(self.fail, view, geometry, values.shape[-1])
        self.work.stored += values.nbytes
        self._enter_global("write", view, geometry, values.shape, by)
        self._global.write(view, geometry, values)

    def _enter_global(
        self,
        kind: Kind,
        view: ir.GlobalTensor,
        geometry: Geometry,
        box: tuple[int, ...],
        by: ir.RegisterTensor | None,
    ) -> None:
        """Check and remember an access of device memory that the kernel writes."""
        if not self._global.remembers(view):
            return
        owners = None
        if by is not None:
            places = geometry.places(box) * view.dtype.nbytes
            layout, begin = self._plan.registers[by], self.threads.begin
            owners = Owners(places, view.dtype.nbytes, layout, begin)
        proxy: Proxy = "async" if self.agent.engine else "generic"
        access = Access(self.agent, kind, proxy, view, 0, owners, tuple(geometry.offsets))
        conflict = self._global.enter(access, view, geometry, box)
        if conflict:
            self._refuse(access, *conflict)

    def _geometry(self, view: ir.GlobalTensor, offsets: Sequence[int]) -> Geometry:
        if view not in self._views:  # they depend on the kernel's parameters alone
            shape, strides = ([int(self.value(x)) for x in xs] for xs in (view.shape, view.strides))
            self._views[view] = shape, strides
        return Geometry(*self._views[view], offsets)


def _region(tensor: ir.SharedTensor, offset: int) -> ir.Region:
    begin = offset * tensor.dtype.nbytes
    return ir.Region(tensor.name, begin, begin + tensor.nbytes)
