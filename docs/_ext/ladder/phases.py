# SPDX-License-Identifier: Apache-2.0
"""Say on the error stream what a quiet build is at: one line for each phase, some take minutes."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FIRST = 1
"""Before sphinx-gallery, which does its work on the same event."""


def say(begun: float, what: str) -> None:
    """Print a phase, and the seconds since the build began."""
    print(f"{monotonic() - begun:4.0f} s  {what}", file=sys.stderr, flush=True)


def setup(app: Sphinx) -> None:
    """Listen to the events that begin a phase."""
    begun = monotonic()

    def examples(app: Sphinx) -> None:
        say(begun, "running the examples whose sources have changed")

    def reading(app: Sphinx, env: Any, names: list[str]) -> None:
        what = "drawing their figures, running what they break"
        say(begun, f"reading {len(names)} pages, {what}" if names else "no page has changed")

    def writing(app: Sphinx, builder: Any) -> None:
        say(begun, "writing the pages")

    app.connect("builder-inited", examples, priority=FIRST)
    app.connect("env-before-read-docs", reading)
    app.connect("write-started", writing)
