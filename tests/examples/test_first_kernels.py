# SPDX-License-Identifier: Apache-2.0
"""The first kernels: right for sizes that divide nothing, as programs, and in machine code."""

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests import sass

import tilus
from tilus import compiler, demo, disasm, loader, simulator

FOLDER = Path(__file__).parents[2] / "examples" / "first_kernels"
NAMES = ["cluster_multicast", "row_sum", "softmax", "tma_store", "transpose", "vector_add"]


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


class NoReference(tilus.Script):
    def __call__(self, n: tilus.int32):
        self.attrs.blocks = n
        self.attrs.warps = 1


class OtherReference(NoReference):
    def reference(self, n, m):
        pass


@pytest.mark.parametrize(
    ("script", "found"), [(NoReference, "none"), (OtherReference, "parameters n, m")]
)
def test_a_kernel_that_cannot_be_compared_is_refused(script, found):
    with pytest.raises(tilus.ArgumentError) as caught:
        demo.compare(script(), (1,), None)
    assert f"got {found}. Write def reference(self, n)." in str(caught.value)


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


@pytest.mark.parametrize("m, n", [(1, 4), (16, 64), (40, 200), (17, 260)])
def test_tma_store(backend, m, n):
    check(backend, kernel("tma_store"), m, n, 0.5, random(m, n), np.zeros((m, n), np.float32))


@pytest.mark.parametrize("images, m, n", [(1, 1, 4), (2, 32, 64), (3, 150, 100), (4, 70, 68)])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_cluster_multicast(backend, images, m, n, stages):
    x = random(images, m, n)
    script = kernel("cluster_multicast", 32, 64, stages)
    check(backend, script, images, m, n, x, random(m, n), np.zeros_like(x))


HOPPER = {
    "tma_store": lambda: (40, 200, 0.5, random(40, 200), np.zeros((40, 200), np.float32)),
    "cluster_multicast": lambda: (
        *(3, 100, 68, random(3, 100, 68), random(100, 68)),
        np.zeros((3, 100, 68), np.float32),
    ),
}


@pytest.mark.parametrize("name", HOPPER)
@pytest.mark.parametrize(
    "schedule, seeds", [("timed", 1), ("early", 1), ("late", 1), ("random", 8)]
)
def test_engines_may_be_fast_and_slow(name, schedule, seeds):
    script, kept = kernel(name), HOPPER[name]()
    names = inspect.signature(script.reference).parameters
    for seed in range(seeds):
        found, wanted = demo.copies(kept), demo.copies(kept)
        flat = (x.reshape(-1) if isinstance(x, np.ndarray) else x for x in found)
        arguments = dict(zip(names, flat, strict=True))
        simulator.run(script.lower(), arguments, schedule=schedule, seed=seed)
        script.reference(*wanted)
        assert np.array_equal(found[-1], wanted[-1])


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


def test_the_pages_program_runs_beside_the_example(tmp_path):
    text = (FOLDER.parents[1] / "docs" / "first-kernel.rst").read_text()
    blocks = re.findall(r"code-block:: python\n\n((?:   .*\n|\n)+)", text)
    (program,) = (textwrap.dedent(block) for block in blocks if "import numpy" in block)
    file = tmp_path / "mine.py"
    file.write_text(program)
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(file)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
