# SPDX-License-Identifier: Apache-2.0
"""What users write: :class:`Script`, a kernel, and :class:`Class`, state and methods a kernel uses.

A script's instructions are attributes: the unit's module (``self.tma``) or the instruction itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

from tilus import frontend, ir, ops
from tilus.errors import LanguageError
from tilus.launch import Call, Launcher, Run, bind

Space = tuple[tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]], ...]


class Instructions(frontend.Inlined):
    """What ``self`` offers inside a kernel."""

    tma = ops.tma
    mbarrier = ops.mbarrier
    wgmma = ops.wgmma
    fence = ops.fence

    global_view = ops.alloc.global_view
    shared_tensor = ops.alloc.shared_tensor
    register_tensor = ops.alloc.register_tensor
    store_global = ops.memory.store_global
    cast = ops.math.cast
    sync = ops.sync.sync

    thread_group = frontend.thread_group
    warp_group = frontend.warp_group
    single_warp = frontend.single_warp
    single_thread = frontend.single_thread
    range = frontend.Range

    blockIdx = frontend.Dim3.builtin("blockIdx")
    gridDim = frontend.Dim3.builtin("gridDim")


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

    autotune_space: ClassVar[Any] = ()
    attrs: frontend.Attributes
    _launcher: Launcher
    _schedule: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a call of an instance launch what the class has written as ``__call__``."""
        super().__init_subclass__(**kwargs)
        if "__call__" in cls.__dict__:
            setattr(cls, "__call__", launching(cls.__dict__["__call__"]))  # noqa: B010

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a kernel whose schedule is fixed, or one that tunes what is left open."""
        schedule = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
        given = dict(list(schedule.arguments.items())[1:])
        if any(name not in given for name in tunable(cls)):
            return Tuned(cls, given)
        self = object.__new__(cls)
        self._launcher, self._schedule = Launcher(), given
        return self

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
        return bind(frontend.kernel_function(self), args, kwargs)

    def lower(self, **constants: ir.Scalar) -> ir.Kernel:
        """Return the planned kernel for compile-time arguments; needs no GPU."""
        return self._launcher.kernel(self, constants)


def launching(function: Callable[..., None]) -> Callable[..., None]:
    """Return what a call of an instance does: run ``function`` as a kernel."""

    @functools.wraps(function)
    def __call__(self: Script, *args: Any, stream: object = None, **kwargs: Any) -> None:
        self._launcher(self, args, kwargs, stream)

    if "stream" in inspect.signature(function).parameters:
        raise LanguageError(f"{function.__qualname__}: a kernel must not have a parameter 'stream'")
    return __call__


def tunable(cls: type[Script]) -> list[str]:
    """Return the names of the schedule's values that are tuned unless given."""
    return [name for names, _ in cls.autotune_space for name in names]


class Tuned:
    """A kernel whose schedule is still open, in whole or in part."""

    def __init__(self, cls: type[Script], given: Mapping[str, Any]) -> None:
        self.cls, self.given = cls, dict(given)

    def candidates(self) -> Iterator[Script]:
        """Yield a kernel for every schedule of the space, values given at construction kept."""
        axes = [
            [dict(zip(names, value, strict=True)) for value in values]
            for names, values in self.cls.autotune_space
        ]
        seen = []
        for choice in product(*axes):
            schedule = {k: v for axis in choice for k, v in axis.items()} | self.given
            if schedule not in seen:
                seen.append(schedule)
                yield self.cls(**schedule)
