# SPDX-License-Identifier: Apache-2.0
"""The contenders that kernels are measured against: cuBLAS, by way of libraries that have it.

They are looked for when a measurement asks, and nothing here needs them. Not a line of cuBLAS is
called by ourselves: what a reader would get from PyTorch or CuPy is what we compare with.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

WORKSPACE = 32 * 2**20
"""Bytes of workspace that cublasLt's algorithms may ask for."""
HEURISTICS = 16
"""How many of cublasLt's suggestions are measured."""
CUBLAS = ("cublas", "cublaslt")
"""cuBLAS's default, and the fastest of cublasLt's suggestions."""
INSTALL = 'pip install "tilus-hopper-tutorial[baseline]", or PyTorch'


@dataclass(frozen=True)
class Contender:
    """``launch`` queues one product on the default stream; ``library`` made it, with cuBLAS
    ``version``; ``kernel()`` names the machine code that a launch runs, where that can be seen;
    ``file`` holds the kernel where it is part of the repository."""

    name: str
    launch: Callable[[], object]
    library: str
    version: str | None
    kernel: Callable[[], str | None]
    file: Path | None = None


def contenders(a: object, b: object, c: object, names: Collection[str] = CUBLAS) -> list[Contender]:
    """Return what can compute C = A Bᵀ, float16 with float32 sums, on these arrays of a GPU.

    Of ``names``, ``cublas`` is the library's default, ``cublaslt`` the fastest of cublasLt's
    suggestions, which are measured here. The arrays offer ``__cuda_array_interface__``; C is
    overwritten.
    """
    library = _library()
    if library is None or not set(names) & set(CUBLAS):
        return []
    wrap = _wrap_torch(library) if library.__name__ == "torch" else library.asarray
    arrays = tuple(wrap(x) for x in (a, b, c))
    found = [_default(library, *arrays)] if "cublas" in names else []
    if "cublaslt" in names and importlib.util.find_spec("nvmath") is not None:
        try:
            found.append(_measured(library, *arrays))
        except Exception as error:  # whatever a foreign library raises: one rival less, and said
            warnings.warn(f"cublaslt is not measured: nvmath-python: {error}", stacklevel=2)
    return found


def libraries() -> list[str]:
    """Return the names of the installed libraries that multiply matrices on a GPU by cuBLAS."""
    return [name for name in ("torch", "cupy") if importlib.util.find_spec(name)]


def _library() -> ModuleType | None:
    """Import the first of :func:`libraries` that sees a GPU."""
    imported = (importlib.import_module(name) for name in libraries())
    return next((library for library in imported if library.cuda.is_available()), None)


def _wrap_torch(torch: Any) -> Callable[[object], Any]:
    # Sums of partial products in float16 would be another computation, and a faster one.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return lambda x: torch.as_tensor(x, device="cuda")


def _default(library: Any, a: Any, b: Any, c: Any) -> Contender:
    def launch() -> object:
        return library.matmul(a, b.T, out=c)

    name = f"{library.__name__} {metadata.version(_distribution(library.__name__))}"
    return Contender("cublas", launch, name, cublas_version(), lambda: _kernel(library, launch))


def _measured(library: Any, a: Any, b: Any, c: Any) -> Contender:
    advanced = importlib.import_module("nvmath.linalg.advanced")
    compute_type = importlib.import_module("nvmath.linalg").ComputeType.COMPUTE_32F
    options = {"inplace": True, "memory_limit": WORKSPACE, "compute_type": compute_type}
    product = advanced.Matmul(a, b.T, c=c, beta=0.0, options=options)
    product.plan(preferences={"limit": HEURISTICS})
    product.autotune(iterations=5)
    name = f"nvmath-python {metadata.version('nvmath-python')}"
    launch = product.execute
    return Contender("cublaslt", launch, name, cublas_version(), lambda: _kernel(library, launch))


def cublas_version() -> str | None:
    """Return the version of the cuBLAS that is installed as a package, if one is."""
    for package in ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def _distribution(module: str) -> str:
    """Return the name of the package that a module came from: cupy's has the CUDA version in it."""
    return next(iter(metadata.packages_distributions().get(module, [module])))


def _kernel(library: Any, launch: Callable[[], object]) -> str | None:
    """Let PyTorch's profiler name the kernel that takes longest in one launch."""
    if library.__name__ != "torch":
        return None
    activity = library.profiler.ProfilerActivity
    try:
        with library.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profile:
            launch()
            library.cuda.synchronize()
    except RuntimeError:  # no profiling on this machine: the name stays unknown
        return None
    seen = [e for e in profile.events() if e.device_type == library.autograd.DeviceType.CUDA]
    longest = max(seen, key=lambda event: event.time_range.elapsed_us(), default=None)
    return longest and str(longest.name)
