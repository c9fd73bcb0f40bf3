# SPDX-License-Identifier: Apache-2.0
"""The energy timer on a GPU that is made up: it has a queue, a power, and a counter in steps."""

import math

import numpy as np
import pytest

from tilus import bench, energy, nvrtc, runtime
from tilus.bench import Window
from tilus.energy import EnergyTimer, Reading, power

STEP_S = 0.1
H200 = runtime.Gpu(0, "H200", (9, 0), 132, 232448, 0, 0, (13, 0), "580")


class World:
    """Host time passes by sleeping and reading, the GPU's by ``each_s`` for every launch.

    ``other_s`` seconds after the start the power of the contender before still shows.
    """

    def __init__(self, each_s, watts, read_s=0.005, counts=True):
        self.now, self.each_s, self.watts, self.read_s = 100.0, each_s, watts, read_s
        self.counts, self.done_s, self.begun_s, self.idle_s, self.reads = counts, 0.0, 0.0, 0.0, 0

    def launch(self):
        self.now += 10e-6
        if self.done_s:
            self.idle_s += max(0.0, self.now - self.done_s)
        else:
            self.begun_s = self.now
        self.done_s = max(self.now, self.done_s) + self.each_s

    def telemetry(self, gpu):
        self.now += self.read_s
        self.reads += 1
        clock = 1400 if self.now - self.begun_s > 0.3 else 1900
        return runtime.Telemetry(clock, 3201, self.watts + 5, 700.0, 60)

    def energy_j(self, gpu):
        return math.floor(self.now / STEP_S) * STEP_S * self.watts if self.counts else None

    def sleep(self, seconds):
        self.now += seconds


class Event:
    """A moment of the world's GPU."""

    world = None

    def __init__(self, device):
        self.at = None

    def record(self, stream):
        self.at = self.world.done_s or self.world.now

    def synchronize(self):
        self.world.now = max(self.world.now, self.at)

    def since(self, other):
        return 1000 * (self.at - other.at)


class Counters:
    """Counts the world's cycles; says so."""

    def __init__(self, gpu):
        self.taken = []

    def reset(self):
        self.taken = []

    def read(self, moment, stream):
        self.taken.append((moment, Event.world.done_s or Event.world.now))

    def mhz(self):
        (first, begin), (second, end) = self.taken
        assert (first, second) == (0, 1)
        return 1000.0 if end > begin else None


@pytest.fixture
def play(monkeypatch):
    """Return what runs a window in a world."""

    def run(world, seconds, off=1.0):
        monkeypatch.setattr(Event, "world", world)
        monkeypatch.setattr(runtime, "Event", Event)
        monkeypatch.setattr(energy, "Counters", Counters)
        for name in ("telemetry", "energy_j"):
            monkeypatch.setattr(runtime, name, getattr(world, name))
        monkeypatch.setattr(energy.time, "monotonic", lambda: world.now)
        monkeypatch.setattr(energy.time, "sleep", world.sleep)
        count = math.ceil(seconds / world.each_s)
        return EnergyTimer(H200).run(world.launch, count, 1000 * off * count * world.each_s)

    return run


@pytest.mark.parametrize("watts", [300.0, 700.0])
@pytest.mark.parametrize("seconds", [1.5, 2.0])
def test_power_is_the_counters_energy_over_time(play, watts, seconds):
    window = play(World(0.0014, watts), seconds)
    assert window.power_w == pytest.approx(watts, rel=0.02)
    assert window.latency_ms == pytest.approx(1.4, rel=1e-3)


@pytest.mark.parametrize("off", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("read_s", [0.001, 0.03])
def test_readings_never_leave_the_gpu_idle(play, off, read_s):
    """Nor where they are slow, nor where launches take less than was expected."""
    world = World(0.0014, 700.0, read_s)
    play(world, 2.0, off)
    assert world.idle_s == 0 and world.reads > 20


def test_what_the_contender_before_has_left_is_not_counted(play):
    assert play(World(0.0014, 700.0), 1.5).nvml_mhz == 1400


def test_the_clock_is_counted_from_before_the_first_launch_to_behind_the_last(play):
    assert play(World(0.0014, 700.0), 1.0).sm_mhz == 1000.0


PLACES = [[5e9, 1e9], [7e9, 1e9], [0, 0]]  # cycles and nanoseconds; nobody was on the third


@pytest.mark.parametrize(
    ("after", "mhz"),
    [
        ([[6.4e9, 2e9], [8.2e9, 2e9], [0, 0]], 1300.0),
        ([[6.4e9, 2e9], [0, 0], [9e9, 2e9]], 1400.0),
        ([[6.4e9, 2e9], [1e9, 2e9], [0, 0]], None),  # one that began anew
        ([[0, 0], [0, 0], [9e9, 2e9]], None),
    ],
)
def test_a_clock_is_cycles_over_time_on_each_place(after, mhz):
    assert energy.clock(np.array(PLACES), np.array(after)) == mhz


def test_without_a_counter_the_readings_stand_in(play):
    assert play(World(0.0014, 650.0, counts=False), 1.5).power_w == 655.0


def test_without_nvml_there_is_a_time_and_nothing_else(play, monkeypatch):
    world = World(0.0014, 700.0)
    monkeypatch.setattr(world, "telemetry", lambda gpu: None)
    window = play(world, 1.0)
    assert window.power_w is None and window.nvml_mhz is None and window.latency_ms > 1


def test_a_short_window_is_the_plain_timers(monkeypatch):
    monkeypatch.setattr(runtime, "Event", Event)
    monkeypatch.setattr(energy, "Counters", Counters)
    monkeypatch.setattr(bench.CudaTimer, "run", lambda self, *words: Window(1.0, words[1]))
    assert EnergyTimer(H200).run(lambda: None, 5, 100.0) == Window(1.0, 5)


def test_a_counter_is_read_from_step_to_step():
    """Between the first and the last reading it would be 200 J in 0.4 s."""
    joules = [0, 0, 100, 100, 200]
    readings = [Reading(0.1 * i, j, 1400, 0.0) for i, j in enumerate(joules)]
    assert power(readings) == pytest.approx(100 / 0.2)


def test_the_probe_compiles_to_what_it_is_meant_to_read():
    cubin = nvrtc.compile(energy.PROBE, name="probe")
    for name in ("%smid", "%clock64", "%globaltimer"):
        assert name in cubin.ptx
