# SPDX-License-Identifier: Apache-2.0
"""Say on the error stream what a quiet build is at: a line for each phase, and while it lasts one
every few seconds with the pages that are done."""

from __future__ import annotations

import multiprocessing
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from sphinx.application import Sphinx

FIRST = 1
"""Before sphinx-gallery, which does its work on the same event."""
EVERY = 10.0
"""Seconds between two lines of a phase."""
FORK = multiprocessing.get_context("fork")  # as Sphinx: its processes count in the same memory


class Progress:
    """What a build is at. It counts in memory that all of its processes share; one of them does
    nothing but print, since the others are busy for minutes."""

    def __init__(self, every: float = EVERY) -> None:
        self.begun, self.every = monotonic(), every
        self.done, self.pages = FORK.Value("i", 0), FORK.Value("i", 0)
        self.ended: Event = FORK.Event()

    def watch(self) -> None:
        """Print lines from now on, until the build ends."""
        FORK.Process(target=self._tick, daemon=True).start()

    def phase(self, what: str, pages: int = 0) -> None:
        """Print a phase, and the seconds since the build began; count its pages from here."""
        self.done.value, self.pages.value = 0, pages
        self._say(what)

    def page(self, *_: Any) -> None:
        """Count a page."""
        with self.done.get_lock():
            self.done.value += 1

    def end(self, *_: Any) -> None:
        """Print no more."""
        self.ended.set()

    def _tick(self) -> None:
        parent = multiprocessing.parent_process()
        while parent and parent.is_alive() and not self.ended.wait(self.every):
            done = min(self.done.value, self.pages.value)
            self._say(f"... {done} of {self.pages.value} pages" if self.pages.value else "...")

    def _say(self, what: str) -> None:
        print(f"{monotonic() - self.begun:4.0f} s  {what}", file=sys.stderr, flush=True)


def setup(app: Sphinx) -> None:
    """Listen to the events that begin a phase, and to those of a page."""
    progress = Progress()

    def examples(app: Sphinx) -> None:
        progress.watch()
        progress.phase("running the examples whose sources have changed")

    def reading(app: Sphinx, env: Any, names: list[str]) -> None:
        what = "drawing their figures, running what they break"
        line = f"reading {len(names)} pages, {what}" if names else "no page has changed"
        progress.phase(line, len(names))

    def writing(app: Sphinx, builder: Any) -> None:
        progress.phase("writing the pages", len(app.env.found_docs))

    app.connect("builder-inited", examples, priority=FIRST)
    app.connect("env-before-read-docs", reading)
    app.connect("doctree-read", progress.page)
    app.connect("write-started", writing)
    app.connect("html-page-context", progress.page)
    app.connect("build-finished", progress.end)
