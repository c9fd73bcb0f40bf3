# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver: its binding, its contexts, and its status codes as exceptions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilus.errors import DeviceError, TilusError
from tilus.nvrtc import INSTALL_CUDA_PYTHON

ABSENT = ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUB_LIBRARY")
"""What the driver says where it has no GPU to drive, or is none itself."""


@functools.cache
def core() -> Any:
    """Import ``cuda.core``, which takes 0.2 s and is not needed before a GPU is."""
    try:
        import cuda.core  # noqa: PLC0415
    except ImportError as error:
        raise DeviceError(
            "no binding of the CUDA driver", str(error), "cuda-core", INSTALL_CUDA_PYTHON, True
        ) from error
    return cuda.core


@functools.cache
def binding() -> Any:
    """Import ``cuda.bindings.driver``, for what ``cuda.core`` lacks."""
    core()
    from cuda.bindings import driver  # noqa: PLC0415

    return driver


def check(doing: str, result: tuple[Any, ...]) -> Any:
    """Return what a driver call gave besides its status (one value, or a tuple of several).

    Raise DeviceError if it failed. An error of an earlier kernel is reported by whatever call comes
    next, so ``doing`` may be innocent of an illegal address.
    """
    status, *values = result
    if status:
        _, text = binding().cuGetErrorString(status)
        said = text.decode() if text else "no description"
        raise DeviceError(f"{doing}: {status.name}: {said}")
    return values[0] if len(values) == 1 else tuple(values)


@contextmanager
def device_errors(doing: str) -> Iterator[None]:
    """Turn whatever ``cuda.core`` raises inside into a DeviceError."""
    try:
        yield
    except TilusError:
        raise
    except Exception as error:
        said = "no NVIDIA driver (libcuda was not found)" if _no_driver(error) else str(error)
        absent = _no_driver(error) or any(word in said for word in ABSENT)
        raise DeviceError(f"{doing}: {said}", said, absent=absent) from error


def _no_driver(error: Exception) -> bool:
    from cuda.pathfinder import DynamicLibNotFoundError  # noqa: PLC0415

    return isinstance(error, DynamicLibNotFoundError)


@functools.cache
def primary_context(device: int) -> Any:
    """Return the device's primary context, which PyTorch and CuPy use too; keep it for good."""
    driver, doing = binding(), f"opening GPU {device}"
    with device_errors(doing):  # the first call of all loads the driver
        status = driver.cuInit(0)
    check(doing, status)
    return check(doing, driver.cuDevicePrimaryCtxRetain(driver.CUdevice(device)))


@contextmanager
def on(device: int) -> Iterator[None]:
    """Make ``device`` current inside the block, and what was current before again after it."""
    driver = binding()
    check(f"using GPU {device}", driver.cuCtxPushCurrent(primary_context(device)))
    try:
        yield
    finally:
        driver.cuCtxPopCurrent()


@contextmanager
def captures_allowed() -> Iterator[None]:
    """Allow inside the block what the driver forbids while some stream is captured for a CUDA
    graph, such as allocating memory: it becomes no part of the graph.

    CUDA driver API, cuThreadExchangeStreamCaptureMode.
    """
    driver, doing = binding(), "allowing calls while a stream is captured"
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(doing, driver.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)
