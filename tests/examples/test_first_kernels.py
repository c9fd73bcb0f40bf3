# SPDX-License-Identifier: Apache-2.0
"""The first kernels: right for sizes that divide nothing, as programs, and in machine code."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import sass

import tilus
from tilus import compiler, demo, disasm, loader

FOLDER = Path(__file__).parents[2] / "examples" / "first_kernels"
NAMES = ["row_sum", "softmax", "transpose", "vector_add"]


def kernel(name, *schedule):
    """Return the kernel of an example."""
    return loader.find(FOLDER / f"{name}.py", tilus.Script)(*schedule)


def random(*shape):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def check(backend, script, *arguments):
    """Run a kernel and its reference on the same arguments."""
    found, wanted = demo.copies(arguments), demo.copies(arguments)
    backend.run(script, *found)
    script.reference(*wanted)
    for mine, right in zip(found, wanted, strict=True):
        if isinstance(mine, np.ndarray):
            demo.judge("array", mine, right)


def test_no_example_is_forgotten():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == NAMES


@pytest.mark.parametrize("n", [1, 1024, 1025, 3001, 4096])
def test_vector_add(backend, n):
    check(backend, kernel("vector_add"), n, random(n), random(n), np.zeros(n, np.float32))


@pytest.mark.parametrize("m, n", [(1, 1), (9, 256), (16, 1000), (3, 257)])
def test_row_sum(backend, m, n):
    x = np.random.default_rng(1).random((m, n), dtype=np.float32)
    check(backend, kernel("row_sum"), m, n, x, np.zeros(m, np.float32))


@pytest.mark.parametrize("m, n", [(1, 1), (5, 64), (9, 1000), (4, 33)])
@pytest.mark.parametrize("rows", [1, 4])
def test_softmax(backend, m, n, rows):
    x = random(m, n) * 50 - 100
    check(backend, kernel("softmax", rows), m, n, x, np.zeros_like(x))


@pytest.mark.parametrize("m, n", [(1, 1), (32, 64), (70, 33), (31, 100)])
def test_transpose(backend, m, n):
    check(backend, kernel("transpose"), m, n, random(m, n), np.zeros((n, m), np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_examples_move_16_bytes_at_once_and_stay_in_registers(name):
    constants = {"n": 1024} if name == "softmax" else {}
    code = compiler.build(kernel(name).lower(**constants)).cubin.code
    counts = sass.opcodes(code)
    assert sass.stack(code) == 0 and not counts["LDL"] and not counts["STL"]
    assert "LDG.E.128" in disasm.sass(code)
    assert bool(counts["SHFL"] > 1) == (name in ("row_sum", "softmax"))


@pytest.mark.parametrize("name", NAMES)
def test_examples_run_as_programs(name):
    done = run(FOLDER / f"{name}.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("ok  ")


def test_a_wrong_result_is_an_error(tmp_path):
    text = (FOLDER / "vector_add.py").read_text()
    wrong = tmp_path / "vector_add.py"
    wrong.write_text(text.replace("a + b, offsets", "a - b, offsets"))
    done = run(wrong)
    assert done.returncode != 0
    assert "c_ptr differs in" in done.stderr and "should be" in done.stderr


def run(path):
    """Run a program on the simulator."""
    command = [sys.executable, str(path), "--device", "sim"]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
