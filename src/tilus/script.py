# SPDX-License-Identifier: Apache-2.0
"""What users write: :class:`Script`, a kernel, and :class:`Class`, state and methods a kernel uses.

A script's instructions are attributes: the unit's module (``self.tma``) or the instruction itself.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilus import frontend, ir, launch
from tilus.autotune import candidates
from tilus.autotune.space import Axis
from tilus.errors import LanguageError
from tilus.later import Later

if TYPE_CHECKING:
    from tilus.autotune import Tuner
    from tilus.launch import Call, Known, Launcher, Prepared, Run

ops: Any = Later("tilus.ops")


class Instructions(frontend.Inlined):
    """What ``self`` offers inside a kernel."""

    tma = ops.tma
    mbarrier = ops.mbarrier
    wgmma = ops.wgmma
    fence = ops.fence
    cluster = ops.cluster

    global_view = ops.alloc.global_view
    shared_tensor = ops.alloc.shared_tensor
    register_tensor = ops.alloc.register_tensor
    load_global = ops.memory.load_global
    store_global = ops.memory.store_global
    load_shared = ops.shared.load_shared
    store_shared = ops.shared.store_shared
    dot = ops.mma.dot
    cast = ops.math.cast
    where = ops.elementwise.where
    maximum = ops.elementwise.maximum
    minimum = ops.elementwise.minimum
    abs = ops.elementwise.abs
    square = ops.elementwise.square
    exp = ops.elementwise.exp
    exp2 = ops.elementwise.exp2
    log = ops.elementwise.log
    sqrt = ops.elementwise.sqrt
    rsqrt = ops.elementwise.rsqrt
    sum = ops.reduce.sum
    max = ops.reduce.max
    min = ops.reduce.min
    sync = ops.sync.sync
    slice = ops.tile.slice
    annotate_layout = ops.views.annotate_layout
    free_shared = ops.views.free_shared
    reshape_shared = ops.views.reshape_shared
    assume = ops.debug.assume
    printf = ops.debug.printf
    print_tensor = ops.debug.print_tensor

    thread_group = frontend.thread_group
    warp_group = frontend.warp_group
    single_warp = frontend.single_warp
    single_thread = frontend.single_thread
    range = frontend.Range
    fast_divmod = staticmethod(frontend.fast_divmod)
    static_assert = staticmethod(frontend.static_assert)

    blockIdx = ir.Dim3.builtin("blockIdx")
    gridDim = ir.Dim3.builtin("gridDim")


class Class(Instructions):
    """State with methods that a kernel uses, such as a pipeline; all its methods are inlined.

    Objects are made inside ``__call__``. An attribute that changes at run time is declared where it
    gets its first value: ``self.stage: int32 = 0``.
    """


class Script(Instructions):
    """A kernel. ``__init__`` takes the schedule, ``__call__`` is the program of one thread block.

    ``Kernel(schedule...)`` makes a kernel with that schedule; where values of its tuning space are
    left out, a :class:`Tuned` kernel that chooses them by measuring. ``kernel(arguments...,
    stream=None)`` runs it where the arrays are: on their GPU, or on the simulator.
    """

    autotune_space: ClassVar[tuple[Axis, ...]] = ()
    attrs: frontend.Attributes
    _launcher: Launcher
    _schedule: dict[str, Any]
    _made: Callable[[], Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a call of an instance launch what the class has written as ``__call__``."""
        super().__init_subclass__(**kwargs)
        if "__call__" in cls.__dict__:
            setattr(cls, "__call__", launching(cls.__dict__["__call__"]))  # noqa: B010

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a kernel whose schedule is fixed, or one that tunes what is left open."""
        given = schedule_given(cls, args, kwargs)
        tuned = {name for names, _ in cls.autotune_space for name in names}
        if tuned - given.keys():
            return Tuned(cls, given)
        self = object.__new__(cls)
        self._launcher, self._schedule = launch.Launcher(frontend.kernel_function(cls)), given
        self._made = functools.partial(cls, *args, **kwargs)
        return self

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """Let a copy be a kernel made anew: what is compiled and prepared belongs to one process
        and one kernel."""
        return self._made, ()

    def __init__(self) -> None:
        """Take no schedule."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel; a subclass writes its program here."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    @property
    def schedule(self) -> Mapping[str, Any]:
        """The values ``__init__`` was called with, by name."""
        return self._schedule

    @property
    def last_run(self) -> Run | None:
        """What the last call did, and where; None before the first."""
        return self._launcher.last_run

    def bind(self, *args: Any, **kwargs: Any) -> Call:
        """Match and check a call's arguments without running anything."""
        return launch.bind(frontend.kernel_function(self), args, kwargs)

    def lower(self, **constants: ir.Scalar) -> ir.Kernel:
        """Return the planned kernel for compile-time arguments; needs no GPU."""
        return self._launcher.kernel(self, constants)


def schedule_given(
    cls: type[Script], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a construction by the names of ``__init__``."""
    try:
        bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}(): {error}") from None
    return dict(list(bound.arguments.items())[1:])


def launching(function: Callable[..., None]) -> Callable[..., None]:
    """Return what a call of an instance does: run ``function`` as a kernel."""

    @functools.wraps(function)
    def __call__(self: Script, *args: Any, stream: object = None, **kwargs: Any) -> None:
        launcher = self._launcher
        try:
            run = launcher.known.find(*args, **kwargs)
        except TypeError:  # arguments that do not fit: who binds them says why
            run = None
        launcher.last_run = (run or launcher.first(self, args, kwargs))(stream)

    if "stream" in inspect.signature(function).parameters:
        raise LanguageError(f"{function.__qualname__}: a kernel must not have a parameter 'stream'")
    return __call__


def watched(kernel: Script, *args: Any, seconds: float = 2.0, **kwargs: Any) -> Run:
    """Run a kernel on the GPU as ``kernel(*args, **kwargs)`` would, in a child process.

    Arrays are NumPy arrays: the child works on copies, and what it leaves in them is copied back. A
    wait on an mbarrier that takes more than ``seconds`` ends the kernel, and raises
    :class:`~tilus.errors.DeviceError` with barrier, parity, role, place, block and thread; this
    process, and its CUDA context if it has one, are none the worse.
    """
    package: Any = importlib.import_module("tilus.autotune.guard")
    return package.run(kernel, args, kwargs, seconds)  # type: ignore[no-any-return]


class Tuned:
    """A kernel whose schedule is still open, in whole or in part; called like a :class:`Script`."""

    def __init__(self, cls: type[Script], given: Mapping[str, Any]) -> None:
        self.cls, self.given = cls, dict(given)
        package: Any = importlib.import_module("tilus.autotune")  # what tuning needs is loaded now
        self.tuner: Tuner = package.Tuner(cls, given)
        self._known: Known[tuple[Script, Prepared]] = launch.Known(frontend.kernel_function(cls))
        self._chosen: dict[tuple[object, ...], Script] = {}
        self._last: Script | None = None

    def __call__(self, *args: Any, stream: object = None, **kwargs: Any) -> None:
        """Choose a schedule for these sizes where none is known yet, and run the kernel with it."""
        try:
            known = self._known.find(*args, **kwargs)
        except TypeError:  # arguments that do not fit: who binds them says why
            known = None
        self._last, run = known or self._first(args, kwargs)
        self._last._launcher.last_run = run(stream)

    def _first(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Script, Prepared]:
        """Choose the kernel for a call that is not known, and keep what comes of it."""
        place = self._known.kept
        call = self.bind(*args, **kwargs)
        kernel = self._choose(call)
        known = kernel, kernel._launcher.prepare(kernel, call)
        self._known.keep(place, args, kwargs, call, known)
        return known

    def __reduce__(self) -> tuple[type[Tuned], tuple[Any, ...]]:
        """Let a copy choose for itself."""
        return Tuned, (self.cls, self.given)

    def candidates(self) -> list[Script]:
        """Return a kernel for every schedule of the space, values given at construction kept."""
        return [self.cls(**schedule) for schedule in candidates(self.cls, self.given)]

    def bind(self, *args: Any, **kwargs: Any) -> Call:
        """Match and check a call's arguments without running anything."""
        return launch.bind(frontend.kernel_function(self.cls), args, kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Script:
        """Return the kernel with the schedule for these arguments."""
        return self._choose(self.bind(*args, **kwargs))

    def _choose(self, call: Call) -> Script:
        device = launch.backend(call)
        key = (device, *call.constants.values(), *call.scalars.values())
        if key not in self._chosen:
            self._chosen[key] = self.cls(**self.tuner.choose(call, device))
        return self._chosen[key]

    @property
    def schedule(self) -> Mapping[str, Any]:
        """The schedule of the last call; before the first, the values given at construction."""
        return self._last.schedule if self._last else self.given

    @property
    def last_run(self) -> Run | None:
        """What the last call did, and where; None before the first."""
        return self._last.last_run if self._last else None
