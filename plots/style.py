# SPDX-License-Identifier: Apache-2.0
"""The look of every figure, on a light page and on a dark one; the background is the page's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.pyplot as plt


@dataclass(frozen=True)
class Theme:
    """Colours of one page background."""

    ink: str
    faint: str
    muted: str
    load: str
    compute: str
    other: str
    on_bar: str
    page: str


THEMES = {
    "light": Theme(
        ink="#1f2328",
        faint="#d0d7de",
        muted="#8c959f",
        load="#0969da",
        compute="#1a7f37",
        other="#9a6700",
        on_bar="#ffffff",
        page="#ffffff",
    ),
    "dark": Theme(
        ink="#e6edf3",
        faint="#3d444d",
        muted="#7d8590",
        load="#58a6ff",
        compute="#56d364",
        other="#e3b341",
        on_bar="#0d1117",
        page="#121212",
    ),
}
WIDTH = 5.6  # inches; text stays readable when a phone shrinks the figure to its width


@contextmanager
def theme(name: str) -> Iterator[Theme]:
    """Draw in the colours of the ``light`` or the ``dark`` page."""
    colours = THEMES[name]
    settings = {
        "font.size": 9.5,
        "axes.edgecolor": colours.faint,
        "axes.labelcolor": colours.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.6,
        "legend.columnspacing": 1.2,
        "legend.fontsize": "medium",
        "legend.frameon": False,
        "text.color": colours.ink,
        "xtick.color": colours.ink,
        "ytick.color": colours.ink,
        "ytick.left": False,
    }
    with plt.rc_context(settings):
        yield colours
