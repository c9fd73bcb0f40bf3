# SPDX-License-Identifier: Apache-2.0
"""Which GPU will do, and what is said where none does."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.runtime.fake_driver import H200

from tilus import nvrtc
from tilus.errors import DeviceError
from tilus.runtime import device, driver

A100 = replace(H200, name="A100", capability=(8, 0))
B200 = replace(H200, name="B200", capability=(10, 0))


@pytest.fixture
def machine(monkeypatch):
    """Set the GPUs that there are, or the error that looking for them raises."""

    def set_gpus(*found):
        def gpus():
            if found and isinstance(found[0], Exception):
                raise found[0]
            return found

        monkeypatch.setattr(device, "gpus", gpus)

    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "13.0.88")
    return set_gpus


def refusal():
    with pytest.raises(DeviceError) as caught:
        device.require_gpu()
    text = str(caught.value)
    assert len(text.splitlines()) <= 10
    assert all(f"\n{part}: " in text for part in ("found", "needed", "mend"))
    return text


def test_the_first_hopper_gpu_is_taken(machine):
    machine(A100, H200)
    assert device.find_gpu() is device.require_gpu() is H200


def test_no_driver(machine, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine(DeviceError("looking for GPUs", found="no NVIDIA driver", absent=True))
    assert device.find_gpu() is None
    text = refusal()
    assert "found: no NVIDIA driver\n" in text and "H200" in text
    assert "TILUS_DEVICE=sim" in text and "CUDA_VISIBLE_DEVICES" not in text


def test_gpus_hidden_by_the_environment(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    machine(DeviceError("looking for GPUs: CUDA_ERROR_NO_DEVICE", absent=True))
    assert "(CUDA_VISIBLE_DEVICES='-1')" in refusal()


def test_a_driver_that_fails_is_no_machine_without_a_gpu(machine):
    machine(DeviceError("looking for GPUs", "CUDA_ERROR_SYSTEM_NOT_READY: not yet initialized"))
    text = refusal()
    assert "the driver fails\nfound: CUDA_ERROR_SYSTEM_NOT_READY" in text and "nvidia-smi" in text
    with pytest.raises(DeviceError, match="the driver fails"):
        device.find_gpu()


@pytest.mark.parametrize(
    ("said", "absent"),
    [
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", True),
        ("CUDA_ERROR_STUB_LIBRARY: the library is a stub", True),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: two versions", False),
        ("CUDA_ERROR_UNKNOWN: unknown error", False),
    ],
)
def test_the_driver_says_whether_there_is_a_gpu(said, absent):
    with pytest.raises(DeviceError) as caught, driver.device_errors("looking"):
        raise RuntimeError(said)
    assert (caught.value.found, caught.value.absent) == (said, absent)


@pytest.mark.parametrize("other", [A100, B200])
def test_another_generation(machine, other):
    machine(other)
    assert device.find_gpu() is None
    assert f"found: {other.name} ({other.capability[0]}.0)" in refusal()


def test_a_driver_too_old(machine):
    old = replace(H200, cuda=(12, 4), driver="550.54")
    machine(old)
    assert device.find_gpu() is old  # there is a GPU; to simulate behind its owner's back is wrong
    text = refusal()
    assert "driver 550.54 for CUDA 12.4, NVRTC 13.0.88" in text and "update the driver" in text


def test_a_newer_driver_will_do(machine):
    machine(replace(H200, cuda=(14, 1)))
    assert device.require_gpu().cuda == (14, 1)


def test_nvrtc_missing(machine, monkeypatch):
    machine(H200)

    def missing():
        raise DeviceError("found: nothing\nmend: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(nvrtc, "nvrtc_version", missing)
    with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvrtc"):
        device.require_gpu()


SCRIPT = """
from tilus import runtime
from tilus.dtypes import float16
from tilus.errors import DeviceError
from tilus.layout import Swizzle

assert runtime.find_gpu() is None
tiling = runtime.Tiling(4096, float16, (8,), (2,), (8,), Swizzle.NONE)
for attempt in range(2):  # without a driver some calls of cuda.core hang the second time
    for call in (
        lambda: runtime.load(b"", "k", 0),
        lambda: runtime.DeviceArray((1,), float16),
        lambda: runtime.encode_tensor_map(tiling),
        runtime.require_gpu,
        runtime.synchronize,
        runtime.Event,
    ):
        try:
            call()
        except DeviceError as error:
            print(error)
        else:
            raise AssertionError(call)
"""


def test_without_a_gpu_everything_fails_cleanly_and_nothing_hangs():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_telemetry_is_absent_without_nvml(monkeypatch):
    monkeypatch.setattr(device, "_nvml", lambda: None)
    assert device.telemetry(H200) is None
    assert device.energy_j(H200) is None
    assert device.driver_version() == ""


def test_energy_is_told_in_joules(monkeypatch):
    nvml = SimpleNamespace(
        device_get_handle_by_pci_bus_id_v2=lambda place: place,
        device_get_total_energy_consumption={"0000:1b": 123456}.get,
    )
    monkeypatch.setattr(device, "_nvml", lambda: nvml)
    monkeypatch.setattr(device, "_bus_id", lambda index: "0000:1b")
    assert device.energy_j(H200) == 123.456


def test_importing_the_runtime_imports_no_cuda():
    code = "import sys, tilus.runtime; sys.exit('cuda' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
