# SPDX-License-Identifier: Apache-2.0
"""Change a kernel of a page as a small diff says, run it, and show what the simulator says.

::

    .. diagnosis:: examples/hopper_matmul/matmul_v3.py

       - producer_barriers = self.mbarrier.alloc([128] * self.num_stages)
       + producer_barriers = self.mbarrier.alloc([129] * self.num_stages)

The ``-`` lines of a hunk must stand in the file once, one below the other; indentation is the
file's. An empty line parts hunks. The build ends if they do not stand there, or if the broken
kernel goes unnoticed.

A kernel is a step of the ladder and is run here. With ``:program:`` the file is run as it is, on
the simulator, and what it says as it fails is shown.

``solution`` is the other way round: the changed kernel has to be right, and what is shown is how
many cycles a block takes, and took before, and whether it can be built for a GPU. With
``:with: warps=8 block_k=32`` it tells the same for another schedule, too.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mutants
import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.gallery import sources
from tilus import Script, compiler, loader, prediction, simulator
from tilus.errors import CompileError, TilusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sphinx.application import Sphinx

BLOCK_K = 64
STAGES = {"num_stages": 3, "max_num_stages": 3}
SCHEDULE = STAGES | {
    "block_m": 128,
    "block_n": 128,
    "block_k": BLOCK_K,
    "group_m": 8,
    "num_blocks": 1,
    "warps": 4,
}
"""Of these every kernel is given what its ``__init__`` takes."""
OUTPUTS = 3  # tiles of C, of a kernel whose blocks compute several
M, N, K = 128, 128, 512
SEEDS = 20


def patched(lines: Sequence[str], diff: Sequence[str]) -> list[str]:
    """Return ``lines`` with the ``-`` lines of each hunk replaced by its ``+`` lines."""
    made = list(lines)
    for filled, hunk in groupby(diff, key=bool):
        if filled:
            made = _replaced(made, list(hunk))
    return made


def _replaced(lines: list[str], hunk: Sequence[str]) -> list[str]:
    old = [line[1:].strip() for line in hunk if line.startswith("-")]
    new = [line[2:] for line in hunk if line.startswith("+")]
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
        script = _script(source)
        kernel = compiler.lower(script, {"n_size": N, "k_size": K})
        m = M * OUTPUTS if hasattr(script, "num_blocks") else M
        for name, seed in _schedules():
            if wrong := _wrong(kernel, m, name, seed):
                return f"wrong result: {wrong} of {m * N} elements, schedule {name}, seed {seed}"
    except TilusError as error:
        return f"{type(error).__name__}: {error}".replace(str(source), source.name)
    raise ExtensionError(f"the broken kernel goes unnoticed under {SEEDS} schedules")


def compare(source: Path, changed: Path, other: str = "") -> str:
    """Return that the ``changed`` kernel is right, its cycles beside those of ``source``, and what
    the compiler says of it; the last two also with an ``other`` schedule, like ``warps=8``.

    It is judged as the failure gallery judges the correct kernel, at a small size.
    """
    case = next(k.simulator for k in mutants.kernels().values() if k.path == source.resolve())
    judged = mutants.judge(changed, case)
    if judged.verdict:
        raise ExtensionError(f"the solution is none: {judged.verdict}: {judged.message}")
    told = [f"right, {judged.how}", *_taken(source, changed)]
    if other:
        schedule = {name: int(value) for name, value in (p.split("=") for p in other.split())}
        told += [f"with {other}:", *_taken(source, changed, **schedule)]
    return "\n".join(told)


def _taken(source: Path, changed: Path, **schedule: int) -> Iterator[str]:
    """Yield how many cycles a block takes, and took before; and whether the kernel can be built."""
    scripts = _script(source, **schedule), _script(changed, **schedule)
    before, now = (prediction.one_block(script, K // BLOCK_K).cycles for script in scripts)
    yield f"{now:.0f} simulated cycles for a block and K = {K}, and {before:.0f} before"
    try:
        compiler.build(scripts[1].lower(n_size=N, k_size=K))
        yield "built for a GPU without a note by ptxas"
    except CompileError as error:
        yield "not built for a GPU: " + str(error).splitlines()[0]


def run_program(source: Path) -> str:
    """Run the file as a program on the simulator; return what it says as it fails."""
    command = [sys.executable, str(source), "--device", "sim"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if not result.returncode:
        raise ExtensionError("the broken program goes unnoticed")
    return result.stderr.strip().replace(str(source), source.name)


def _script(source: Path, **schedule: int) -> Any:
    """Return the kernel in a file with the schedule of the pages, some of it changed."""
    script = loader.find(source, Script)
    names = inspect.signature(script.__init__).parameters
    given = SCHEDULE | schedule
    return script(**{name: value for name, value in given.items() if name in names})


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
    how = "simulated"

    def run(self) -> list[nodes.Node]:
        root = found.root(self.env)
        kernel = root / self.arguments[0]
        for path in sources(self.config, root):
            self.env.note_dependency(str(path))
        diff = list(self.content)
        try:
            lines = patched(kernel.read_text(encoding="utf-8").splitlines(), diff)
            changed = self.write(kernel.name, "\n".join(lines) + "\n")
            report = self.report(kernel, changed)
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        change = "\n".join(line or "..." for line in diff)
        said = nodes.literal_block(report, report, language="none")
        shown = nodes.literal_block(change, change, language="diff")
        label = found.badge("simulated", self.how)
        return [nodes.container("", shown, said, label, classes=["diagnosis"])]

    def report(self, kernel: Path, changed: Path) -> str:
        """Return what the simulator says of the ``changed`` kernel."""
        return run_program(changed) if "program" in self.options else diagnose(changed)

    def write(self, name: str, text: str) -> Path:
        """Write the changed kernel to a folder of its own; frontends read source from files."""
        folder = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = Path(self.env.doctreedir).parent / "variants" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class Solution(Diagnosis):
    """Show the diff, that the kernel it makes is right, and what it takes."""

    option_spec = {"with": directives.unchanged_required}
    how = "simulated and compiled"

    def report(self, kernel: Path, changed: Path) -> str:
        """Return what the simulator says of both kernels."""
        return compare(kernel, changed, self.options.get("with", ""))


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("diagnosis", Diagnosis)
    app.add_directive("solution", Solution)
