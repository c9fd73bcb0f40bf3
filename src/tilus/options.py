# SPDX-License-Identifier: Apache-2.0
"""Every setting and every environment variable, in one place.

====================  =======================  ====================================================
environment variable  ``tilus.option...``      meaning
====================  =======================  ====================================================
``TILUS_DEVICE``      ``device("auto")``       ``auto`` (a Hopper GPU if there is one, else the
                                               simulator), ``cuda``, ``sim``
``TILUS_CACHE_DIR``   ``cache_dir(path)``      where cubins and tuning results are kept
``TILUS_WORKERS``     ``parallel_workers(n)``  threads that compile while tuning
``TILUS_DUMP_DIR``    ``debug.dump_ir(path)``  write every stage of every compilation there
====================  =======================  ====================================================

``debug.watchdog`` and ``debug.trace`` have no variable: nobody measures an instrumented build by
accident.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tilus.errors import ArgumentError

DEVICES = ("auto", "cuda", "sim")
Block = tuple[int, int, int]


@dataclass(frozen=True)
class Recording:
    """What a tracing build records: each thread's first ``events`` events in each of ``blocks``."""

    blocks: tuple[Block, ...] = ((0, 0, 0),)
    events: int = 4096


@dataclass(frozen=True)
class Instruments:
    """What is built into a kernel besides itself.

    ``watchdog``: seconds after which a wait counts as hanging; ``trace``: what to record.
    """

    watchdog: float | None = None
    trace: Recording | None = None

    def __bool__(self) -> bool:
        return self != NO_INSTRUMENTS


NO_INSTRUMENTS = Instruments()


class Debug:
    """``tilus.option.debug``: what helps to look inside."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._dump_dir = os.environ.get("TILUS_DUMP_DIR")
        self._changed, self.instruments = changed, NO_INSTRUMENTS

    def dump_ir(self, path: str | Path | None = "tilus-dump") -> None:
        """Write the IR of every pass, CUDA, cubin and logs of later compilations below ``path``;
        None stops it."""
        self._dump_dir = None if path is None else str(path)

    @property
    def dump_dir(self) -> Path | None:
        """The folder that stages are written to, or None."""
        return Path(self._dump_dir) if self._dump_dir else None

    def watchdog(self, seconds: float | None) -> None:
        """Build later kernels so that a wait on an mbarrier that takes ``seconds`` is reported.

        The launch then waits for the kernel's end. A kernel that hangs raises
        :class:`~tilus.errors.DeviceError`, which names barrier, parity, role, place, block and
        thread; the process's CUDA context is lost with it, which :func:`tilus.watched` spares the
        caller. None stops it.
        """
        if seconds is not None and not 0 < seconds <= MOST_SECONDS:
            rule = f"more than 0 and at most {MOST_SECONDS} seconds, or None"
            raise ArgumentError("watchdog", rule, seconds, "Take 2.")
        self._use(replace(self.instruments, watchdog=seconds))

    def trace(
        self, blocks: Iterable[Block] | None = ((0, 0, 0),), events: int = Recording.events
    ) -> None:
        """Let later runs record what each role of these blocks did when, on either backend.

        ``kernel.last_run.events`` has it afterwards. On a GPU the launch waits for the kernel's
        end; a thread that speaks for its role keeps ``events`` events, and ``last_run.dropped``
        counts those beyond. ``blocks=None`` stops it.
        """
        if blocks is None:
            self._use(replace(self.instruments, trace=None))
            return
        chosen = tuple(tuple(block) for block in blocks)
        if not chosen or not all(map(_is_block, chosen)) or len(set(chosen)) < len(chosen):
            rule = "different blocks (x, y, z), at least one"
            raise ArgumentError("trace", rule, list(chosen), "Take blocks=[(0, 0, 0)].")
        if not 1 <= events <= MOST_EVENTS:
            rule = f"from 1 to {MOST_EVENTS} events a thread"
            raise ArgumentError("trace", rule, events, f"Take {Recording.events}.")
        recording = Recording(chosen, events)  # type: ignore[arg-type]
        self._use(replace(self.instruments, trace=recording))

    def _use(self, instruments: Instruments) -> None:
        self.instruments = instruments
        self._changed()


MOST_SECONDS = 3600.0
MOST_EVENTS = 1 << 16


def _is_block(block: tuple[object, ...]) -> bool:
    return len(block) == 3 and all(type(i) is int and i >= 0 for i in block)


class Option:
    """``tilus.option``: call a name to set it; the ``current_*`` properties read it.

    ``epoch`` is another object after each change that makes a call another one.
    """

    def __init__(self) -> None:
        self.epoch = object()
        self.debug = Debug(self._changed)
        self._cache_dir = os.environ.get("TILUS_CACHE_DIR")
        self._workers = os.environ.get("TILUS_WORKERS")
        self._device = os.environ.get("TILUS_DEVICE", "auto")

    def cache_dir(self, path: str | Path) -> None:
        """Keep cubins and tuning results below ``path``."""
        self._cache_dir = str(path)

    def parallel_workers(self, n: int) -> None:
        """Compile with ``n`` threads while tuning."""
        self._workers = str(_workers(str(n)))

    def device(self, name: str) -> None:
        """Choose the backend: ``"auto"``, ``"cuda"`` or ``"sim"``."""
        self._device = _device(name)
        self._changed()

    def _changed(self) -> None:
        self.epoch = object()

    @property
    def current_device(self) -> str:
        """The chosen backend; raise :class:`ArgumentError` if the environment names another."""
        return _device(self._device)

    @property
    def current_cache_dir(self) -> Path:
        """The folder of cubins and tuning results; it need not exist yet."""
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(self._cache_dir or f"{base}/tilus-hopper-tutorial").expanduser()

    @property
    def current_workers(self) -> int:
        """The number of compiling threads: one for each usable core where none was chosen.

        Raises :class:`ArgumentError` for anything but an integer of at least 1.
        """
        return _workers(self._workers or str(len(os.sched_getaffinity(0))))


def _device(name: str) -> str:
    """Return ``name``; raise :class:`ArgumentError` where it is no backend."""
    if name not in DEVICES:
        rule = "one of " + ", ".join(DEVICES)
        raise ArgumentError("device (TILUS_DEVICE)", rule, repr(name), "Set one of them.")
    return name


def _workers(text: str) -> int:
    """Return the number in ``text``; raise :class:`ArgumentError` where it is no count."""
    if not text.isdecimal() or int(text) < 1:
        rule = "an integer of at least 1"
        raise ArgumentError("parallel_workers (TILUS_WORKERS)", rule, text, "Set one.")
    return int(text)


option = Option()
