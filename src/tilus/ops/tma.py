# SPDX-License-Identifier: Apache-2.0
"""TMA, the tensor memory accelerator: copies of boxes between device and shared memory.

PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tilus.dtypes import int32, uint16
from tilus.ir import (
    Barrier,
    Constraints,
    Emitter,
    ExprLike,
    Function,
    GlobalTensor,
    Instruction,
    Machine,
    SharedTensor,
    Wait,
    as_integer,
    cast,
    reads,
    writes,
)
from tilus.ops.cluster import blocks_in, require_mask, require_sync

if TYPE_CHECKING:
    import numpy as np

MAX_BOX = 256  # elements along one dimension of a box, CUDA driver API, cuTensorMapEncodeTiled

MAX_GROUPS = 7  # as for WGMMA; PTX names no limit for bulk groups

POLICIES = ("evict_first", "evict_normal", "evict_last")
"""What may be asked of the L2 cache, PTX ISA, "createpolicy"."""

MAX_RANK = 5
"""Dimensions of a tensor map, CUDA driver API, cuTensorMapEncodeTiled."""

COORDINATES = ("column", "row", "plane", "volume", "index")
"""Names of a box's offsets in device functions, fastest dimension first, as PTX takes them."""


@dataclass(frozen=True)
class Store:
    """The device function that stores a box to a view of ``rank`` dimensions."""

    rank: int

    @property
    def name(self) -> str:
        """Name of the device function."""
        return f"tma_store_{self.rank}d"

    @property
    def helper(self) -> str:
        """Its text."""
        head = f"__device__ __forceinline__ void {self.name}("
        pad = " " * len(head)
        at, inputs, numbers = coordinates(self.rank, 1)
        copy, src = f"cp.async.bulk.tensor.{self.rank}d", f"%{self.rank + 1}"
        return f"""\
{head}const CUtensorMap *map, {at},
{pad}unsigned src) {{
  asm volatile("{copy}.global.shared::cta.bulk_group [%0, {numbers}], [{src}];"
               :: "l"(map), {inputs}, "r"(src) : "memory");
}}"""


@dataclass(frozen=True)
class Load:
    """The device function of a form of the load: from ``rank`` dimensions, to one block or several,
    asking L2 or not."""

    rank: int
    multicast: bool
    hinted: bool

    @property
    def name(self) -> str:
        """Name of the device function."""
        return f"tma_load_{self.rank}d" + "_multicast" * self.multicast + "_hinted" * self.hinted

    @property
    def helper(self) -> str:
        """Its text; behind ``barrier`` it takes the mask, then the policy, where it has them."""
        head = f"__device__ __forceinline__ void {self.name}("
        more = [("unsigned short mask", "h", ".multicast::cluster")] * self.multicast
        more += [("unsigned long long policy", "l", ".L2::cache_hint")] * self.hinted
        pad = " " * len(head)
        parameters = "".join(f",\n{pad}{x}" for x, _, _ in more)
        operands = "".join(f", %{self.rank + 3 + i}" for i in range(len(more)))
        inputs = ", ".join(f'"{kind}"({x.split()[-1]})' for x, kind, _ in more)
        inputs = f",\n                  {inputs}" if more else ""
        words = "".join(word for _, _, word in more)
        at, offsets, numbers = coordinates(self.rank, 2)
        first, rest = at.split(", ", 1)
        copy = f"cp.async.bulk.tensor.{self.rank}d.shared::cluster.global"
        return f"""\
{head}unsigned dst, const CUtensorMap *map, {first},
{pad}{rest}, unsigned barrier{parameters}) {{
  asm volatile("{copy}.mbarrier::complete_tx::bytes"
               "{words} [%0], [%1, {numbers}], [%{self.rank + 2}]{operands};"
               :: "r"(dst), "l"(map), {offsets}, "r"(barrier){inputs} : "memory");
}}"""


def coordinates(rank: int, first: int) -> tuple[str, str, str]:
    """Return the offsets of a box as parameters, as inputs of ``asm``, and as its operands, which
    begin with number ``first``."""
    names = COORDINATES[:rank]
    numbers = ", ".join(f"%{first + i}" for i in range(rank))
    parameters, inputs = (f"int {n}" for n in names), (f'"r"({n})' for n in names)
    return ", ".join(parameters), ", ".join(inputs), f"{{{numbers}}}"


def policy(name: str) -> str:
    """Return the device function of a cache policy."""
    return f"""\
__device__ __forceinline__ unsigned long long {name}() {{
  unsigned long long policy;
  asm("createpolicy.fractional.L2::{name}.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}}"""


def require_box(
    op: Instruction,
    view_name: str,
    view: GlobalTensor,
    tile_name: str,
    tile: SharedTensor,
    offsets: Sequence[ExprLike],
) -> None:
    """Refuse a view, a tile and offsets that TMA cannot copy between."""
    rank = len(view.shape)
    rule = f"a view of 2 to {MAX_RANK} dimensions"
    op.require(2 <= rank <= MAX_RANK, view_name, rule, f"{rank} dimensions")
    good = len(tile.shape) in (2, 3)
    op.require(good, tile_name, "a 2-D tile, or several of them", f"{len(tile.shape)} dimensions")
    rule = "a tile that is not transposed"
    op.require(not tile.transposed, tile_name, rule, "a transposed view")
    op.require(len(offsets) == rank, "offsets", f"a list of {rank}", len(offsets))
    for x in offsets:
        as_integer(x, "an offset")
    op.require(view.dtype == tile.dtype, tile_name, f"of type {view.dtype}", tile.dtype)
    rows = rows_of(tile)
    op.require(rows <= MAX_BOX, tile_name, f"at most {MAX_BOX} rows", rows)


def rows_of(tile: SharedTensor) -> int:
    """Return the rows of a tile, or of several that follow one another."""
    return prod(tile.shape[:-1])


def box(view: GlobalTensor, tile: SharedTensor) -> tuple[int, ...]:
    """Return the elements of a view that a tile has room for: one in each further dimension."""
    return (1,) * (len(view.shape) - 2) + (rows_of(tile), tile.shape[-1])


def panels(
    e: Emitter, tile: SharedTensor, offsets: Sequence[ExprLike]
) -> Iterator[tuple[str, str]]:
    """Yield, for every copy that a tile takes, its address, and its offsets in the view, as C: one
    for each panel, or one for all tiles that have only one."""
    layout, (*outer, row, column) = e.shared_layout(tile), (cast(x, int32) for x in offsets)
    copies = (
        [tile]
        if len(tile.shape) == 2 or layout.panels == 1
        else [tile[i] for i in range(tile.tiles)]
    )
    for i, part in enumerate(copies):
        slower = [e.expr(x) for x in (row + i * layout.rows, *reversed(outer))]
        for panel in range(layout.panels):
            address = e.shared(part, panel * layout.panel_bytes)
            yield address, ", ".join([e.expr(column + panel * layout.panel_columns), *slower])


@dataclass(frozen=True, eq=False, kw_only=True)
class global_to_shared(Instruction):
    """Start copying a box of ``src`` at ``offsets`` into ``dst``; ``mbarrier`` counts its bytes.

    ``offsets`` count elements, one per dimension; a view of three dimensions or more gives a slice
    of its last two. Rows of ``dst`` are a multiple of 32 bytes. Tiles that follow one another,
    ``dst`` with three dimensions, take the rows of the box in turn. One thread issues the copy; in
    a whole warp the instruction elects it. Elements outside of ``src`` arrive as zeros and count as
    bytes. The first column of the box is at a multiple of 16 bytes, before the view or in it. The
    tensor map of ``src`` is made by the host, so the view depends on kernel parameters only; its
    rows and its base lie at multiples of 16 bytes.

    With ``multicast_mask``, every block of the cluster whose bit is set gets the box, at its own
    ``dst``, and all bytes at its own ``mbarrier``. ``cache_policy`` asks the L2 cache to keep what
    was read longest (``"evict_last"``), shortest (``"evict_first"``), or as ever.

    NumPy: dst.reshape(-1, columns)[...] = src[box at offsets], zero outside of src
    PTX:   cp.async.bulk.tensor
    """

    issuer, proxy = "thread", "async"
    effects = (reads("src"), writes("dst", done="mbarrier"))
    src: GlobalTensor
    dst: SharedTensor
    offsets: Sequence[ExprLike]
    mbarrier: Barrier
    multicast_mask: ExprLike | None = None
    cache_policy: str | None = None

    def verify(self) -> None:
        require_box(self, "src", self.src, "dst", self.dst, self.offsets)
        self.require(isinstance(self.mbarrier, Barrier), "mbarrier", "one mbarrier", self.mbarrier)
        if self.multicast_mask is not None:
            as_integer(self.multicast_mask, "a mask")
        good = self.cache_policy is None or self.cache_policy in POLICIES
        rule = f"None or one of {', '.join(POLICIES)}"
        self.require(good, "cache_policy", rule, repr(self.cache_policy))
        count = self.threads.count
        self.require(
            count in (1, 32), "the current group", "one thread or one warp", f"{count} threads"
        )

    def verify_within(self, function: Function) -> None:
        if self.multicast_mask is not None:
            require_mask(self, self.multicast_mask, function)
            require_sync(self, function)

    def constrain(self, c: Constraints) -> None:
        c.swizzled(self.dst)
        c.tensor_map(self.src, self.dst)

    def emit(self, e: Emitter) -> None:
        load, tensor_map = self._form(e), e.tensor_map(self.src, self.dst)
        more = [e.barrier(self.mbarrier)]
        if self.multicast_mask is not None:
            more.append(e.expr(cast(self.multicast_mask, uint16)))
        if self.cache_policy is not None:
            more.append(f"{self.cache_policy}()")
        with e.one_thread():
            for dst, at in panels(e, self.dst, self.offsets):
                e.line(f"{load}({dst}, {tensor_map}, {at}, {', '.join(more)});")

    def _form(self, e: Emitter) -> str:
        """Have the device functions of this form written; return the name to call."""
        multicast, hinted = self.multicast_mask is not None, self.cache_policy is not None
        load = Load(len(self.src.shape), multicast, hinted)
        if self.cache_policy is not None:
            e.helper(policy(self.cache_policy))
        e.helper(load.helper)
        return load.name

    def simulate(self, m: Machine) -> None:
        mask = self.multicast_mask
        for rank in (m.rank,) if mask is None else blocks_in(m, mask):
            self._launch(m, rank)

    def _launch(self, m: Machine, rank: int) -> None:
        """Start what one block gets: when its box is there, another one's may not be."""
        offsets = [int(m.value(x)) for x in self.offsets]
        dst = m.freeze(self.dst, "write", rank=rank)
        barrier = m.freeze_barrier(self.mbarrier, rank=rank)

        def land() -> None:
            values = m.load_global(self.src, offsets, box(self.src, dst))
            m.store_shared(dst, values.reshape(dst.shape), proxy="async", rank=rank)
            m.complete_bytes(barrier, dst.nbytes)

        m.launch("tma", land, amount=dst.nbytes, what=f"{self.src.name} -> {dst.name}")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Single(Instruction):
    """What the instructions of bulk stores share: one thread issues them, always the same one."""

    issuer, proxy = "single", "async"

    def verify(self) -> None:
        rule = "one thread (self.single_thread()): it alone can commit its copies and wait for them"
        count = self.threads.count
        self.require(count == 1, "the current group", rule, f"{count} threads")


@dataclass(frozen=True, eq=False, kw_only=True)
class shared_to_global(_Single):
    """Start copying the tile ``src`` to the box of ``dst`` at ``offsets``, for a commit group.

    One thread issues the copy, commits it and waits for it. What lies outside of ``dst`` is not
    written, as long as rows of ``dst`` end at a multiple of 16 bytes: hardware writes no less, and
    would overwrite the rest of a row's last piece. Where rows end elsewhere, the launch refuses a
    box that reaches beyond them, and one that begins where it cannot know: store through a view of
    the columns up to such a multiple, and the others by threads. The first column of a box is at
    such a multiple, too. The copy reads shared memory through the async proxy: each thread that
    wrote ``src`` has said :class:`~tilus.ops.fence.proxy_async`, and then met the issuing thread at
    a barrier. For the view the rules of :class:`global_to_shared` hold.

    NumPy: dst[box at offsets] = src, inside of dst
    PTX:   cp.async.bulk.tensor
    """

    effects = (reads("src", done="group"), writes("dst", done="group"))
    src: SharedTensor
    dst: GlobalTensor
    offsets: Sequence[ExprLike]

    def verify(self) -> None:
        super().verify()
        require_box(self, "dst", self.dst, "src", self.src, self.offsets)

    def constrain(self, c: Constraints) -> None:
        c.swizzled(self.src, needed=False)
        c.tensor_map(self.dst, self.src)

    def emit(self, e: Emitter) -> None:
        store, tensor_map = Store(len(self.dst.shape)), e.tensor_map(self.dst, self.src)
        e.helper(store.helper)
        for src, at in panels(e, self.src, self.offsets):
            e.line(f"{store.name}({tensor_map}, {at}, {src});")

    def simulate(self, m: Machine) -> None:
        offsets, src = [int(m.value(x)) for x in self.offsets], m.freeze(self.src, "read")
        taken: list[np.ndarray] = []

        def read() -> None:
            taken.append(m.load_shared(src, proxy="async"))

        def write() -> None:
            m.store_global(self.dst, offsets, taken.pop().reshape(box(self.dst, src)))

        what = f"{src.name} -> {self.dst.name}"
        m.launch("store", read, then=write, amount=src.nbytes, what=what)


@dataclass(frozen=True, eq=False, kw_only=True)
class commit_group(_Single):
    """Close the stores that this thread has started so far into one group.

    NumPy: none
    PTX:   cp.async.bulk.commit_group
    """

    def emit(self, e: Emitter) -> None:
        e.line('asm volatile("cp.async.bulk.commit_group;" ::: "memory");')

    def simulate(self, m: Machine) -> None:
        m.commit("store")


@dataclass(frozen=True, eq=False, kw_only=True)
class wait_group(_Single):
    """Wait until at most ``n`` of the groups that this thread has committed are unfinished.

    With ``read=True``, until all but ``n`` have been read from shared memory, which may then be
    written again; their writes to device memory may still be under way.

    NumPy: none
    PTX:   cp.async.bulk.wait_group
    """

    n: int
    read: bool = False

    def verify(self) -> None:
        super().verify()
        good = isinstance(self.n, int) and 0 <= self.n <= MAX_GROUPS
        self.require(good, "n", f"a compile-time integer from 0 to {MAX_GROUPS}", self.n)
        self.require(isinstance(self.read, bool), "read", "True or False", self.read)

    def emit(self, e: Emitter) -> None:
        read = ".read" if self.read else ""
        e.line(f'asm volatile("cp.async.bulk.wait_group{read} {self.n};" ::: "memory");')

    def simulate(self, m: Machine) -> Wait:
        return m.wait_commits("store", self.n, read=self.read)
