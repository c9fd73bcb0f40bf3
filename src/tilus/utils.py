# SPDX-License-Identifier: Apache-2.0
"""``tilus.utils``: the small things that kernels and benchmarks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilus.later import exports

if TYPE_CHECKING:
    from tilus.bench import benchmark_func

__all__ = ["benchmark_func", "cdiv"]

__getattr__ = exports(__name__, {"benchmark_func": "tilus.bench"})


def cdiv(a: Any, b: Any) -> Any:
    """Return ``a / b`` rounded up, of numbers or run-time values: how many ``b`` cover ``a``."""
    return (a + b - 1) // b
