# SPDX-License-Identifier: Apache-2.0
"""What a GPU, and compute-sanitizer, made of the mutants: the record, and how it is read.

A run is ``plain``, or one of ``TOOLS``. Its child writes a line of JSON before and after each
launch; what the child and the tool have left behind is classified here, without a GPU.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import mutants

from tilus.emitter import emit
from tilus.errors import ArgumentError, LanguageError
from tilus.fingerprint import cuda_hash, program_hash

SCHEMA_VERSION = 1
TOOLS = ("memcheck", "racecheck", "synccheck")
NOTICED, UNNOTICED, UNSUPPORTED = "noticed", "not noticed", "not supported"
TIMED_OUT, NOT_RUN = "timed out", "not run"
RIGHT, WRONG, HANG, ERROR, REFUSED = "right", "wrong", "hang", "error", "refused"
FAILED, NO_WITNESS = "launch failed", "no witness"
"""How :func:`heard` takes a complaint that names nothing, and one that correct kernels get too."""

Outcome = dict[str, Any]
SUMMARY = r"SUMMARY: (\d+) "
FRAME = r"COMPUTE-SANITIZER|SUMMARY:"
"""Around whatever a tool says."""
ABOUT_ITSELF = (
    r"Target application|process didn't terminate|Unified Memory from the host"
    r"|Internal Sanitizer Error|not supported|No attachable process"
)
"""What a tool says of its own troubles, and of a program that was stopped: no complaint."""
NAMELESS = r"Unknown Error|unspecified launch failure"
"""What a tool says of a launch that the GPU has stopped, where it knows no more than that."""


# ---- one run ------------------------------------------------------------------------------------


def plain(lines: Sequence[Mapping[str, Any]], status: int | None) -> Outcome:
    """Return what came of a mutant: ``lines`` are what its child wrote, ``status`` its exit status,
    None where it had to be killed.

    ``launches`` were begun and ``right`` of them left the right numbers. ``said`` is what was wrong
    first.
    """
    begun = sum(line["event"] == "launch" for line in lines)
    ends = [line for line in lines if line["event"] == "done"]
    faults = [line["fault"] for line in ends if line["fault"]]
    counts = {"launches": begun, "right": len(ends) - len(faults)}
    errors = [line["said"] for line in lines if line["event"] == "error"]
    if not begun:
        said = errors[0] if errors else f"exit status {status}"
        return {"outcome": NOT_RUN, **counts, "said": f"before the first launch: {said}"}
    if errors:
        return {"outcome": ERROR, **counts, "said": errors[0]}
    if begun > len(ends):
        killed = status is None or any(line["event"] == "hang" for line in lines)
        said = f"not done after {lines[0]['limit_s']:g} s" if killed else f"exit status {status}"
        return {"outcome": HANG if killed else ERROR, **counts, "said": said}
    return {"outcome": WRONG if faults else RIGHT, **counts, "said": (faults or [""])[0]}


def refused(reason: str) -> dict[str, Any]:
    """Return the runs of what cannot be built: none."""
    alone = {"outcome": REFUSED, "launches": 0, "right": 0, "said": ""}
    return {
        "compiler": reason,
        "plain": alone,
        **{tool: {"outcome": NOT_RUN, "said": ""} for tool in TOOLS},
    }


def sanitized(log: str, run: Outcome) -> Outcome:
    """Return what a tool made of a mutant: from its log, and what :func:`plain` says of the run."""
    own = [line.strip("= ") for line in log.splitlines() if line.startswith("=====")]
    lines = [line for line in own if line and not re.search(FRAME, line)]
    complaints = [line for line in lines if not re.search(ABOUT_ITSELF, line)]
    errors = [int(number) for line in own for number in re.findall(SUMMARY, line)]
    said = next(iter(complaints or lines), "")[:200]
    # One that has printed an error before its program was stopped has noticed it.
    if complaints and (sum(errors) or run["outcome"] == HANG):
        return {"outcome": NOTICED, "said": said}
    if run["outcome"] == HANG:
        return {"outcome": TIMED_OUT, "said": ""}
    if run["outcome"] == NOT_RUN or not errors:
        return {"outcome": UNSUPPORTED, "said": said or run["said"]}
    return {"outcome": UNNOTICED, "said": ""}


# ---- the record ---------------------------------------------------------------------------------


@cache
def sources() -> Mapping[str, Any]:
    """Return the hashes of all kernels and mutants, as they are now, in the form of a record.

    They are the same as long as the process lives: Python has read the package only once, too.
    """
    whole = {name: _hashes(k.path, k.gpu) for name, k in mutants.kernels().items()}
    return {"kernels": whole, "mutants": {name: hashes(name) for name in mutants.mutants()}}


@cache
def hashes(name: str) -> Mapping[str, Any]:
    """Return the hashes of one mutant, as it is now."""
    mutant = mutants.mutants()[name]
    patch = hashlib.sha256(mutant.patch.encode()).hexdigest()
    with mutants.folder() as folder:
        return _hashes(mutants.write(mutant, folder), mutant.kernel.gpu) | {"patch": patch}


def _hashes(path: Path, case: mutants.Case) -> dict[str, Any]:
    """Return the hashes of a program and of its CUDA; the latter is None where it is refused."""
    made: dict[str, Any] = {"source": program_hash(path.read_text()), "cuda": None}
    with suppress(LanguageError):
        made["cuda"] = cuda_hash(emit(mutants.lower(path, case)[1]))
    return made


def check(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record that is valid by ``outcomes_schema.json``; raise ArgumentError if not."""
    schema = json.loads(Path(__file__).with_name("outcomes_schema.json").read_text())
    found = jsonschema.Draft202012Validator(schema).iter_errors(record)
    error = jsonschema.exceptions.best_match(found)
    if error is not None:
        rule = "valid by outcomes_schema.json"
        value = f"{error.message} at {error.json_path}"
        raise ArgumentError("record", rule, value, "Run scripts/gpu failures again.")
    return record


def load(path: Path) -> Mapping[str, Any]:
    """Read a record; raise ArgumentError where it is not valid."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, or of the encoding
        raise ArgumentError("record", "JSON", error, "Run scripts/gpu failures again.") from error
    return check(data)


def heard(record: Mapping[str, Any], mutant: mutants.Mutant, tool: str) -> str:
    """Return what a tool's outcome on a mutant is worth.

    That is the outcome as recorded, except where the tool complains: a complaint that the correct
    kernel gets too is :data:`NO_WITNESS`, one that tells only of a failed launch :data:`FAILED`.
    """
    run = record["mutants"][mutant.id][tool]
    if run["outcome"] != NOTICED:
        return str(run["outcome"])
    if record["kernels"].get(mutant.kernel.name, {}).get(tool, {}).get("outcome") == NOTICED:
        return NO_WITNESS
    return FAILED if re.search(NAMELESS, run["said"]) else NOTICED


def stale(record: Mapping[str, Any], name: str, now: Mapping[str, Any]) -> bool:
    """Return whether a kernel or mutant is another one ``now``, by :func:`sources`, than it was."""
    was = record["sources"]["kernels"] | record["sources"]["mutants"]
    here = {**now["kernels"], **now["mutants"]}[name]
    # A patch that has moved with its kernel's lines makes the same program.
    return any(was.get(name, {}).get(key) != here[key] for key in ("source", "cuda"))
