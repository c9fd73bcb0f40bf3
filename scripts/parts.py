# SPDX-License-Identifier: Apache-2.0
"""The table of the parts of scripts/gpu, and what a part is carried out with: children, in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 540.0


class Part:
    """One part's log and clock: what it starts is stopped when its time is over.

    ``only`` names the versions that it measures; none: all.
    """

    def __init__(self, log: IO[str], seconds: float, only: Sequence[str] = ()) -> None:
        self.log, self.end, self.only = log, time.monotonic() + seconds, only

    def run(self, *words: str) -> bool:
        """Run Python with ``words`` in a child; return whether it ended well."""
        return self.execute(sys.executable, *words)

    def execute(self, *command: str) -> bool:
        """Run a program in a child; return whether it ended well."""
        left = max(0.0, self.end - time.monotonic())
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        path = os.pathsep.join([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(":")])
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=os.environ
            | {"PYTHONPATH": path.strip(":"), "PYTHONUNBUFFERED": "1", "COLUMNS": "140"},
            start_new_session=True,
        )
        try:
            status = child.wait(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self.log.write(f"stopped after {left:.0f} s\n")
            return False
        self.log.write(f"exit status {status}\n")
        return status == 0


Work = Callable[[Part], bool]
"""Carries out a part; returns whether it ended well."""


@dataclass(frozen=True)
class Row:
    """A row of the table: what is done, in how many seconds at most, and the record it writes."""

    work: Work
    seconds: float
    writes: str


PARTS: dict[str, Row] = {}
"""By name, in the order in which all of them are run."""


def listed(seconds: float = LIMIT_S, writes: str = "") -> Callable[[Work], Work]:
    """Enter a function into the table, under its name; its docstring says what it does."""

    def enter(work: Work) -> Work:
        PARTS[work.__name__.replace("_", "-")] = Row(work, seconds, writes)
        return work

    return enter


def table() -> str:
    """Return the table as text: name, seconds at most, record, what is done."""
    return "\n".join(
        f"{name:14} {row.seconds:3.0f} s  {row.writes:15} "
        f"{(row.work.__doc__ or '').partition(chr(10))[0]}"
        for name, row in PARTS.items()
    )
