# SPDX-License-Identifier: Apache-2.0
"""``diagnosis``: break a kernel as a small diff says, run it, and show what the simulator reports.

::

    .. diagnosis:: examples/hopper_matmul/matmul_v3.py

       - producer_barriers = self.mbarrier.alloc([128] * self.num_stages)
       + producer_barriers = self.mbarrier.alloc([129] * self.num_stages)

The ``-`` lines must stand in the file once, one below the other; indentation is the file's. The
build ends if they do not, or if the broken kernel goes unnoticed.

A kernel is a step of the ladder and is run here. With ``:program:`` the file is run as it is, on
the simulator, and what it says as it fails is shown.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.gallery import sources
from tilus import Script, compiler, loader, simulator
from tilus.errors import TilusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sphinx.application import Sphinx

STAGES = {"num_stages": 3, "max_num_stages": 3}
SCHEDULE = STAGES | {"block_m": 128, "block_n": 128, "block_k": 64, "group_m": 8, "num_blocks": 1}
"""Of these every kernel is given what its ``__init__`` takes."""
OUTPUTS = 3  # tiles of C, of a kernel whose blocks compute several
M, N, K = 128, 128, 512
SEEDS = 20


def patched(lines: Sequence[str], diff: Sequence[str]) -> list[str]:
    """Return ``lines`` with the ``-`` lines of ``diff`` replaced by its ``+`` lines."""
    old = [line[1:].strip() for line in diff if line.startswith("-")]
    new = [line[1:].strip() for line in diff if line.startswith("+")]
    stripped = [line.strip() for line in lines]
    places = [i for i in range(len(lines)) if stripped[i : i + len(old)] == old]
    if len(places) != 1:
        raise ExtensionError(
            f"these lines stand {len(places)} times in the kernel, not once: {old}"
        )
    at = places[0]
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    return [*lines[:at], *(indent + line for line in new), *lines[at + len(old) :]]


def diagnose(source: Path) -> str:
    """Run the kernel in ``source`` under the timed schedule, then random ones, until it fails."""
    try:
        script = loader.find(source, Script)
        given = _schedule(script)
        kernel = compiler.lower(script(**given), {"n_size": N, "k_size": K})
        m = M * OUTPUTS if "num_blocks" in given else M
        for name, seed in _schedules():
            if wrong := _wrong(kernel, m, name, seed):
                return f"wrong result: {wrong} of {m * N} elements, schedule {name}, seed {seed}"
    except TilusError as error:
        return f"{type(error).__name__}: {error}".replace(str(source), source.name)
    raise ExtensionError(f"the broken kernel goes unnoticed under {SEEDS} schedules")


def run_program(source: Path) -> str:
    """Run the file as a program on the simulator; return what it says as it fails."""
    command = [sys.executable, str(source), "--device", "sim"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if not result.returncode:
        raise ExtensionError("the broken program goes unnoticed")
    return result.stderr.strip().replace(str(source), source.name)


def _schedule(script: type) -> dict[str, int]:
    names = inspect.signature(script.__init__).parameters
    return {name: value for name, value in SCHEDULE.items() if name in names}


def _schedules() -> Iterator[tuple[str, int]]:
    yield "timed", 0
    yield from (("random", seed) for seed in range(SEEDS))


def _wrong(kernel: Any, m: int, schedule: str, seed: int) -> int:
    """Return how many elements differ; the entries are -1, 0 and 1, so that sums are exact."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-1, 2, shape).astype(np.float16) for shape in ((m, K), (N, K)))
    c = np.full(m * N, np.nan, np.float16)
    arrays = {"a_ptr": a.reshape(-1), "b_ptr": b.reshape(-1), "c_ptr": c}
    simulator.run(kernel, {"m_size": m, **arrays}, schedule=schedule, seed=seed)
    return int(np.sum(c.reshape(m, N) != a.astype(np.float32) @ b.astype(np.float32).T))


class Diagnosis(SphinxDirective):
    """Show the diff and what the simulator says about the kernel it makes."""

    required_arguments = 1
    has_content = True
    option_spec = {"program": directives.flag}

    def run(self) -> list[nodes.Node]:
        root = found.root(self.env)
        kernel = root / self.arguments[0]
        for path in sources(self.config, root):
            self.env.note_dependency(str(path))
        diff = list(self.content)
        try:
            lines = patched(kernel.read_text(encoding="utf-8").splitlines(), diff)
            broken = self.write(kernel.name, "\n".join(lines) + "\n")
            report = run_program(broken) if "program" in self.options else diagnose(broken)
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        change, said = "\n".join(diff), nodes.literal_block(report, report, language="none")
        shown = nodes.literal_block(change, change, language="diff")
        label = found.badge("simulated", "simulated")
        return [nodes.container("", shown, said, label, classes=["diagnosis"])]

    def write(self, name: str, text: str) -> Path:
        """Write the broken kernel to a folder of its own; frontends read source from files."""
        folder = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = Path(self.env.doctreedir).parent / "variants" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("diagnosis", Diagnosis)
