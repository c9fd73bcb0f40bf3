# SPDX-License-Identifier: Apache-2.0
"""Launches of instrumented builds: memory for what they say, and what to make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from tilus import compiler, runtime
from tilus.dtypes import uint8
from tilus.errors import ArgumentError, DeviceError
from tilus.instrument import Hang, Recorded, hangs, record, watchdog
from tilus.options import Block, Recording

LOST = (
    "go on in a new process, since this one's CUDA context is lost with the kernel; "
    "tilus.watched(kernel, ...) runs a kernel in a child process"
)


def inside(recording: Recording | None, grid: Block) -> Sequence[Block]:
    """Return the blocks to record; raise :class:`ArgumentError` where the grid lacks one."""
    blocks = recording.blocks if recording else ()
    for block in blocks:
        if not all(i < n for i, n in zip(block, grid, strict=True)):
            rule = f"of blocks inside the grid {grid}"
            raise ArgumentError("trace", rule, block, "Choose others: tilus.option.debug.trace.")
    return blocks


@dataclass
class Observation:
    """One launch: what its entry point is told besides, and afterwards what it recorded."""

    addresses: list[int] = field(default_factory=list)
    recorded: Recorded | None = None


class Observer:
    """Listens to the launches of one program on one GPU."""

    def __init__(self, program: compiler.Program, device: int) -> None:
        self._program, self._device = program, device
        self._function = program.kernel.function
        self._watchdog, self._recording = program.instruments.watchdog, program.instruments.trace

    @property
    def addresses(self) -> int:
        """How many more addresses the entry point takes."""
        return (self._watchdog is not None) + (self._recording is not None)

    @cached_property
    def _report(self) -> runtime.MappedMemory:
        size = watchdog.words(self._program.sites, self._function.warps)
        return runtime.MappedMemory(size, self._device)

    @contextmanager
    def launch(self, grid: Block) -> Iterator[Observation]:
        """Let the launch inside the block happen, and wait for its end."""
        inside(self._recording, grid)
        observation, buffer = Observation(), None
        if self._watchdog is not None:
            observation.addresses.append(self._report.address)
        if self._recording is not None:
            size = record.buffer_bytes(self._recording, self._function.threads.count)
            buffer = runtime.DeviceArray((size,), uint8, self._device)
            buffer.fill_bytes(0)
            observation.addresses.append(buffer.described.address)
        yield observation
        self._wait()
        if self._recording is not None and buffer is not None:
            threads, memory = self._function.threads.count, buffer.to_numpy()
            observation.recorded = record.recorded(
                self._program.sites, self._recording, threads, memory
            )

    def _wait(self) -> None:
        """Wait for the kernel's end; raise what the watchdog reported."""
        try:
            runtime.synchronize(self._device)
        except DeviceError as error:
            found = self._hangs()
            if not found:
                raise
            raise hanging(self._function.name, self._watchdog or 0.0, found) from error

    def _hangs(self) -> tuple[Hang, ...]:
        if self._watchdog is None:
            return ()
        return hangs(self._program.sites, self._function.warps, self._report.words)


def hanging(name: str, seconds: float, found: Sequence[Hang], mend: str = LOST) -> DeviceError:
    """Return the error of a kernel that the watchdog stopped."""
    lines = "\n  ".join(map(str, found))
    said = f"{name} hangs: waits that took more than {seconds:g} s\n  {lines}"
    return DeviceError(said, mend=mend, hangs=found)
