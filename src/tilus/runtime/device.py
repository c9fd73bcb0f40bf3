# SPDX-License-Identifier: Apache-2.0
"""Which GPU there is, whether it will do, and what it does at the moment."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from tilus import nvrtc
from tilus.errors import DeviceError
from tilus.runtime.driver import binding, check, core, device_errors

NEEDED = "an NVIDIA GPU of the Hopper generation (compute capability 9.0: H100, H200, GH200)"
LOOKING = "looking for GPUs"
SIMULATE = (
    "or run on the simulator: --device sim; where there is no such option, "
    'tilus.option.device("sim"), or TILUS_DEVICE=sim'
)


@dataclass(frozen=True)
class Gpu:
    """What never changes about a GPU while a process runs.

    ``shared_bytes``: most shared memory a block may ask for; ``cuda``: newest CUDA that the driver
    knows; ``driver``: its own version, such as ``580.159.04``, or "" where NVML does not tell.
    """

    index: int
    name: str
    capability: tuple[int, int]
    sms: int
    shared_bytes: int
    l2_bytes: int
    memory_bytes: int
    cuda: tuple[int, int]
    driver: str

    @property
    def is_hopper(self) -> bool:
        """Whether code for sm_90a runs on it: on compute capability 9.0 and on no other."""
        return self.capability == (9, 0)


@dataclass(frozen=True)
class Telemetry:
    """What a GPU does now: clocks in MHz, power and its cap in watts, degrees Celsius."""

    sm_mhz: int
    memory_mhz: int
    power_w: float
    power_limit_w: float
    temperature_c: int


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Return this process's GPUs in CUDA's order; raise DeviceError if the driver fails."""
    with device_errors(LOOKING):  # Device() first: it fails cleanly where others hang
        core().Device()
        devices = core().Device.get_all_devices()
        return tuple(_describe(device) for device in devices)


def _describe(device: Any) -> Gpu:
    driver, properties = binding(), device.properties
    cuda = check("asking the driver's version", driver.cuDriverGetVersion())
    index = int(device.device_id)
    memory = check("asking the memory's size", driver.cuDeviceTotalMem(driver.CUdevice(index)))
    capability = device.compute_capability
    return Gpu(
        index=index,
        name=device.name,
        capability=(capability.major, capability.minor),
        sms=properties.multiprocessor_count,
        shared_bytes=properties.max_shared_memory_per_block_optin,
        l2_bytes=properties.l2_cache_size,
        memory_bytes=memory,
        cuda=(cuda // 1000, cuda % 1000 // 10),
        driver=driver_version(),
    )


def find_gpu() -> Gpu | None:
    """Return the first Hopper GPU, or None. It may still lack what :func:`require_gpu` asks for.

    Raise DeviceError where there is a driver and it fails: that is no machine without a GPU.
    """
    try:
        return next((gpu for gpu in _visible() if gpu.is_hopper), None)
    except DeviceError as error:
        if error.absent:
            return None
        raise


def require_gpu() -> Gpu:
    """Return the first Hopper GPU, after making sure that code for it can be compiled and loaded.

    Raise DeviceError with what was found, what is needed and what mends it otherwise.
    """
    gpu = next((gpu for gpu in _visible() if gpu.is_hopper), None)
    if gpu is None:
        names = ", ".join(f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in _visible())
        raise _unfit(names, NEEDED, f"use a machine with one, {SIMULATE}")
    compiler = nvrtc.nvrtc_version()
    if gpu.cuda[0] < int(compiler.partition(".")[0]):
        found = f"driver {gpu.driver} for CUDA {gpu.cuda[0]}.{gpu.cuda[1]}, NVRTC {compiler}"
        needed = "a driver that loads what NVRTC makes: 580 or newer"
        raise _unfit(found, needed, f"update the driver (nvidia.com/drivers), {SIMULATE}")
    return gpu


def _visible() -> tuple[Gpu, ...]:
    try:
        return gpus()
    except DeviceError as error:
        found = error.found or str(error)
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            found += f" (CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r})"
        # All is said: the traceback of the search for libcuda would bury the message.
        if not error.absent:
            needed, mend = "a driver that works", "see nvidia-smi, restart or reinstall the driver"
            raise _unfit(found, needed, f"{mend}, {SIMULATE}", "the driver fails") from None
        needed, mend = f"{NEEDED} and its driver, 580 or newer", "install the driver"
        raise _unfit(
            found, needed, f"{mend} (nvidia.com/drivers), {SIMULATE}", absent=True
        ) from None


def _unfit(
    found: str, needed: str, mend: str, what: str = "no GPU that will do", absent: bool = False
) -> DeviceError:
    return DeviceError(what, found, needed, mend, absent)


def driver_version() -> str:
    """Return the driver's version, such as ``580.159.04``, or "" where NVML does not tell."""
    nvml = _nvml()
    return str(nvml.system_get_driver_version()) if nvml else ""


def telemetry(gpu: Gpu) -> Telemetry | None:
    """Read the GPU's clocks and power now, or None where NVML does not tell."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.device_get_handle_by_pci_bus_id_v2(_bus_id(gpu.index))
        return Telemetry(
            sm_mhz=nvml.device_get_clock_info(handle, nvml.ClockType.CLOCK_SM),
            memory_mhz=nvml.device_get_clock_info(handle, nvml.ClockType.CLOCK_MEM),
            power_w=nvml.device_get_power_usage(handle) / 1000,
            power_limit_w=nvml.device_get_enforced_power_limit(handle) / 1000,
            temperature_c=nvml.device_get_temperature_v(handle, 0),
        )
    except Exception:  # NVML's own classes; a number that is missing is no reason to stop
        return None


def energy_j(gpu: Gpu) -> float | None:
    """Return the joules that the GPU has used since its driver was loaded, or None where NVML does
    not tell. It is counted in steps of some tens of milliseconds."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.device_get_handle_by_pci_bus_id_v2(_bus_id(gpu.index))
        return float(nvml.device_get_total_energy_consumption(handle)) / 1000
    except Exception:  # NVML's own classes, as above
        return None


@functools.cache
def _bus_id(index: int) -> str:
    # CUDA's order of GPUs and NVML's need not be the same; the place on the bus is.
    return str(core().Device(index).pci_bus_id)


@functools.cache
def _nvml() -> Any:
    """Return NVML's binding, initialised, or None: it only tells, and nothing needs it."""
    try:
        from cuda.bindings import nvml  # noqa: PLC0415

        nvml.init_v2()
    except Exception:
        return None
    return nvml
