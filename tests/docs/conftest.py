# SPDX-License-Identifier: Apache-2.0
"""The site's own code is not installed: conf.py puts it on the path, and so do its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "docs/_ext", "plots", "scripts", "examples/hopper_matmul", "examples/failures"
sys.path[:0] = [str(ROOT / p) for p in FOLDERS]


@pytest.fixture
def kernel() -> list[str]:
    """Return the lines of V3."""
    path = ROOT / "examples" / "hopper_matmul" / "matmul_v3.py"
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def closed() -> Iterator[None]:
    """Leave no figure open."""
    yield
    plt.close("all")
