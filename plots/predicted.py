# SPDX-License-Identifier: Apache-2.0
"""What the cost model predicts of each step beside what was measured.

On a page: ``.. chart:: predicted.sustained`` or ``.. chart:: predicted.bursts`` with ``:record:
ladder``, or another record. The formula is on the design page "Cost model".
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from measured import load, problems, size, versions
from style import WIDTH, theme
from tilus import prediction
from tilus.prediction import Compared
from tilus.records import Record

ROOT = Path(__file__).parent.parent
CUBE = (8192, 8192, 8192)


def compared(record: Record, regime: str) -> dict[str, Compared]:
    """Return prediction and measurement of each step at the largest cube."""
    steps = [v for v in versions(record) if (*CUBE, regime) in problems(record, v)]
    return {v: prediction.compare(record, ROOT, v, *CUBE, regime) for v in steps}


@cache
def at(path: str, regime: str) -> dict[str, Compared]:
    """Return :func:`compared` of the record at ``path``, once for both pages."""
    return compared(load(ROOT / path), regime)


def draw(name: str, path: str, regime: str) -> None:
    """Draw both times of each step in the record at ``path``."""
    found = at(path, regime)
    places = np.arange(len(found))
    with theme(name) as colours:
        figure, ax = plt.subplots(figsize=(WIDTH, 1.1 + 0.55 * len(found)), layout="constrained")
        times = (
            ("predicted", -0.2, colours.load, [c.predicted_ms for c in found.values()]),
            ("measured", 0.2, colours.compute, [c.measured_ms for c in found.values()]),
        )
        for label, offset, fill, values in times:
            bars = ax.barh(places + offset, values, 0.36, fc=fill, label=label)
            ax.bar_label(bars, fmt="{:.2f}", padding=3)
        names = [f"{v.upper()}\nat {c.mhz / 1e3:.2f} GHz" for v, c in found.items()]
        ax.set_yticks(places, names)
        ax.invert_yaxis()
        ax.set_xlabel(f"ms at {size(*CUBE)}, {regime}")
        figure.legend(loc="outside upper center", ncols=2)


sustained = partial(draw, regime="sustained")
bursts = partial(draw, regime="burst")
