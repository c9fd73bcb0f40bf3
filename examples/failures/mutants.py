# SPDX-License-Identifier: Apache-2.0
"""Correct kernels, the small patches that break them, and what the simulator must say of each.

``mutants.toml`` is the table; the patches lie beside it. A patch is applied strictly: each of its
hunks must stand in the kernel exactly once, context and all.

    python examples/failures/mutants.py                   judge every mutant, a line each
    python examples/failures/mutants.py missing-arrive    one of them, with the whole diagnosis
"""

from __future__ import annotations

import hashlib
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilus import Script, compiler, ir, loader, simulator
from tilus.cli.kernels import constants
from tilus.cli.simulate import make_arrays
from tilus.errors import LanguageError, Location, TilusError
from tilus.launch.backends import memory
from tilus.workload import start

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
REFUSED = "refused"
"""The verdict on a kernel that is not even built."""
VERDICTS = {
    "deadlock": "Deadlocks",
    "race": "Races",
    "protocol": "Broken protocols",
    REFUSED: "Refused at build",
}


class PatchError(TilusError):
    """A patch does not fit its kernel any more."""


@dataclass(frozen=True)
class Case:
    """A schedule and the numbers of a call."""

    schedule: Mapping[str, int]
    arguments: Mapping[str, int | float]


@dataclass(frozen=True)
class Kernel:
    """A correct kernel: its file, a bounded case for the simulator, a usual one for a GPU."""

    name: str
    file: str
    simulator: Case
    gpu: Case

    @property
    def path(self) -> Path:
        """Where the file is."""
        return ROOT / self.file

    @property
    def called(self) -> str:
        """Its name for readers: V3, or what the file is called."""
        return self.name.upper() if self.name[1:].isdigit() else self.name.replace("_", " ")


@dataclass(frozen=True)
class Mutant:
    """One way to break a kernel, and the diagnosis it must get.

    ``item`` is what the gallery's plan calls it. ``lines`` are texts of lines that the diagnosis
    points at, without indentation; ``says`` are parts of its message. ``why`` tells what is wrong
    and how it shows. ``explained`` tells why a GPU may come to an outcome, by outcome; nobody has
    proved it, and it is shown only where a record has that outcome.
    """

    id: str
    title: str
    item: str
    kernel: Kernel
    verdict: str
    lines: Sequence[str]
    says: Sequence[str]
    why: str
    arguments: Mapping[str, int] = field(default_factory=dict)
    explained: Mapping[str, str] = field(default_factory=dict)

    @property
    def patch(self) -> str:
        """The text of the patch."""
        return (FOLDER / f"{self.id}.patch").read_text(encoding="utf-8")

    @property
    def source(self) -> str:
        """The text of the broken kernel."""
        return applied(self.patch, self.kernel)


@dataclass(frozen=True)
class Diagnosis:
    """What a kernel got: a verdict, '' for none, the message, and the texts of the lines in it.

    ``how`` says which schedule shows it; where there is no verdict, how sure that is.
    """

    verdict: str
    message: str = ""
    lines: Sequence[str] = ()
    how: str = ""

    def faults(self, mutant: Mutant) -> list[str]:
        """Return in which ways this is not the diagnosis that a mutant must get."""
        found = []
        if self.verdict != mutant.verdict:
            found.append(f"verdict {self.verdict or 'none'}, not {mutant.verdict}")
        found += [f"points not at {text!r}" for text in mutant.lines if text not in self.lines]
        return found + [f"says nothing of {w!r}" for w in mutant.says if w not in self.message]


# ---- the table and the patches ------------------------------------------------------------------


@cache
def table() -> tuple[Mapping[str, Kernel], Mapping[str, Mutant]]:
    """Read ``mutants.toml``: the kernels and the mutants by name."""
    data = tomllib.loads((FOLDER / "mutants.toml").read_text(encoding="utf-8"))
    kernels = {
        name: Kernel(name, row["file"], Case(**row["simulator"]), Case(**row["gpu"]))
        for name, row in data["kernels"].items()
    }
    rows = [row | {"kernel": kernels[row["kernel"]]} for row in data["mutants"]]
    mutants = [Mutant(**row) for row in rows]
    return kernels, {mutant.id: mutant for mutant in mutants}


def kernels() -> Mapping[str, Kernel]:
    """Return the correct kernels by name."""
    return table()[0]


def mutants() -> Mapping[str, Mutant]:
    """Return the mutants by id, in the order of the table."""
    return table()[1]


def applied(patch: str, kernel: Kernel) -> str:
    """Return the text of a kernel's file with a unified diff applied to it.

    Raises :class:`PatchError` where the diff is of another file, or where a hunk, context and all,
    does not stand in it exactly once.
    """
    head, *hunks = split_hunks(patch)
    if head[:2] != [f"--- a/{kernel.file}", f"+++ b/{kernel.file}"]:
        raise PatchError(f"a patch of {kernel.file} must begin with its name, got {head[:2]}")
    lines = kernel.path.read_text(encoding="utf-8").splitlines()
    for title, *hunk in hunks:
        old = [line[1:] for line in hunk if line[0] in " -"]
        new = [line[1:] for line in hunk if line[0] in " +"]
        places = [i for i in range(len(lines)) if lines[i : i + len(old)] == old]
        if len(places) != 1:
            text = "\n".join(hunk)
            raise PatchError(
                f"{title} must stand once in {kernel.file}, got {len(places)} places. "
                f"Make the patch anew:\n{text}"
            )
        lines[places[0] : places[0] + len(old)] = new
    return "\n".join(lines) + "\n"


def split_hunks(patch: str) -> list[list[str]]:
    """Return the lines above the first ``@@``, then those of each hunk with its ``@@`` line."""
    parts: list[list[str]] = [[]]
    for line in patch.splitlines():
        if line.startswith("@@"):
            parts.append([])
        parts[-1].append(line or " ")
    return parts


def shown(mutant: Mutant) -> str:
    """Return the patch as a reader wants it: the hunks, without names, places and indentation."""
    hunks = [part[1:] for part in split_hunks(mutant.patch)[1:]]
    texts = [line[1:] for hunk in hunks for line in hunk]
    indent = min(len(text) - len(text.lstrip()) for text in texts if text)
    cut = [[f"{line[0]} {line[1 + indent :]}".rstrip() for line in hunk] for hunk in hunks]
    return "\n...\n".join("\n".join(hunk) for hunk in cut)


# ---- judging ------------------------------------------------------------------------------------


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder for broken kernels, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        yield Path(name)


def write(mutant: Mutant, folder: Path) -> Path:
    """Write the broken kernel below ``folder``, under its own name; frontends read files."""
    text = mutant.source
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / digest / mutant.kernel.path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lower(path: Path, case: Case) -> tuple[Any, ir.Kernel]:
    """Return the script in a file with a case's schedule, and its kernel for its arguments.

    Raises :class:`LanguageError` where it is refused.
    """
    script = loader.find(path, Script)(**case.schedule)
    return script, compiler.lower(script, constants(script, case.arguments))


def diagnose(mutant: Mutant, folder: Path) -> Diagnosis:
    """Break the kernel in a copy below ``folder`` and return what the simulator says of it."""
    case = mutant.kernel.simulator
    case = Case(case.schedule, {**case.arguments, **mutant.arguments})
    return judge(write(mutant, folder), case)


def judge(path: Path, case: Case) -> Diagnosis:
    """Let the simulator judge the kernel in a file.

    A kernel that gets no verdict and yet computes something else than its ``reference`` gets the
    verdict ``"wrong"``.
    """
    try:
        script, kernel = lower(path, case)
    except LanguageError as error:
        return _told(REFUSED, error, path, error.location)
    flat, arrays = operands(script, kernel, case)
    found = simulator.judge(kernel, flat)
    if found.error:
        how = f"schedule {found.schedule}" + (f", seed {found.seed}" if found.seed else "")
        return _told(found.verdict or "", found.error, path, found.facts, how)
    simulator.run(kernel, flat)
    return Diagnosis("" if right(script, case, arrays) else "wrong", how=found.message)


def _told(verdict: str, error: TilusError, path: Path, places: object, how: str = "") -> Diagnosis:
    message = f"{type(error).__name__}: {error}".replace(str(path), path.name)
    text = path.read_text(encoding="utf-8").splitlines()
    return Diagnosis(
        verdict, message, [text[n - 1].strip() for n in sorted(set(_numbers(places)))], how
    )


def _numbers(facts: object) -> Iterator[int]:
    """Yield the numbers of lines among the facts of a verdict, however deep."""
    match facts:
        case Location(line=line) | {"line": int(line)}:
            yield line
    inner = facts.values() if isinstance(facts, Mapping) else facts
    if isinstance(inner, Iterable) and not isinstance(inner, str):
        for item in inner:
            yield from _numbers(item)


def operands(script: Any, kernel: ir.Kernel, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the simulator takes, arrays flat, and the same arrays with their shapes: entries
    of -1, 0 and 1, and NaN in what the kernel writes."""
    arrays = make_arrays(kernel, dict(case.arguments), np.random.default_rng(0))
    call = script.bind(**case.arguments, **arrays)
    return {**call.scalars, **{name: memory(a) for name, a in call.arrays.items()}}, arrays


def right(script: Any, case: Case, arrays: Mapping[str, Any]) -> bool:
    """Return whether the arrays are what the script's ``reference`` makes of them."""
    wanted = {name: array.copy() for name, array in arrays.items()}
    script.reference(**case.arguments, **wanted)
    return all(np.array_equal(arrays[name], wanted[name]) for name in arrays)


def main(words: Sequence[str]) -> int:
    """Judge the mutants named, or all; return 1 where one gets another diagnosis than it must."""
    bad = 0
    with folder() as place:
        for mutant in [mutants()[word] for word in words] or mutants().values():
            diagnosis = diagnose(mutant, place)
            faults = diagnosis.faults(mutant)
            bad += bool(faults)
            print(f"{mutant.id:28} {diagnosis.verdict:9} {'; '.join(faults) or 'as it must be'}")
            if words or faults:
                print(diagnosis.message)
    return min(bad, 1)


if __name__ == "__main__":
    MUTANT = click.Argument(["words"], nargs=-1, type=click.Choice(list(mutants())))
    start(click.Command("mutants", params=[MUTANT], callback=main, help=main.__doc__))
