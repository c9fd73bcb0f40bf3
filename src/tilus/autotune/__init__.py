# SPDX-License-Identifier: Apache-2.0
"""Candidates in, the fastest right schedule out, the result kept on disk."""

from typing import TYPE_CHECKING

from tilus.autotune.space import autotune, candidates
from tilus.later import exports

if TYPE_CHECKING:
    from tilus.autotune.session import Tuning
    from tilus.autotune.tuner import Tuner

__all__ = ["Tuner", "Tuning", "autotune", "candidates"]

__getattr__ = exports(
    __name__, {"Tuner": "tilus.autotune.tuner", "Tuning": "tilus.autotune.session"}
)
