# SPDX-License-Identifier: Apache-2.0
"""Say on the error stream how far tuning is: a bar for each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]
"""Is told how many steps of a stage are done."""


class Show:
    """Bars, one for each stage, and lines of text between them."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        text = TextColumn(f"{title}: {{task.description}}")
        self._bars = Progress(
            text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console
        )

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Advance]:
        """Show a bar for the stage inside the block, which advances by what it is given."""
        with self._bars:
            task = self._bars.add_task(name, total=total)
            yield lambda done: self._bars.update(task, completed=done)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
