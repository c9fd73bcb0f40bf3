# SPDX-License-Identifier: Apache-2.0
"""``tilus doctor``: what this machine has, what is missing, and what mends it."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilus import baseline, disasm, nvrtc, runtime
from tilus.cli import probe
from tilus.errors import DeviceError, TilusError
from tilus.options import option
from tilus.store import Store
from tilus.workload import INSTALL_CUBLAS

OURS = "tilus-hopper-tutorial"

#: What lacks something if a finding is missing: the simulator, the GPU path, or neither.
Path = Literal["simulator", "gpu", "extra"]


@dataclass(frozen=True)
class Finding:
    """One row: what was looked for, what is there, whether that will do, and what mends it."""

    what: str
    found: str
    ok: bool
    path: Path
    mend: str = ""


@click.command("doctor")
def command() -> None:
    """Show what was found on this machine, what is missing, and how to mend it."""
    sys.exit(report(examine(), Console()))


def examine() -> list[Finding]:
    """Look at everything; a check that fails in a way of its own becomes a finding too."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check()
        except Exception as error:
            what = check.__name__.removeprefix("check_").replace("_", " ")
            findings.append(Finding(what, f"{type(error).__name__}: {error}", False, "extra"))
    return findings


def check_python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    mend = "install Python 3.11 or newer"
    yield Finding("Python", platform.python_version(), ok, "simulator", "" if ok else mend)


def check_tilus() -> Iterator[Finding]:
    yield Finding("tilus", f"{OURS} {version(OURS) or 'not installed'}", True, "extra")
    foreign = foreign_tilus()
    if foreign:
        found = f"{', '.join(foreign)} brings a package of the same name"
        mend = f"pip uninstall {' '.join(foreign)}, then pip install --force-reinstall {OURS}"
        yield Finding("foreign tilus", found, False, "simulator", mend)


def check_simulator() -> Iterator[Finding]:
    ok = probe.on_simulator()
    found = "ran a kernel" if ok else "ran a kernel and got wrong values"
    yield Finding("simulator", found, ok, "simulator", "" if ok else "please report it")


def check_cuda_python() -> Iterator[Finding]:
    for name in ("cuda-bindings", "cuda-core"):
        found = version(name)
        mend = "" if found else nvrtc.INSTALL_CUDA_PYTHON
        yield Finding(name, found or "missing", found is not None, "gpu", mend)


def check_nvrtc() -> Iterator[Finding]:
    try:
        program = probe.compiled()
    except TilusError as error:
        yield Finding("NVRTC", found_of(error), False, "gpu", mend_of(error))
    else:
        found = f"{program.cubin.nvrtc}, compiled a kernel for {nvrtc.TARGET}"
        yield Finding("NVRTC", found, True, "gpu")


def check_gpu() -> Iterator[Finding]:
    gpus: tuple[runtime.Gpu, ...] = ()
    with suppress(TilusError):
        gpus = runtime.gpus()
    for gpu in gpus:
        yield Finding(f"GPU {gpu.index}", facts(gpu), True, "extra")
    try:
        chosen = runtime.require_gpu()
    except TilusError as error:
        yield Finding("GPU", found_of(error), False, "gpu", mend_of(error))
        return
    yield Finding("driver", f"{chosen.driver}, CUDA {dotted(chosen.cuda)}", True, "gpu")
    ok = probe.on_gpu(chosen)
    found = f"GPU {chosen.index} ran a kernel" + ("" if ok else " and got wrong values")
    yield Finding("target", found, ok, "gpu", "" if ok else "please report it")


def facts(gpu: runtime.Gpu) -> str:
    """Return one line about a GPU."""
    now = runtime.telemetry(gpu)
    parts = [
        gpu.name,
        f"compute capability {dotted(gpu.capability)}",
        f"{gpu.sms} SMs",
        f"{gpu.shared_bytes} bytes of shared memory a block",
        f"L2 {gpu.l2_bytes >> 20} MiB",
        f"{gpu.memory_bytes >> 30} GiB",
    ]
    if now:
        parts += [f"{now.power_limit_w:.0f} W", f"SM at {now.sm_mhz} MHz now"]
    return ", ".join(parts)


def check_disassemblers() -> Iterator[Finding]:
    missing = [name for name in ("nvdisasm", "cuobjdump") if disasm.find_tool(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else "nvdisasm and cuobjdump"
    mend = f"pip install {' '.join(f'nvidia-cuda-{name}' for name in missing)}" if missing else ""
    yield Finding("disassemblers", found, not missing, "extra", mend)


def check_baseline() -> Iterator[Finding]:
    found = baseline.libraries()
    rival = version("nvmath-python")
    parts = [*found, f"nvmath-python {rival}"] if found and rival else found
    said = " and ".join(parts) or "PyTorch or CuPy missing: there is nothing to compare speed with"
    yield Finding("cuBLAS", said, bool(found), "extra", "" if found else INSTALL_CUBLAS)


def check_cache_folder() -> Iterator[Finding]:
    folder = option.current_cache_dir
    store = Store(folder)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        store.put("doctor", b"was here")
    ok = store.get("doctor") is not None
    if ok:
        (folder / "doctor").unlink()
    found = f"{folder}" if ok else f"{folder} cannot be written"
    mend = "" if ok else "set TILUS_CACHE_DIR to a folder that can"
    yield Finding("cache folder", found, ok, "extra", mend)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_python,
    check_tilus,
    check_simulator,
    check_cuda_python,
    check_nvrtc,
    check_gpu,
    check_disassemblers,
    check_baseline,
    check_cache_folder,
)


def foreign_tilus() -> list[str]:
    """Return the other installed distributions that bring a top-level package ``tilus``."""
    names = {
        d.lower().replace("_", "-") for d in metadata.packages_distributions().get("tilus", ())
    }
    return sorted(names - {OURS})


def version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def found_of(error: Exception) -> str:
    """Return what an error says it found, without the labels."""
    return error.found if isinstance(error, DeviceError) and error.found else first_line(error)


def mend_of(error: Exception) -> str:
    """Return the remedy that an error names, or ''."""
    return error.mend if isinstance(error, DeviceError) else ""


def report(findings: list[Finding], console: Console) -> int:
    """Print the findings and what they mean; return 0 if at least the simulator works."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for title in ("", "looked for", "found", "mend with"):
        table.add_column(title, overflow="fold")
    for f in findings:
        sign = Text("✓", "green") if f.ok else SIGNS[f.path]
        table.add_row(sign, Text(f.what), Text(f.found), Text(f.mend, "yellow"))
    console.print(table)
    console.print()
    for name, path in (("The simulator", "simulator"), ("The GPU path", "gpu")):
        console.print(Text(verdict(name, [f for f in findings if f.path == path and not f.ok])))
    return int(any(f.path == "simulator" and not f.ok for f in findings))


SIGNS = {"simulator": Text("✗", "red"), "gpu": Text("✗", "red"), "extra": Text("–", "yellow")}


def verdict(name: str, missing: list[Finding]) -> str:
    if not missing:
        return f"{name} works."
    return f"{name} lacks: {', '.join(f.what for f in missing)}."
