# SPDX-License-Identifier: Apache-2.0
"""
Measure the ladder: any versions, sizes and rivals, in turn within one process
==============================================================================

::

    python benchmark.py                                       # all versions at 8192³
    python benchmark.py --version v3 --version v5 --size 4096 4096 4096 --contender triton
    python benchmark.py --version v3 --schedule num_stages=4,block_m=128,block_n=128,block_k=64

Every result is judged before it is timed. Without a Hopper GPU the versions run on the simulator,
which judges them too, and says cycles of its model instead of times.
"""

import functools
import importlib.util
import json
import warnings
from ast import literal_eval
from importlib import metadata
from pathlib import Path

import click

from tilus import Script, baseline, loader, runtime, workload
from tilus.bench import Burst
from tilus.errors import ArgumentError

FOLDER = Path(__file__).parent
VERSIONS = {path.stem.removeprefix("matmul_"): path for path in FOLDER.glob("matmul_v*.py")}
NAMES = sorted(VERSIONS)
TRITON = FOLDER / "triton_matmul.py"
CONTENDERS = (*baseline.CUBLAS, "triton")
WARM_UPS = 3


def cublas(names):
    """Return what finds those of ``names`` that are cuBLAS's."""
    return functools.partial(baseline.contenders, names=names)


def triton(a, b, c):
    """Return the rival in Triton, where that is installed and works."""
    if not all(importlib.util.find_spec(name) for name in ("triton", "torch")):
        return []
    try:
        module = _triton()
        launch, library = module.launcher(a, b, c), f"triton {metadata.version('triton')}"
        launch()  # compiles and tunes
    except Exception as error:  # whatever a foreign library raises: one rival less, and said
        warnings.warn(f"triton is not measured: {error}", stacklevel=2)
        return []
    return [baseline.Contender("triton", launch, library, None, module.chosen, TRITON)]


@functools.cache
def _triton():
    return loader.load(TRITON)


def finders(names):
    """Return what finds the rivals in ``names``; say which of them are missing."""

    def find(a, b, c):
        found = [*cublas(names)(a, b, c), *(triton(a, b, c) if "triton" in names else [])]
        missing = [name for name in names if name not in {rival.name for rival in found}]
        if missing:
            click.echo(f"not here: {', '.join(missing)}")
        return found

    return (find,) if names else ()


def schedules(words, versions):
    """Return version -> schedule from words like ``v3:num_stages=4,block_m=128``.

    Without a version in front, the values hold for all ``versions``.
    """
    given = {}
    for word in words:
        version, colon, values = word.rpartition(":")
        pairs = (pair.partition("=") for pair in values.split(","))
        try:
            schedule = {name: literal_eval(value) for name, _, value in pairs}
        except (ValueError, SyntaxError):
            rule, remedy = "[VERSION:]NAME=VALUE,...", "Write num_stages=4,block_m=128."
            raise ArgumentError("--schedule", rule, repr(word), remedy) from None
        if colon and version not in versions:
            rule = f"for one of {', '.join(versions)}"
            raise ArgumentError("--schedule", rule, repr(word), "Name a version that is measured.")
        for name in [version] if colon else versions:
            given.setdefault(name, {}).update(schedule)
    return given


def profile(scripts, request):
    """Launch each version, and cuBLAS, once where a profiler sees it; write what it saw.

    The profiler is told to wait (``ncu --profile-from-start off``).
    """
    gpu = runtime.require_gpu()
    for product in workload.products(scripts, request, gpu):
        product.check()
        product.find([cublas(("cublas",))])
        launches = product.launches()
        for launch in launches.values():
            for _ in range(WARM_UPS):
                launch()
            with runtime.profiled(gpu.index):
                launch()
        if request.path is not None:
            request.path.write_text(json.dumps(product.account(), indent=1, sort_keys=True) + "\n")


SIZE = {"type": click.IntRange(1), "nargs": 3, "metavar": "M N K"}
OPTIONS = [
    click.Option(["--version", "versions"], type=click.Choice(NAMES), multiple=True,
                 default=NAMES, show_default=True, help="A version; may be repeated."),
    click.Option(["--size", "sizes"], multiple=True, help="A problem; may be repeated.", **SIZE),
    click.Option(["--contender", "contenders"], type=click.Choice(CONTENDERS), multiple=True,
                 default=CONTENDERS, show_default=True, help="A rival; may be repeated."),
    click.Option(["--schedule", "words"], multiple=True, metavar="[VERSION:]NAME=VALUE,...",
                 help="Values of the schedule, which are not tuned; may be repeated."),
    click.Option(["--tune-at"], help="Tune for this problem, and measure all with that.", **SIZE),
    click.Option(["--rounds"], type=click.IntRange(1), default=Burst.rounds, show_default=True,
                 help="Bursts of each contender."),
    click.Option(["--runs"], type=click.IntRange(1), default=1, show_default=True,
                 help="Runs that must leave the same bits before anything is timed."),
    click.Option(["--process"], type=click.IntRange(0), default=0, show_default=True,
                 help="The number of this process among fresh ones, for the record."),
    click.Option(["--profile", "profiled"], is_flag=True,
                 help="Launch each once between the marks of a profiler, and time nothing."),
    workload.DEVICE, workload.REGIME, workload.JSON,
]  # fmt: skip


def run(versions, contenders, words, profiled, **asked):
    """Do what the command line asks for."""
    scripts = {name: loader.find(VERSIONS[name], Script) for name in dict.fromkeys(versions)}
    request = workload.Request(
        finders=finders(contenders), given=schedules(words, list(scripts)), **asked
    )
    (profile if profiled else workload.carry_out)(scripts, request)


COMMAND = click.Command("benchmark", params=OPTIONS, callback=run, help=__doc__.split("\n")[1])

if __name__ == "__main__":
    workload.start(COMMAND)
