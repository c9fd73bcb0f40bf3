# SPDX-License-Identifier: Apache-2.0
"""Run every mutant, and every correct kernel, on a GPU, alone and under compute-sanitizer.

    python examples/failures/on_gpu.py --json out/failures.json

Each run is a child process of its own, since a kernel that hangs or faults spoils its process. All
programs are compiled before. ``--device sim`` goes the same way at a small size, without a GPU.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import mutants
import numpy as np
import outcomes

from tilus import compiler, ir, records, runtime
from tilus.autotune.expected import by_reference
from tilus.autotune.trial import Placed, Runnable, Trial, images, runnable
from tilus.cli.simulate import make_arrays
from tilus.errors import CompileError, DeviceError, LanguageError, TilusError
from tilus.launch import Call, views
from tilus.workload import start

WORKERS = 12
START_LIMIT_S = 60.0
"""For a child to start, read its program and open the GPU; a tool makes that slow."""
FOLDERS = "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*/bin"
OPTIONS = "--report-api-errors", "no", "--print-limit", "10"
"""Of every tool: errors of API calls are the child's to tell, and ten complaints are enough."""


@dataclass(frozen=True)
class Plan:
    """How often a mutant is launched, and the seconds that a launch may take; alone, and with a
    tool, which makes it a hundred times slower. ``total_s``: all runs together."""

    launches: int = 20
    limit_s: float = 5.0
    tool_launches: int = 2
    tool_limit_s: float = 10.0
    total_s: float = 420.0

    def of(self, tool: str) -> tuple[int, float]:
        """Return launches and seconds of a run with a tool, or of a ``plain`` one."""
        if tool == "plain":
            return self.launches, self.limit_s
        return self.tool_launches, self.tool_limit_s


@dataclass(frozen=True)
class Subject:
    """What is run: a mutant or a correct kernel, with the correct kernel beside it.

    ``trials`` has the numbers -1, 0 and 1, whose result the reference tells, and normal numbers,
    whose result the correct kernel tells. ``note`` is what the compiler has against the program,
    which is run all the same.
    """

    name: str
    program: Runnable
    control: Runnable
    trials: tuple[Trial, Trial]
    note: str = ""


# ---- before: everything is compiled -------------------------------------------------------------


def subjects(device: str, leave_out: Collection[str] = ()) -> tuple[list[Subject], dict[str, str]]:
    """Return kernels and mutants, compiled for ``device``; and of those that are refused the
    reason. The kernels of mutants are compiled even where they are left out themselves."""
    broken, correct = mutants.mutants().values(), mutants.kernels()
    made, refused = {}, {}
    with mutants.folder() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {m.id: (mutants.write(m, folder), m.kernel) for m in broken}
        jobs |= {name: (kernel.path, kernel) for name, kernel in correct.items()}
        wanted = {name for name in jobs if name not in leave_out}
        wanted |= {jobs[name][1].name for name in wanted}
        for name, (path, kernel) in jobs.items():
            if name not in wanted:
                continue
            try:
                planned = mutants.lower(path, case_of(kernel, device))[1]
            except LanguageError as error:
                refused[name] = str(error).splitlines()[0].replace(str(path), path.name)
            else:
                made[name] = pool.submit(build, planned, device)
    built = {name: future.result() for name, future in made.items()}
    owner = {name: kernel.name for name, (_, kernel) in jobs.items()}
    tried = {name: prepare(kernel, device) for name, kernel in correct.items() if name in built}
    return [
        Subject(name, program, built[owner[name]][0], tried[owner[name]], note)
        for name, (program, note) in built.items()
        if name not in leave_out
    ], refused


def build(kernel: ir.Kernel, device: str) -> tuple[Runnable, str]:
    """Return a program for ``device``, and what the compiler has against it."""
    if device == "sim":
        return kernel, ""
    try:
        return compiler.build(kernel), ""
    except CompileError as error:
        return compiler.build(kernel, strict=False), str(error).splitlines()[0]


def case_of(kernel: mutants.Kernel, device: str) -> mutants.Case:
    """Return the case for a device: a usual one for a GPU, the bounded one for the simulator."""
    return kernel.simulator if device == "sim" else kernel.gpu


def prepare(kernel: mutants.Kernel, device: str) -> tuple[Trial, Trial]:
    """Return a kernel's two trials; of the normal numbers the result is not known yet."""
    case = case_of(kernel, device)
    script, made = mutants.lower(kernel.path, case)
    arrays = make_arrays(made, dict(case.arguments), np.random.default_rng(0))
    call = script.bind(**case.arguments, **arrays)
    written = views.written(made.function)
    exact, normal = images(call, written, "exact"), images(call, written, "normal")
    values = device, call.constants, call.scalars
    after = by_reference(script, call, exact, written)
    return Trial(*values, exact, after), Trial(*values, normal, normal)


# ---- the child ----------------------------------------------------------------------------------


class Child:
    """Launches one subject, and writes what happens, a line of JSON each, as it happens."""

    def __init__(self, path: Path, log: Path, launches: int, limit_s: float) -> None:
        with path.open("rb") as file:
            self.subject: Subject = pickle.load(file)
        self.log, self.launches, self.limit_s = log, launches, limit_s
        self.say("start", limit_s=limit_s, pid=os.getpid())

    def say(self, event: str, **fields: Any) -> None:
        """Write a line; it is in the file when this returns."""
        with self.log.open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")

    def run(self, *, alone: bool) -> None:
        """Launch the subject, on both kinds of numbers in turn; ``alone``: with no tool watching,
        so that the correct kernel may run first."""
        trials = [self.subject.trials[0]]
        try:
            if alone:
                trials.append(normal(self.subject))
            for number in range(self.launches):
                self.launch(trials[number % len(trials)])
        except TilusError as error:
            self.say("error", said=str(error).splitlines()[0])

    def launch(self, trial: Trial) -> None:
        """Launch once and compare all that it leaves behind; a launch that does not end ends us."""
        self.say("launch")
        watch = threading.Timer(self.limit_s, self.hang)
        watch.daemon = True
        watch.start()
        fault = trial.judge(self.subject.program)
        watch.cancel()
        self.say("done", fault=fault)

    def hang(self) -> None:
        """End at once: the main thread waits for the GPU, and will do so for ever."""
        self.say("hang")
        os.kill(os.getpid(), signal.SIGKILL)


def normal(subject: Subject) -> Trial:
    """Return the trial of normal numbers with the result that the correct kernel has."""
    trial = subject.trials[1]
    placed = {name: image.place(trial.device) for name, image in trial.before.items()}
    arrays = {name: p.array for name, p in placed.items()}
    runnable(subject.control, trial.device)(Call(trial.constants, trial.scalars, arrays, ()))
    after = {n: replace(image, raw=_fetched(placed[n])) for n, image in trial.before.items()}
    return replace(trial, after=after)


def _fetched(placed: Placed) -> Any:
    return placed.fetch().copy()


# ---- the parent ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """All runs: each subject, alone and with every tool, in children, several at a time."""

    folder: Path
    plan: Plan
    sanitizer: str | None
    say: Callable[[str], None]

    def carry_out(self, subjects: Sequence[Subject]) -> dict[str, dict[str, Any]]:
        """Return what came of each subject by name and tool; all run alone before tools do."""
        end = time.monotonic() + self.plan.total_s
        for subject in subjects:
            self._program(subject.name).write_bytes(pickle.dumps(subject, protocol=5))
        jobs = [(s.name, tool) for tool in ("plain", *outcomes.TOOLS) for s in subjects]
        with ThreadPoolExecutor(WORKERS) as pool:
            found = list(pool.map(lambda job: self._one(*job, end), jobs))
        results: dict[str, dict[str, Any]] = {s.name: {"compiler": s.note} for s in subjects}
        for (name, tool), outcome in zip(jobs, found, strict=True):
            results[name][tool] = outcome
        return results

    def _program(self, name: str) -> Path:
        return self.folder / f"{name}.program"

    def _one(self, name: str, tool: str, end: float) -> outcomes.Outcome:
        begin = time.monotonic()
        if outcome := self._not_run(tool, begin > end):
            return outcome
        outcome = self._child(name, tool)
        seconds = time.monotonic() - begin
        said = f"  {outcome['said']}" if outcome["said"] else ""
        self.say(f"{name:28} {tool:10} {outcome['outcome']:14} {seconds:5.1f} s{said}")
        return outcome

    def _not_run(self, tool: str, late: bool) -> outcomes.Outcome | None:
        counts = {"launches": 0, "right": 0} if tool == "plain" else {}
        if late:
            said = f"all runs together took over {self.plan.total_s:g} s"
            return {"outcome": outcomes.NOT_RUN, **counts, "said": said}
        if tool != "plain" and self.sanitizer is None:
            return {"outcome": outcomes.NOT_RUN, "said": "there is no compute-sanitizer"}
        return None

    def _child(self, name: str, tool: str) -> outcomes.Outcome:
        events, log = (self.folder / f"{name}.{tool}.{kind}" for kind in ("events", "log"))
        launches, limit_s = self.plan.of(tool)
        command = [sys.executable, __file__, "--child", str(self._program(name)), str(events)]
        command += [str(launches), str(limit_s), tool]
        if tool != "plain":
            assert self.sanitizer is not None
            prefix = [self.sanitizer, "--tool", tool, "--log-file", str(log), *OPTIONS]
            command = [*prefix, *command]
        status = supervised(command, START_LIMIT_S + launches * limit_s)
        lines = [json.loads(line) for line in _text(events).splitlines()]
        outcome = outcomes.plain(lines, status)
        return outcome if tool == "plain" else outcomes.sanitized(_text(log), outcome)


def supervised(command: Sequence[str], limit_s: float) -> int | None:
    """Run a program; return its exit status, None where it was killed: by us, after a time, or by
    itself. A child that even so does not go, since the GPU holds it, is left behind."""
    path = os.pathsep.join([str(mutants.ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path.strip(os.pathsep)}
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        status = child.wait(limit_s)
        return None if status == -signal.SIGKILL else status
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(10)
        return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def find_sanitizer() -> str | None:
    """Return the path of compute-sanitizer, None where there is none."""
    beside = [
        p for folder in FOLDERS for p in sorted(Path("/").glob(f"{folder[1:]}/compute-sanitizer"))
    ]
    return shutil.which("compute-sanitizer") or next((str(p) for p in beside if p.is_file()), None)


def version_of(sanitizer: str | None) -> str | None:
    """Return a tool's version."""
    if sanitizer is None:
        return None
    done = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, timeout=60)
    found = re.search(r"[Vv]ersion (\S+)", done.stdout)
    return found[1] if found else "unknown"


def record(
    device: str, plan: Plan, sanitizer: str | None, results: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the record of all runs."""
    gpu = None if device == "sim" else runtime.require_gpu()
    seen = runtime.telemetry(gpu) if gpu else None
    environment = records.environment(gpu, seen.power_limit_w if seen else None, {})
    known = mutants.kernels()
    return outcomes.check(
        {
            "schema": outcomes.SCHEMA_VERSION,
            "environment": environment | {"sanitizer": version_of(sanitizer)},
            "method": {
                "inputs": "entries of -1, 0 and 1, and normal numbers, in turn; with a tool the "
                "former only. All outputs are compared bit for bit: with the reference, and with "
                "what the correct kernel leaves",
                "launches": plan.launches,
                "limit_s": plan.limit_s,
                "tool_launches": plan.tool_launches,
                "tool_limit_s": plan.tool_limit_s,
            },
            "sources": outcomes.sources(),
            "kernels": {name: runs for name, runs in results.items() if name in known},
            "mutants": {name: runs for name, runs in results.items() if name not in known},
        }
    )


DEVICE = click.Option(["--device"], type=click.Choice(["cuda", "sim"]), default="cuda")
JSON = click.Option(["--json", "path"], type=click.Path(path_type=Path), required=True)
ONLY = click.Option(["--only"], multiple=True, help="A mutant or kernel; may be repeated.")
KNOWN = click.Option(
    ["--known"],
    type=click.Path(path_type=Path, dir_okay=False),
    help="A record of the same machine: what has not changed since is taken from it, not run.",
)


def still_true(path: Path | None, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a record whose programs are those of now; none where it comes from
    another machine, or from another way to run them."""
    if path is None or not path.exists():
        return {}
    known = outcomes.load(path)
    asked = "gpu", "driver", "nvrtc", "sanitizer"
    if any(known["environment"][name] != machine["environment"][name] for name in asked):
        return {}
    if known["method"] != machine["method"]:
        return {}
    now = outcomes.sources()
    results = known["kernels"] | known["mutants"]
    there = now["kernels"] | now["mutants"]
    return {
        name: result
        for name, result in results.items()
        if name in there and not outcomes.stale(known, name, now)
    }


def run(device: str, path: Path, only: Sequence[str], known: Path | None) -> None:
    """Run everything and write the record; fail where a correct kernel is not right."""
    plan, sanitizer = Plan(), find_sanitizer()
    kept = still_true(known, record(device, plan, sanitizer, {}))
    where = f"cuda:{runtime.require_gpu().index}" if device == "cuda" else device
    begin = time.monotonic()
    others = mutants.kernels().keys() | mutants.mutants().keys() if only else set()
    chosen, refused = subjects(where, leave_out=kept.keys() | (others - set(only)))
    click.echo(f"{len(chosen)} programs made in {time.monotonic() - begin:.0f} s; {sanitizer}")
    with tempfile.TemporaryDirectory(prefix="failures-") as folder:
        results = Runs(Path(folder), plan, sanitizer, click.echo).carry_out(chosen)
    results |= {name: outcomes.refused(reason) for name, reason in refused.items()} | kept
    made = record(device, plan, sanitizer, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    click.echo(f"record written: {path}")
    bad = [n for n, r in made["kernels"].items() if r["plain"]["outcome"] != outcomes.RIGHT]
    if bad:
        raise DeviceError(f"correct kernels that did not come out right: {', '.join(bad)}")


def child(path: str, events: str, launches: str, limit_s: str, tool: str) -> None:
    """Be the child of one run."""
    Child(Path(path), Path(events), int(launches), float(limit_s)).run(alone=tool == "plain")
    if tool == "plain":  # a tool may have more to say at an orderly end
        os._exit(0)  # a GPU that has failed may make that a long one
    sys.exit()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    start(click.Command("failures", params=[DEVICE, JSON, ONLY, KNOWN], callback=run, help=__doc__))
