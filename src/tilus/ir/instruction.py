# SPDX-License-Identifier: Apache-2.0
"""What an instruction is: one class per instruction, with both of its meanings, and the interfaces
it speaks to.

An instruction's class name is the name kernels use. Its fields, in order, are the kernel's
arguments; ``out``, where there is one, is what the call returns and is made by
:meth:`Instruction.result`. Passes know instructions only by their effects and by the layouts they
ask for in :meth:`Instruction.constrain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Protocol

from tilus.errors import LanguageError, Location
from tilus.ir.expr import ExprLike, Scalar, describe
from tilus.ir.stmt import Stmt
from tilus.ir.tensor import Barrier, GlobalTensor, RegisterTensor, SharedTensor, Threads

if TYPE_CHECKING:
    import numpy as np

    from tilus.ir.function import Function
    from tilus.layout import RegisterLayout, SharedLayout


Proxy = Literal["generic", "async"]
"""The path that an access of memory takes; PTX ISA, "Async proxy"."""


@dataclass(frozen=True)
class Effect:
    """An instruction reads, writes or accumulates into the tensor in ``field``, or is its end.

    ``done`` names what makes an asynchronous access complete: the field of an mbarrier, or
    ``"group"`` for commit groups.
    """

    kind: Literal["read", "write", "accumulate", "free"]
    field: str
    done: str | None = None


def reads(field: str, done: str | None = None) -> Effect:
    """Declare that the instruction reads the tensor in ``field``."""
    return Effect("read", field, done)


def writes(field: str, done: str | None = None) -> Effect:
    """Declare that the instruction writes the tensor in ``field``."""
    return Effect("write", field, done)


def accumulates(field: str, done: str | None = None) -> Effect:
    """Declare that the instruction adds to the tensor in ``field``, or overwrites it where its
    field ``scale_d`` is false."""
    return Effect("accumulate", field, done)


def frees(field: str) -> Effect:
    """Declare that nothing uses the tensor in ``field`` any more."""
    return Effect("free", field)


@dataclass(frozen=True)
class Site:
    """Where an instruction is called: the variable its result is assigned to, the running threads,
    the place."""

    name: str
    threads: Threads
    location: Location


@dataclass(frozen=True, eq=False, kw_only=True)
class Instruction(Stmt):
    """Base of all instructions; a subclass is found by the registry as soon as it exists.

    ``issuer``: who carries it out: ``"thread"`` (any threads, each for itself), ``"warp"``,
    ``"warpgroup"``, ``"group"`` (the current one, together), ``"block"`` (all threads of the
    block, outside of groups) or ``"single"`` (one thread, which alone may wait for what it has
    started). ``proxy``: ``"generic"`` or ``"async"``, the path its memory accesses
    take. ``variadic``: the last parameter takes all further positional arguments, as a tuple.
    ``operators``: what the language means by it on tiles, where that is not its name; see
    :func:`implementing`. ``peers``: it takes tensors in the shared memory of other blocks.
    """

    issuer: ClassVar[Literal["thread", "warp", "warpgroup", "group", "block", "single"]] = "thread"
    proxy: ClassVar[Literal["generic", "async"]] = "generic"
    effects: ClassVar[tuple[Effect, ...]] = ()
    operators: ClassVar[tuple[str, ...]] = ()
    variadic: ClassVar[bool] = False
    peers: ClassVar[bool] = False
    threads: Threads

    @classmethod
    def parameters(cls) -> tuple[str, ...]:
        """Return the names a kernel may pass, in positional order."""
        own = [f.name for f in fields(cls) if f.name not in ("location", "threads", "out")]
        return tuple(own)

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> Any:
        """Return the tensor or barrier that the call yields, for classes with a field ``out``.

        ``arguments`` holds exactly what the kernel passed; ``site`` says where and for whom.
        """
        raise NotImplementedError(cls.__name__)

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        """Return what the call means on numbers; None where it is an instruction on tiles."""
        return None

    def verify(self) -> None:
        """Raise :class:`LanguageError` where a rule of the instruction is broken; see
        :meth:`require`."""

    def verify_within(self, function: Function) -> None:
        """Raise :class:`LanguageError` where the kernel around it breaks a rule of the instruction:
        the size of its clusters, what else it does."""

    def constrain(self, c: Constraints) -> None:
        """Ask for the register and shared-memory layouts the hardware wants."""

    def split_init(self) -> tuple[Instruction, Instruction] | None:
        """Return (this without its initial value, what gives the initial value), where the value is
        zero.

        The accumulator pass then lets the first product overwrite instead, and fills only where no
        product came.
        """
        return None

    def scratch_bytes(self, layouts: Mapping[RegisterTensor, RegisterLayout]) -> int:
        """Return how much shared memory it needs for itself while it runs.

        Instructions of the same threads share it: whoever writes there begins with a barrier of its
        threads.
        """
        return 0

    def emit(self, e: Emitter) -> None:
        """Write the instruction as CUDA C++."""
        raise NotImplementedError(type(self).__name__)

    def simulate(self, m: Machine) -> Wait | None:
        """Carry the instruction out on the simulator; return what it must wait for, if anything."""
        raise NotImplementedError(type(self).__name__)

    def require(self, condition: bool, what: str, rule: str, value: object) -> None:
        """Raise a :class:`LanguageError` ``<op>: <what> must be <rule>, got <value>`` unless
        ``condition`` holds."""
        if not condition:
            name = type(self).__name__
            found = value if isinstance(value, str) else describe(value)
            raise LanguageError(f"{name}: {what} must be {rule}, got {found}", self.location)


def instructions() -> Iterator[type[Instruction]]:
    """Yield every instruction class that has been defined."""
    pending = list(Instruction.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if not cls.__name__.startswith("_"):
            yield cls


def implementing(operator: str) -> type[Instruction]:
    """Return the class that carries out an operator on register tiles.

    Those of Python take the symbol (``+``, ``neg``, ``abs``) and the operands. ``=`` gives the
    first tile the values of the second, ``new`` allocates a tile, ``move`` changes its layout.
    """
    found = next((cls for cls in instructions() if operator in cls.operators), None)
    if found is None:
        raise LanguageError(f"'{operator}' is no operator of register tiles")
    return found


class Constraints(Protocol):
    """What an instruction may ask of the layout passes."""

    def register(self, tensor: RegisterTensor, layout: RegisterLayout) -> None:
        """Demand exactly this register layout."""

    def same(self, a: RegisterTensor, b: RegisterTensor) -> None:
        """Demand one register layout for both tensors."""

    def like(self, operand: RegisterTensor, tile: RegisterTensor) -> None:
        """Demand that ``operand`` lies as ``tile`` does, or as the part of it that NumPy's
        broadcasting would repeat."""

    def reduced(self, out: RegisterTensor, x: RegisterTensor, dims: tuple[int, ...]) -> None:
        """Say that ``out`` lies as ``x`` does without ``dims``."""

    def part(self, out: RegisterTensor, x: RegisterTensor, offsets: Sequence[int]) -> None:
        """Say that ``out`` lies as the box of its shape at ``offsets`` of ``x`` does."""

    def laid_out(self, tensor: SharedTensor, layout: SharedLayout) -> None:
        """Demand exactly this layout of the tiles of ``tensor``'s buffer."""

    def same_rows(self, tensor: SharedTensor, other: SharedTensor) -> None:
        """Say that tiles of both buffers, which have the same memory, are made of the same rows."""

    def swizzled(self, tensor: SharedTensor, *, needed: bool = True) -> None:
        """Demand the swizzled tile layout that TMA writes and WGMMA reads; where it is not
        ``needed`` and rows are no multiple of 32 bytes, rows that follow one another."""

    def touched(self, tensor: SharedTensor, registers: RegisterTensor) -> None:
        """Say that threads copy between ``tensor`` and ``registers``: where the layout of the
        tile is open, no bank is to be asked for several words."""

    def tensor_map(self, view: GlobalTensor, tile: SharedTensor) -> None:
        """Demand a host-made tensor map that copies boxes of ``view`` to or from ``tile``."""


class Emitter(Protocol):
    """What an instruction may ask of the CUDA emitter."""

    threads: Threads
    """The threads that run the current statement."""

    def line(self, text: str) -> None:
        """Append one line of code at the current indentation."""

    def block(self, header: str) -> AbstractContextManager[None]:
        """Open ``header {``; the block closes with the context."""

    def helper(self, text: str) -> None:
        """Have the device function ``text`` defined once, before the kernel."""

    def fresh(self, stem: str) -> str:
        """Return a new C identifier that begins with ``stem``."""

    def one_thread(self) -> AbstractContextManager[None]:
        """Have one thread of the current group, a warp or a single thread, run the lines inside."""

    def thread(self) -> str:
        """Return the number of the running thread within the current group as a C expression."""

    def sync_threads(self) -> None:
        """Write the barrier of the current group."""

    def declare(self, tensor: RegisterTensor, init: Scalar | None) -> None:
        """Declare the registers of ``tensor``, with every element ``init`` where it is given.

        Without ``init``, a tensor that is declared already is left as it is.
        """

    def expr(self, x: ExprLike) -> str:
        """Return ``x`` as a C expression."""

    def signed(self, x: ExprLike) -> bool:
        """Return whether ``x`` may be negative, for all that the passes know."""

    def registers(self, tensor: RegisterTensor) -> str:
        """Return the name of the C array that holds this thread's part of ``tensor``."""

    def shared(self, tensor: SharedTensor, extra: int = 0) -> str:
        """Return the 32-bit shared-memory address ``extra`` bytes behind the start of ``tensor`` as
        a C expression."""

    def barrier(self, barrier: Barrier) -> str:
        """Return the 32-bit shared-memory address of ``barrier`` as a C expression."""

    def watch(self, barrier: Barrier, parity: ExprLike) -> Sequence[str]:
        """Say that the instruction waits for a phase; return what a wait that reports where it
        hangs is told besides, nothing in an ordinary build."""

    def pointer(self, view: GlobalTensor) -> str:
        """Return the C pointer behind ``view``."""

    def tensor_map(self, view: GlobalTensor, tile: SharedTensor) -> str:
        """Return the address of the tensor map for boxes of ``view`` in the shape of ``tile`` as a
        C expression."""

    def register_layout(self, tensor: RegisterTensor) -> RegisterLayout:
        """Return the layout the passes chose."""

    def shared_layout(self, tensor: SharedTensor) -> SharedLayout:
        """Return the layout of one tile of ``tensor``'s buffer."""

    def scratch(self) -> str:
        """Return the shared memory that :meth:`Instruction.scratch_bytes` asked for, 16-byte
        aligned, as a C expression of type ``unsigned char *``."""


@dataclass(frozen=True)
class Wait:
    """What a group waits for: it goes on once ``ready()`` is true.

    ``describe`` is called when nothing can move any more, so that a deadlock names what is missing;
    ``passed`` when the group goes on.
    """

    ready: Callable[[], bool]
    describe: Callable[[], str]
    kind: str = "wait"
    facts: Callable[[], dict[str, object]] = dict
    passed: Callable[[], None] = lambda: None


class Machine(Protocol):
    """What an instruction may ask of the simulator.

    Arrays are NumPy arrays in logical (row, column) order.
    """

    threads: Threads
    """The threads that run the current statement."""

    rank: int
    """The number of the block in its cluster."""

    def value(self, x: ExprLike) -> Scalar:
        """Compute a scalar in the current group."""

    def fail(self, verdict: str, message: str, **facts: object) -> NoReturn:
        """Stop the simulation with a verdict on the kernel, for the current place and role."""

    def registers(self, tensor: RegisterTensor) -> np.ndarray:
        """Return the tile held by the current group; writing to the array writes the registers."""

    def define(self, tensor: RegisterTensor, values: np.ndarray) -> None:
        """Give a register tile its values, converted to its type."""

    def multiply(self, flop: float) -> None:
        """Charge the current group for ``flop`` operations that its warps do on the tensor cores
        (``mma.sync``)."""

    def load_shared(
        self,
        tensor: SharedTensor,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: RegisterTensor | None = None,
    ) -> np.ndarray:
        """Read a tile of shared memory through its layout, now.

        ``rank``: of the block of the cluster that is read; None is the own one. ``by``: the
        register tile whose layout says which thread reads which element, where threads do.
        """

    def store_shared(
        self,
        tensor: SharedTensor,
        values: np.ndarray,
        proxy: Proxy = "generic",
        *,
        rank: int | None = None,
        by: RegisterTensor | None = None,
    ) -> None:
        """Write a tile of shared memory through its layout, now; parameters as in
        :meth:`load_shared`."""

    def fence_proxy(self) -> None:
        """Make what the current threads have written, each by itself, visible to the async
        proxy."""

    def fence_registers(self) -> None:
        """Order what the current warp group did to its registers before its next products."""

    def load_global(
        self,
        view: GlobalTensor,
        offsets: list[int],
        shape: tuple[int, ...],
        *,
        by: RegisterTensor | None = None,
    ) -> np.ndarray:
        """Read a box of a view, zero outside of it; ``by`` as in :meth:`load_shared`."""

    def store_global(
        self,
        view: GlobalTensor,
        offsets: list[int],
        values: np.ndarray,
        *,
        by: RegisterTensor | None = None,
    ) -> None:
        """Write the part of a box that lies inside the view; ``by`` as in :meth:`load_shared`."""

    def freeze(
        self, tensor: SharedTensor, kind: Literal["read", "write"], *, rank: int | None = None
    ) -> SharedTensor:
        """Return the tensor with its run-time offset computed, for the effect that is launched
        next: it will read or write it when it lands, in the block of a rank."""

    def init_barriers(self, barrier: Barrier) -> None:
        """Initialise the array of ``barrier``."""

    def arrive(
        self,
        barrier: Barrier,
        count: int,
        expect_bytes: int = 0,
        *,
        rank: int | None = None,
        relaxed: bool = False,
    ) -> None:
        """Count ``count`` arrivals after adding ``expect_bytes`` to the pending bytes, at the
        barrier of the block of a rank. They release what was done before, or, ``relaxed``, say only
        which reads are over."""

    def complete_bytes(self, barrier: Barrier, nbytes: int) -> None:
        """Take ``nbytes`` off the pending bytes of a (frozen) barrier's current phase; an effect
        does, when it lands."""

    def freeze_barrier(self, barrier: Barrier, *, rank: int | None = None) -> Barrier:
        """Return the barrier with its run-time index computed, for an effect that lands later; that
        of the block of a rank."""

    def wait_barrier(self, barrier: Barrier, parity: int, *, cluster: bool = False) -> Wait:
        """Return the wait for the phase of ``parity`` of ``barrier`` to be over, which sees what
        threads of the block released, or of the whole ``cluster``."""

    def wait_threads(self, threads: Threads) -> Wait:
        """Return the wait until all of ``threads`` have come to a barrier of theirs."""

    def wait_cluster(self) -> Wait:
        """Return the wait until all threads of all blocks of the cluster have come to its
        barrier."""

    def launch(
        self,
        engine: Literal["tma", "wgmma", "store"],
        land: Callable[[], None],
        *,
        amount: float,
        what: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Hand an asynchronous effect to an engine; ``land`` runs when the schedule says.

        ``amount``: bytes, or FLOP for wgmma. With ``then`` it has two steps: a bulk store's
        ``land`` reads shared memory, and ``then`` writes device memory, later.
        """

    def commit(self, engine: Literal["wgmma", "store"]) -> None:
        """Close the effects launched so far by this group into one commit group."""

    def wait_commits(
        self, engine: Literal["wgmma", "store"], pending: int, *, read: bool = False
    ) -> Wait:
        """Return the wait until at most ``pending`` commit groups of this group have not landed;
        with ``read``, until all others have done their first step."""
