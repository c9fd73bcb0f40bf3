# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries as the runtime sees them, and device memory of our own."""

from __future__ import annotations

import functools
import math
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilus import dtypes
from tilus.dtypes import DType
from tilus.errors import ArgumentError, DeviceError
from tilus.runtime.driver import binding, captures_allowed, check, core, on

CPU = "cpu"
LIBRARIES = ("torch", "cupy")
"""Those that have a current stream."""


@dataclass(frozen=True, slots=True)
class Array:
    """Where an array lies and how: ``strides`` in bytes, ``device`` is ``"cpu"`` or ``"cuda:0"``.

    ``owner`` keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: str
    writable: bool = True
    owner: object = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """All of it but the owner, who shall not live on for being remembered."""
        return (self.address, self.shape, self.strides, self.dtype, self.device, self.writable)

    @property
    def device_index(self) -> int | None:
        """Number of the GPU that holds it, or None for the CPU."""
        return None if self.device == CPU else int(self.device.removeprefix("cuda:"))


def describe(array: object, argument: str) -> Array:
    """Read address, shape, strides and type off ``array``; copy nothing, wait for no stream.

    Taken are NumPy arrays, our own, and what offers DLPack or ``__cuda_array_interface__``:
    PyTorch, CuPy, Numba, JAX. Raise ArgumentError, naming ``argument``, for anything else, and for
    what a kernel would silently leave aside: a mask, and that a gradient is wanted.
    """
    if isinstance(array, DeviceArray):
        return array.described
    if isinstance(array, np.ndarray):
        if isinstance(array, np.ma.MaskedArray):
            _refuse_mask(array.mask is not np.ma.nomask, argument)
        dtype = _dtype(array.dtype, argument)
        address, writable = array.ctypes.data, array.flags.writeable
        return Array(address, array.shape, array.strides, dtype, CPU, writable, array)
    if library_of(array) == "torch" and hasattr(array, "stride"):
        return _describe_torch(array, argument)
    if not is_array(array):
        rule = "an array with __cuda_array_interface__ or DLPack"
        remedy = "Pass an array of PyTorch, CuPy, Numba, JAX or NumPy."
        raise ArgumentError(argument, rule, f"a {type(array).__name__}", remedy)
    if hasattr(array, "__cuda_array_interface__"):
        return _describe_interface(array, argument)
    return _describe_dlpack(array, argument)


def is_array(value: object) -> bool:
    """Say whether ``value`` is an array of some library, or one of ours."""
    kinds = ("__dlpack__", "__cuda_array_interface__")
    return isinstance(value, DeviceArray) or any(hasattr(value, kind) for kind in kinds)


def library_of(array: object) -> str | None:
    """Return ``"torch"`` or ``"cupy"`` for their arrays, subclasses of theirs included."""
    names = (base.__module__.partition(".")[0] for base in type(array).__mro__)
    return next((name for name in names if name in LIBRARIES), None)


def grad_enabled() -> bool:
    """Say whether PyTorch records what is done with tensors that need a gradient."""
    return bool(sys.modules["torch"].is_grad_enabled())


def _refuse_mask(masked: bool, argument: str) -> None:
    if masked:
        raise ArgumentError(argument, "an array without a mask", "one with a mask", "Fill it in.")


def _describe_torch(tensor: Any, argument: str) -> Array:
    # The protocols cost several microseconds a tensor, its own methods less than one.
    try:
        address, strides, on_gpu = tensor.data_ptr(), tensor.stride(), tensor.is_cuda
    except RuntimeError as error:
        remedy = "Pass a tensor with memory of its own; .to_dense() makes one."
        raise ArgumentError(argument, "a strided tensor", f"{error}", remedy) from error
    if not on_gpu and tensor.device.type != CPU:
        raise ArgumentError(
            argument, "on a GPU of CUDA or the CPU", tensor.device, "Move it there."
        )
    if tensor.requires_grad and grad_enabled():
        rule = "a tensor that needs no gradient, as kernels pass none on"
        remedy = "Pass its .detach(), or call under torch.no_grad()."
        raise ArgumentError(argument, rule, "one with requires_grad=True", remedy)
    if tensor.is_neg():
        rule = "a tensor that lies in memory as it is read"
        remedy = "Pass its .resolve_neg()."
        raise ArgumentError(argument, rule, "the negative of what lies there", remedy)
    if not address and 0 not in tensor.shape:  # freed, fake, or a wrapper of other tensors
        rule, remedy = "a tensor with memory of its own", "Pass the tensor that holds the elements."
        raise ArgumentError(argument, rule, f"a {type(tensor).__name__} at address 0", remedy)
    dtype = _torch_dtype(tensor.dtype, argument)
    device = f"cuda:{tensor.get_device()}" if on_gpu else CPU
    strides = tuple(count * dtype.nbytes for count in strides)
    return Array(address, tuple(tensor.shape), strides, dtype, device, True, tensor)


def _describe_interface(array: Any, argument: str) -> Array:
    """Read the CUDA Array Interface, versions 2 and 3; the driver knows whose memory it is."""
    found = array.__cuda_array_interface__
    _refuse_mask(found.get("mask") is not None, argument)
    dtype = _dtype(np.dtype(found["typestr"]), argument)
    shape, (address, read_only) = tuple(found["shape"]), found["data"]
    strides = tuple(found.get("strides") or _row_major(shape, dtype.nbytes))
    index = _owner(address) if address else 0
    return Array(address, shape, strides, dtype, f"cuda:{index}", not read_only, array)


def _owner(address: int) -> int:
    """Return the number of the GPU whose memory ``address`` lies in."""
    driver = binding()
    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    what = f"looking up the GPU that holds address {address:#x}"
    return int(check(what, driver.cuPointerGetAttribute(ordinal, driver.CUdeviceptr(address))))


def _describe_dlpack(array: object, argument: str) -> Array:
    core()
    from cuda.core.utils import StridedMemoryView  # noqa: PLC0415

    try:
        # -1: no ordering between streams; the launch goes to the stream the array's library uses.
        view = StridedMemoryView.from_dlpack(array, stream_ptr=-1)
        found = view.dtype
    except Exception as error:
        rule = "an array that cuda.core can read through DLPack"
        remedy = "Pass a plain, strided array of a type that NumPy knows."
        raise ArgumentError(argument, rule, f"{type(array)}: {error}", remedy) from error
    dtype = _dtype(found, argument)
    counts = view.strides if view.strides is not None else _row_major(view.shape, 1)
    strides = tuple(count * dtype.nbytes for count in counts)
    on_gpu = view.is_device_accessible and view.device_id >= 0
    device = f"cuda:{view.device_id}" if on_gpu else CPU
    return Array(view.ptr, tuple(view.shape), strides, dtype, device, not view.readonly, array)


def _dtype(found: Any, argument: str) -> DType:
    dtype = dtypes.from_numpy(found) if found is not None else None
    if dtype is None:
        raise _no_such_type(found, argument)
    return dtype


@functools.cache
def _torch_dtype(found: Any, argument: str) -> DType:
    name = str(found).removeprefix("torch.").replace("bool", "boolean")
    dtype = next((t for t in dtypes.ALL if t.name == name), None)
    if dtype is None:
        raise _no_such_type(found, argument)
    return dtype


def _no_such_type(found: object, argument: str) -> ArgumentError:
    rule = "an array of " + ", ".join(t.name for t in dtypes.ALL)
    return ArgumentError(argument, rule, found, "Convert it to one of these types.")


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))


class DeviceArray:
    """Memory on a GPU, with a shape: all that examples and tests need where there is no PyTorch.

    ``DeviceArray(shape, dtype)`` holds whatever was there before. Copies wait for the whole GPU.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: int = 0) -> None:
        nbytes = max(1, math.prod(shape) * dtype.nbytes)
        owner = _Memory(nbytes, device)
        strides = _row_major(shape, dtype.nbytes)
        self.described = Array(owner.address, shape, strides, dtype, f"cuda:{device}", owner=owner)

    @classmethod
    def from_numpy(cls, array: np.ndarray, device: int = 0) -> DeviceArray:
        """Return a copy of a NumPy array on the GPU."""
        made = cls(array.shape, describe(array, "array").dtype, device)
        made.copy_from(array)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.described.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance of neighbours along each dimension in bytes."""
        return self.described.strides

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.described.dtype

    @property
    def device(self) -> int:
        """Number of the GPU that holds it."""
        return int(self.described.device.removeprefix("cuda:"))

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": np.dtype(self.dtype.numpy).str,
            "data": (self.described.address, False),
            "version": 3,
        }

    def view(
        self, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0
    ) -> DeviceArray:
        """Return another shape over the same memory; ``strides`` and ``offset`` count bytes."""
        old = self.described
        strides = strides or _row_major(shape, self.dtype.nbytes)
        extent, address = span(shape, strides, self.dtype.nbytes), old.address + offset
        memory = old.owner
        assert isinstance(memory, _Memory)
        if offset < 0 or min(strides, default=0) < 0 or address + extent > memory.end:
            rule = f"within the {memory.end - old.address} bytes of the array"
            value = f"{extent} bytes from byte {offset}"
            raise ArgumentError("view", rule, value, "Take a smaller shape, stride or offset.")
        other: DeviceArray = object.__new__(DeviceArray)
        other.described = Array(address, shape, strides, self.dtype, old.device, owner=memory)
        return other

    def copy_from(self, array: np.ndarray) -> None:
        """Overwrite the elements with those of a NumPy array of the same shape and type."""
        if (array.shape, array.dtype) != (self.shape, np.dtype(self.dtype.numpy)):
            rule = f"of shape {self.shape} and type {self.dtype}"
            raise ArgumentError("array", rule, f"{array.shape}, {array.dtype}", "Convert it first.")
        if self.strides == _row_major(self.shape, self.dtype.nbytes):
            host = np.ascontiguousarray(array)
        else:
            host, elements = self._download()  # what lies between the elements stays as it is
            elements[...] = array
        self._transfer("copying to the GPU", host, to_gpu=True)

    def to_numpy(self) -> np.ndarray:
        """Return a copy in NumPy, after all that the GPU was asked to do before."""
        _, elements = self._download()
        return elements

    def fill_bytes(self, value: int) -> None:
        """Set every byte from the first element to the last: 0xFF makes a float NaN."""
        driver, extent = binding(), span(self.shape, self.strides, self.dtype.nbytes)
        with on(self.device):
            check("filling", driver.cuMemsetD8(self.described.address, value, extent))

    def _download(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes from the first to the last element, and the elements as their view."""
        host = np.empty(span(self.shape, self.strides, self.dtype.nbytes), np.uint8)
        self._transfer("copying from the GPU", host, to_gpu=False)
        elements: np.ndarray = np.ndarray(self.shape, self.dtype.numpy, host, 0, self.strides)
        return host, elements

    def _transfer(self, doing: str, host: np.ndarray, *, to_gpu: bool) -> None:
        driver, address = binding(), self.described.address
        with on(self.device):
            # The copies run on the default stream, which does not wait for non-blocking streams.
            check(doing, driver.cuCtxSynchronize())
            if host.nbytes and to_gpu:
                check(doing, driver.cuMemcpyHtoD(address, host.ctypes.data, host.nbytes))
            elif host.nbytes:
                check(doing, driver.cuMemcpyDtoH(host.ctypes.data, address, host.nbytes))


class _Memory:
    """One allocation; freed, after all work that may use it, when nobody holds it any more."""

    def __init__(self, nbytes: int, device: int) -> None:
        # cuda.core allocates from stream-ordered pools; a plain allocation is freed after a wait
        # for all streams, so that no kernel of a stream we do not know loses its memory.
        with on(device), captures_allowed():
            pointer = check(f"allocating {nbytes} bytes", binding().cuMemAlloc(nbytes))
        self.address = int(pointer)
        self.end = self.address + nbytes
        weakref.finalize(self, _free, self.address, device).atexit = False


def _free(address: int, device: int) -> None:
    with suppress(DeviceError), on(device):
        binding().cuMemFree(address)


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes from an array's first element to behind its last; ``strides`` in bytes."""
    if 0 in shape:
        return 0
    return itemsize + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))
