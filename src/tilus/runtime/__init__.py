# SPDX-License-Identifier: Apache-2.0
"""What the host does when a kernel runs: arrays, tensor maps, launches, streams, the GPU.

Importing it imports no CUDA; the first use does.
"""

from tilus.runtime.arrays import (
    CPU,
    Array,
    DeviceArray,
    describe,
    grad_enabled,
    is_array,
    library_of,
    span,
)
from tilus.runtime.device import (
    Gpu,
    Telemetry,
    driver_version,
    energy_j,
    find_gpu,
    gpus,
    require_gpu,
    telemetry,
)
from tilus.runtime.driver import on
from tilus.runtime.launch import Function, Launch, Ready, load
from tilus.runtime.mapped import MappedMemory
from tilus.runtime.stream import (
    PER_THREAD,
    Event,
    current_stream,
    library_stream,
    profiled,
    queue_of,
    stream_handle,
    synchronize,
)
from tilus.runtime.tensor_map import TensorMap, Tiling, encode_tensor_map

__all__ = [
    "CPU",
    "PER_THREAD",
    "Array",
    "DeviceArray",
    "Event",
    "Function",
    "Gpu",
    "Launch",
    "MappedMemory",
    "Ready",
    "Telemetry",
    "TensorMap",
    "Tiling",
    "current_stream",
    "describe",
    "driver_version",
    "encode_tensor_map",
    "energy_j",
    "find_gpu",
    "gpus",
    "grad_enabled",
    "is_array",
    "library_of",
    "library_stream",
    "load",
    "on",
    "profiled",
    "queue_of",
    "require_gpu",
    "span",
    "stream_handle",
    "synchronize",
    "telemetry",
]
