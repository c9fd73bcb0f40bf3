# SPDX-License-Identifier: Apache-2.0
"""A record: measurements, the machine and method they were made with, and what they depend on.

The form is ``record_schema.json``, explained in ``docs/design/records.rst``. A record is checked
when it is written and when it is read, ratios are computed anew from the times beside them, and
:func:`staleness` says whether the kernel measured is still the kernel there is.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import jsonschema

from tilus import compiler, loader, nvrtc, runtime
from tilus.emitter import emit
from tilus.errors import ArgumentError
from tilus.fingerprint import cuda_hash, program_hash

SCHEMA_VERSION = 2
MEASURING = tuple(f"src/tilus/{name}.py" for name in ("baseline", "bench", "product", "verify"))
"""The modules whose change makes a record stale, besides the kernels."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """One problem in one regime: medians over rounds, then over processes.

    ``vs_cublas`` is cuBLAS's time over this version's, so above 1 is faster than cuBLAS; ``low``
    and ``high`` are the least and the largest ratio of any process. None without a cuBLAS.
    """

    latency_ms: float
    tflops: float
    vs_cublas: float | None
    low: float | None
    high: float | None
    processes: int
    schedule: Values | None


@dataclass(frozen=True)
class Record:
    """A valid record; ``data`` is its JSON."""

    data: Values

    def __post_init__(self) -> None:
        check(self.data)

    @property
    def environment(self) -> Values:
        """The machine, and when."""
        return self.data["environment"]  # type: ignore[no-any-return]

    @property
    def sources(self) -> Values:
        """The hashes of what was measured and of what measured it."""
        return self.data["sources"]  # type: ignore[no-any-return]

    @property
    def measurements(self) -> Sequence[Values]:
        """The rows: one for each version, size, regime and process."""
        return self.data["measurements"]  # type: ignore[no-any-return]

    def select(self, **fields: object) -> list[Values]:
        """Return the measurements whose fields have these values: ``version="v3", m=8192``."""
        return [row for row in self.measurements if fields.items() <= row.items()]

    def summary(self, version: str, m: int, n: int, k: int, regime: str = "burst") -> Summary:
        """Sum up what is known about one problem; raise :class:`ArgumentError` if nothing is."""
        rows = self.select(version=version, m=m, n=n, k=k, regime=regime)
        if not rows or regime == "simulated":
            found = f"no timed {regime} measurement of {version} at {m}x{n}x{k}"
            raise ArgumentError("record", "one that holds the problem", found, "Measure it.")
        latency = median(median(row["latency_ms"]) for row in rows)
        ratios = [row["vs_cublas"] for row in rows if row["vs_cublas"] is not None]
        return Summary(
            latency_ms=latency,
            tflops=tflops(m, n, k, latency),
            vs_cublas=median(ratios) if ratios else None,
            low=min(ratios, default=None),
            high=max(ratios, default=None),
            processes=len(rows),
            schedule=rows[0]["schedule"],
        )


def tflops(m: int, n: int, k: int, milliseconds: float) -> float:
    """Return the speed of a product in 10^12 operations a second."""
    return 2 * m * n * k / milliseconds / 1e9


def environment(
    gpu: runtime.Gpu | None, power_limit_w: float | None, cublas: Mapping[str, Values]
) -> dict[str, Any]:
    """Return the part ``environment`` of a record, of a ``gpu`` or, where None, the simulator."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": "cuda" if gpu else "sim",
        "gpu": gpu and gpu.name,
        "form": gpu and form(gpu.name),
        "compute_capability": gpu and ".".join(map(str, gpu.capability)),
        "sms": gpu and gpu.sms,
        "power_limit_w": power_limit_w,
        "driver": gpu and gpu.driver,
        "cuda": gpu and ".".join(map(str, gpu.cuda)),
        "nvrtc": nvrtc.nvrtc_version() if gpu else None,
        "cublas": dict(cublas),
        "python": platform.python_version(),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def form(name: str) -> str:
    """Return the form of a Hopper GPU, which its name tells: plain H100 and H200 are SXM."""
    marks = (mark for mark in ("GH200", "NVL", "PCIe") if mark in name)
    return next(marks, "SXM" if "H100" in name or "H200" in name else "unknown")


# ---- reading and writing ------------------------------------------------------------------------


def load(path: Path) -> Record:
    """Read a record; raise :class:`ArgumentError` where :func:`check` finds it wrong."""
    try:
        data = json.loads(Path(path).read_text(), parse_constant=_refuse_constant)
    except ValueError as error:
        raise _invalid("JSON with finite numbers", str(error)) from error
    return Record(data)


def write(record: Record, path: Path) -> None:
    """Write a record, sorted and indented, so that two of them can be compared as text."""
    text = json.dumps(record.data, indent=1, sort_keys=True, allow_nan=False)
    # Short lists of numbers stay on one line: a record is also read by people.
    compact = re.sub(r"\[\s+([-\d.eE+,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(compact + "\n")


def check(data: Values) -> None:
    """Raise :class:`ArgumentError` where ``data`` breaks the schema or contradicts itself."""
    error = jsonschema.exceptions.best_match(_validator().iter_errors(data))
    if error is not None:
        raise _invalid("valid by record_schema.json", f"{error.message} at {error.json_path}")
    for place, number in _numbers(data, "$"):
        if not math.isfinite(number):
            raise _invalid("made of finite numbers", f"{number} at {place}")
    for row in data["measurements"]:
        _check_ratio(row, data["measurements"])


def merge(parts: Sequence[Record]) -> Record:
    """Join records of fresh processes of one program on one machine, of any sizes and rounds.

    A process whose number another one has at the same size and regime gets the next free number.
    """
    first = parts[0].data
    for other in parts[1:]:
        for part, ours, theirs in _comparable(first, other.data):
            if ours != theirs:
                raise _invalid(f"of the same {part} as the others", json.dumps(theirs))
    kernels = dict(first["sources"]["kernels"])
    for name, kernel in (item for r in parts[1:] for item in r.sources["kernels"].items()):
        kernels[name] = _joined(kernels.get(name, kernel), kernel)
    rows: list[Values] = []
    for record in parts:
        rows += _renumbered(record.measurements, {_window(row) for row in rows})
    sources = {**first["sources"], "kernels": kernels}
    rivals = {n: rival for r in parts for n, rival in r.data["environment"]["cublas"].items()}
    environment = {**first["environment"], "cublas": rivals}
    return Record({**first, "environment": environment, "sources": sources, "measurements": rows})


def _comparable(a: Values, b: Values) -> Iterator[tuple[str, object, object]]:
    yield "method", _without_rounds(a["method"]), _without_rounds(b["method"])
    yield "measuring", a["sources"]["measuring"], b["sources"]["measuring"]
    ours, theirs = a["sources"]["kernels"], b["sources"]["kernels"]
    for name in ours.keys() & theirs.keys():
        yield f"kernel {name}", ours[name]["sha256"], theirs[name]["sha256"]
    ours, theirs = a["environment"]["cublas"], b["environment"]["cublas"]
    for name in ours.keys() & theirs.keys():  # not all rivals were there each time
        yield name, ours[name], theirs[name]
    for part in a["environment"].keys() - {"date", "cublas"}:
        yield part, a["environment"][part], b["environment"].get(part)


def _without_rounds(method: Values) -> Values:
    """Leave out how many rounds the bursts had: every row has a value for each of its own."""
    burst = {name: value for name, value in method.get("burst", {}).items() if name != "rounds"}
    return {**method, "burst": burst}


def _window(row: Values) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("m", "n", "k", "regime", "process"))


def _renumbered(rows: Sequence[Values], taken: set[tuple[Any, ...]]) -> list[Values]:
    """Return rows, those of one process together, under process numbers that are not taken."""
    numbers: dict[tuple[Any, ...], int] = {}
    for *problem, process in dict.fromkeys(map(_window, rows)):
        free = (i for i in count(process) if (*problem, i) not in taken)
        numbers[(*problem, process)] = number = next(free)
        taken.add((*problem, number))
    return [{**row, "process": numbers[_window(row)]} for row in rows]


def _joined(ours: Values, theirs: Values) -> Values:
    """Return one version's source with the schedules of both; facts are those of the first."""
    entries = (*ours.get("generated", ()), *theirs.get("generated", ()))
    first: dict[str, Values] = {}
    for entry in entries:
        key = {name: value for name, value in entry.items() if name != "facts"}
        first.setdefault(json.dumps(key, sort_keys=True), entry)
    return {**ours, "generated": list(first.values())} if first else ours


def _check_ratio(row: Values, rows: Sequence[Values]) -> None:
    """A ratio must follow from the times in the record: it is never a number of its own."""
    baseline = _same_window(rows, row, "cublas")
    if baseline is None or row["vs_cublas"] is None:
        if row["vs_cublas"] is not None:
            raise _invalid("without vs_cublas where cublas was not timed", row["vs_cublas"])
        return
    expected = ratio(baseline["latency_ms"], row["latency_ms"])
    if not math.isclose(expected, row["vs_cublas"], rel_tol=1e-6):
        rule = f"of vs_cublas {expected:.6f} by the times of {row['version']} in its rounds"
        raise _invalid(rule, row["vs_cublas"])


def _same_window(rows: Sequence[Values], row: Values, version: str) -> Values | None:
    keys = ("m", "n", "k", "regime", "process")
    wanted = {"version": version} | {key: row[key] for key in keys}
    return next((other for other in rows if wanted.items() <= other.items()), None)


def ratio(baseline_ms: Sequence[float], own_ms: Sequence[float]) -> float:
    """Return the median over rounds of the baseline's time over one's own: above 1 is faster."""
    return median(b / own for b, own in zip(baseline_ms, own_ms, strict=True))


def _numbers(value: object, place: str) -> Iterator[tuple[str, float]]:
    match value:
        case float():
            yield place, value
        case dict():
            for key, item in value.items():
                yield from _numbers(item, f"{place}.{key}")
        case list() | tuple():
            for i, item in enumerate(value):
                yield from _numbers(item, f"{place}[{i}]")


@cache
def _validator() -> Any:
    schema = json.loads(resources.files("tilus").joinpath("record_schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _invalid(rule: str, value: object) -> ArgumentError:
    return ArgumentError("record", rule, value, "Measure again; a record is never edited by hand.")


# ---- hashes and staleness -----------------------------------------------------------------------


def generated(cls: Any, schedule: Values, arguments: Values) -> dict[str, Any]:
    """Return the record's entry for the CUDA of one schedule at compile-time ``arguments``."""
    cuda = emit(compiler.lower(cls(**schedule), arguments))
    return {"schedule": dict(schedule), "arguments": dict(arguments), "sha256": cuda_hash(cuda)}


def kernel(
    file: str, root: Path, cls: Any = None, entries: Sequence[Values] = ()
) -> dict[str, Any]:
    """Return what a version's numbers depend on, for ``sources``; ``file`` is below ``root``.

    A kernel of ours has its class and the CUDA of each schedule; a rival has its file alone.
    """
    own = {"class": cls.__name__, "generated": list(entries)} if cls else {}
    return {"file": file, "sha256": _file_hash(root / file), **own}


def sources(kernels: Mapping[str, Values], root: Path) -> dict[str, Any]:
    """Return the part ``sources`` of a record: each version's :func:`kernel`, and what measured."""
    measuring = {name: _file_hash(root / name) for name in MEASURING}
    return {"kernels": dict(kernels), "measuring": measuring}


def staleness(record: Record, root: Path, version: str | None = None) -> tuple[str, ...]:
    """Say what has changed in the tree at ``root`` since the record was made; nothing: ().

    Compares the measuring modules and, of ``version`` or of all, the kernel's file and the CUDA
    that the compiler makes of it now with what it made then. Other versions make none stale. A
    further kernel of a version is named after it: ``kernels.matmul.pairs``.
    """
    measuring = record.sources["measuring"].items()
    changed = [f"{file} changed" for file, sha in measuring if _file_hash(root / file) != sha]
    for name, source in record.sources["kernels"].items():
        if version is None or f"{name}.".startswith(f"{version}."):
            changed += changes(source, root)
    return tuple(changed)


def changes(source: Values, root: Path) -> Iterator[str]:
    """Yield what has changed of one :func:`kernel` in the tree at ``root``."""
    if _file_hash(root / source["file"]) != source["sha256"]:
        yield f"{source['file']} changed"
    if "class" not in source:
        return
    name = source["class"]
    try:
        cls = loader.find(root / source["file"], object, name)
        for entry in source["generated"]:
            made = generated(cls, entry["schedule"], entry["arguments"])
            if made["sha256"] != entry["sha256"]:
                yield f"the CUDA of {name} at {entry['schedule']} changed"
    except Exception as error:  # whatever the kernel's file may do now, the answer is "stale"
        summary = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield f"{name} no longer compiles: {summary}"


def _file_hash(path: Path) -> str | None:
    """Return a file's program hash, or None where there is no such program."""
    try:
        return program_hash(path.read_text())
    except (OSError, SyntaxError):
        return None
