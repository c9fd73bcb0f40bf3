# SPDX-License-Identifier: Apache-2.0
"""One launch in a child process: a kernel that hangs takes only the child with it.

``tilus.watched`` is this module's :func:`run`.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilus import compiler, runtime
from tilus.autotune.judge import START_LIMIT_S, environment
from tilus.autotune.trial import Image, Runnable, at, runnable
from tilus.errors import ArgumentError, DeviceError
from tilus.launch import Call, Run, views
from tilus.launch.observed import hanging
from tilus.options import Instruments, option

CHILD = "import sys; from tilus.autotune.guard import main; main(*sys.argv[1:])"
ELSEWHERE = (
    "{name} hangs, and no wait on an mbarrier has said so within {limit:g} s: a loop has no end, "
    "or threads wait at a barrier of theirs, which cannot be polled"
)


def run(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float) -> Run:
    """Run a kernel on copies of NumPy arrays, and copy back what it leaves in them.

    Raises :class:`DeviceError` where it hangs, or fails otherwise; this process is none the worse.
    """
    runtime.require_gpu()
    call = kernel.bind(*args, **kwargs)
    for name, array in call.arrays.items():
        if array.device != runtime.CPU:
            remedy = "Pass NumPy arrays: the child has a GPU's memory of its own."
            raise ArgumentError(name, "in host memory to be watched", f"on {array.device}", remedy)
    planned = kernel.lower(**call.constants)
    views.check(planned, call)
    instruments = Instruments(seconds, option.debug.instruments.trace)
    program = compiler.build(planned, instruments)
    return in_child(program, "cuda:0", call, seconds)


def in_child(program: Runnable, device: str, call: Call, seconds: float) -> Run:
    """Run a program once in a child on the call's NumPy arrays; return what it did."""
    images = {name: Image.like(array) for name, array in call.arrays.items()}
    for image, given in zip(images.values(), call.given, strict=True):
        image.elements[...] = given
    bare = at(call, {})
    limit = START_LIMIT_S + 2 * seconds
    with tempfile.TemporaryDirectory(prefix="tilus-") as folder:
        path = Path(folder, "launch")
        path.write_bytes(pickle.dumps((program, device, bare, images), protocol=5))
        answer = _answer(path, _name(program), limit)
    if "hangs" in answer:
        raise hanging(_name(program), seconds, answer["hangs"], mend="")
    for name, given in zip(images, call.given, strict=True):
        if isinstance(given, np.ndarray) and given.flags.writeable:
            images[name].raw[...] = answer["memory"][name]
            given[...] = images[name].elements
    return answer["run"]  # type: ignore[no-any-return]


def _name(program: Runnable) -> str:
    kernel = program.kernel if isinstance(program, compiler.Program) else program
    return kernel.function.name


def _answer(path: Path, name: str, limit: float) -> dict[str, Any]:
    """Start the child and return what it says."""
    command = [sys.executable, "-c", CHILD, str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=environment(), check=False
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(ELSEWHERE.format(name=name, limit=limit)) from None
    said = path.with_name("answer")
    if done.returncode or not said.exists():
        words = done.stderr.strip().splitlines()
        raise DeviceError(f"{name} failed in its child process: {words[-1] if words else '?'}")
    return pickle.loads(said.read_bytes())  # type: ignore[no-any-return]


def main(path: str) -> None:
    """Run what the parent has written to ``path``, and write beside it what became of it."""
    program, device, call, images = pickle.loads(Path(path).read_bytes())
    placed = {name: image.place(device) for name, image in images.items()}
    arrays = {name: p.array for name, p in placed.items()}
    try:
        done = runnable(program, device)(at(call, arrays))
        memory = {name: p.fetch() for name, p in placed.items()}
        answer: dict[str, Any] = {"run": done, "memory": memory}
    except DeviceError as error:
        if not error.hangs:
            raise
        answer = {"hangs": error.hangs}
    Path(path).with_name("answer").write_bytes(pickle.dumps(answer, protocol=5))
