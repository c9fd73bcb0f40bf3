# SPDX-License-Identifier: Apache-2.0
"""What the README says is so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_snippet_runs_as_it_stands() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    command = [sys.executable, "-c", f"{snippet}\nprint((y == x @ weight.T).all(), y.shape)"]
    environment = os.environ | {"TILUS_DEVICE": "sim"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "True (64, 128)\n", done.stderr


def test_the_kernel_for_any_size_is_slower_than_cublas_at_some() -> None:
    assert "slower than cuBLAS at some" in README
    record = json.loads((ROOT / "plots" / "data" / "suite.json").read_text(encoding="utf-8"))
    ratios = defaultdict(list)
    for row in record["measurements"]:
        if row["version"] == "kernels.matmul":
            ratios[row["m"], row["n"], row["k"]].append(row["vs_cublas"])
    slower = [size for size, found in ratios.items() if max(found) < 1]
    assert slower and len(slower) < len(ratios)


def test_what_is_named_in_the_readme_and_in_contributing_is_there() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/])(?:docs|examples|plots|scripts|src|tests)/[\w./-]*", text)
    built = [path for path in named if "_build" not in path]
    assert len(built) > 10 and [path for path in built if not (ROOT / path).exists()] == []
