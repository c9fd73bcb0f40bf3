# SPDX-License-Identifier: Apache-2.0
"""Try candidates in a child process: one that hangs or faults takes only the child with it.

A kernel that hangs cannot be stopped, and one that faults spoils its process's CUDA for good. So
the candidates go to a process of their own, which says a line after each; when it falls silent or
dies, the one in hand is to blame, and the next child goes on behind it. A candidate built with a
watchdog says itself where it hangs.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tilus.autotune.trial import Runnable, Trial
from tilus.errors import DeviceError, TilusError

START_LIMIT_S = 120.0
"""For a child to start, read its arrays and open the GPU."""
TRIAL_LIMIT_S = 20.0
"""For one candidate, which takes milliseconds, and the copies around it."""
CHILD = "import sys; from tilus.autotune.judge import main; main(*sys.argv[1:])"

Done = Callable[[int], None]


def judge(
    candidates: Sequence[Runnable],
    trial: Trial,
    done: Done = lambda _: None,
    limits: tuple[float, float] = (START_LIMIT_S, TRIAL_LIMIT_S),
) -> list[str | None]:
    """Return for each candidate None where it is right, or why it must not be kept.

    ``done`` is called with the number of candidates judged so far. Raises :class:`DeviceError`
    where the child cannot even begin.
    """
    verdicts: list[str | None] = []
    with tempfile.TemporaryDirectory(prefix="tilus-") as folder:
        path = Path(folder, "trial")
        with path.open("wb") as file:  # hundreds of megabytes: not by way of one string
            pickle.dump((list(candidates), trial), file, protocol=5)
        while len(verdicts) < len(candidates):
            for verdict in _child(path, len(verdicts), len(candidates), limits):
                verdicts.append(verdict)
                done(len(verdicts))
    return verdicts


def _child(path: Path, start: int, stop: int, limits: tuple[float, float]) -> Iterator[str | None]:
    """Yield the verdicts of one child, which ends after a candidate that broke it."""
    errors = path.with_name("errors")
    process = _spawn(path, start, errors)
    said = _lines(process)
    try:
        if _next(said, limits[0]) != "ready":
            raise DeviceError(f"the tuner's child process did not start: {_last_words(errors)}")
        for _ in range(start, stop):
            match _next(said, limits[1]):
                case None:
                    yield f"hangs: not done after {limits[1]:g} s"
                    return
                case "":
                    yield f"crashes: {_last_words(errors)}"
                    return
                case line:
                    said_so = json.loads(line)
                    yield said_so["fault"]
                    if said_so["last"]:
                        return
    finally:
        process.kill()
        process.wait()


def _spawn(path: Path, start: int, errors: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(path), str(start)]
    with errors.open("w") as stream:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment()
        )


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str]:
    """Return a queue of the child's lines, then of empty ones for ever."""
    lines: queue.Queue[str] = queue.Queue()

    def read(stream: IO[str]) -> None:
        for line in stream:
            lines.put(line.rstrip("\n"))
        lines.put("")

    assert process.stdout is not None
    threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    return lines


def _next(lines: queue.Queue[str], seconds: float) -> str | None:
    try:
        return lines.get(timeout=seconds)
    except queue.Empty:
        return None


def _last_words(errors: Path) -> str:
    words = errors.read_text().strip().splitlines()
    return words[-1] if words else "without a word"


def environment() -> dict[str, str]:
    """Let the child find this very package, wherever it was found here."""
    package = str(Path(__file__).parents[2])
    others = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([package, *([others] if others else [])])}


def main(path: str, start: str) -> None:
    """Judge the candidates from number ``start`` on, a line of JSON each."""
    with Path(path).open("rb") as file:
        candidates, trial = pickle.load(file)
    print("ready", flush=True)
    for candidate in candidates[int(start) :]:
        fault, last = _judge(candidate, trial)
        print(json.dumps({"fault": fault, "last": last}), flush=True)
        if last:
            return


def _judge(candidate: Runnable, trial: Trial) -> tuple[str | None, bool]:
    """Return what is wrong with a candidate, and whether this process can try no other."""
    try:
        return trial.judge(candidate), False
    except DeviceError as error:
        if not error.hangs:
            raise  # the GPU cannot be trusted any more: this process dies, and another goes on
        return "hangs: " + "; ".join(map(str, error.hangs)), True
    except TilusError as error:
        return f"raises {type(error).__name__}: {error}", False
