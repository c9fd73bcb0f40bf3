# SPDX-License-Identifier: Apache-2.0
"""``tilus.utils``: the small things that kernels and benchmarks share."""

from __future__ import annotations

from typing import Any


def cdiv(a: Any, b: Any) -> Any:
    """Return ``a / b`` rounded up, of numbers or run-time values: how many ``b`` cover ``a``."""
    return (a + b - 1) // b
