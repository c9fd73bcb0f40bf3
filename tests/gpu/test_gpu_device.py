# SPDX-License-Identifier: Apache-2.0
"""The GPU itself: its facts, its clocks, and doctor's proof that it works."""

from tilus import runtime
from tilus.cli import doctor, probe


def test_facts_are_those_of_a_hopper(gpu):
    assert gpu in runtime.gpus()
    assert gpu.capability == (9, 0)
    assert 100 <= gpu.sms <= 144
    assert gpu.shared_bytes == 227 * 1024
    assert gpu.l2_bytes > 1 << 24
    assert gpu.memory_bytes > 1 << 35
    assert gpu.cuda >= (13, 0)
    assert gpu.driver.count(".") >= 1


def test_telemetry_is_plausible(gpu):
    now = runtime.telemetry(gpu)
    assert 100 < now.sm_mhz < 2500
    assert 100 < now.memory_mhz < 5000
    assert 20 < now.power_w < 1000
    assert 100 < now.power_limit_w <= 1000
    assert 10 < now.temperature_c < 100


def test_doctor_finds_nothing_missing(gpu):
    assert probe.on_gpu(gpu)
    assert [f for f in doctor.examine() if f.path == "gpu" and not f.ok] == []
