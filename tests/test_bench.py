# SPDX-License-Identifier: Apache-2.0
"""The regimes on a device that tells what was done to it; the CUDA timer on events that do."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilus
from tilus import bench, records, runtime
from tilus.bench import Burst, CudaTimer, Series, Sustained, Window
from tilus.errors import ArgumentError, DeviceError


class Device:
    """A GPU whose time passes only by launches and rests; ``slowdown(now)`` is its drift."""

    def __init__(self, slowdown=lambda now: 1.0):
        self.now, self.log, self.slowdown = 0.0, [], slowdown

    def contender(self, name, milliseconds):
        def launch():
            self.log.append(name)
            self.now += milliseconds * self.slowdown(self.now)

        return launch

    def rest(self, seconds):
        self.log.append(("rest", seconds))
        self.now += 1000 * seconds

    def run(self, launch, count, expected_ms=0.0):
        self.log.append(("window", count, expected_ms))
        before = self.now
        for _ in range(count):
            launch()
        return Window(self.now - before, count)


def test_a_burst_rests_warms_up_and_times_each_contender_in_turn():
    device = Device()
    contenders = {"ours": device.contender("ours", 2.0), "cublas": device.contender("cublas", 1.0)}
    result = Burst(rounds=2)(device, contenders)
    turn = [
        [("rest", 1.0), ("window", 5, 0.0), *[name] * 5, ("window", 30, 30 * ms), *[name] * 30]
        for name, ms in (("ours", 2.0), ("cublas", 1.0))
    ]
    assert device.log == 2 * (turn[0] + turn[1])
    assert result["ours"].latency_ms == (2.0, 2.0) and result["cublas"].latency_ms == (1.0, 1.0)


def test_the_method_of_the_record_is_what_is_done():
    device = Device()
    result = Burst()(device, {"a": device.contender("a", 1.0), "b": device.contender("b", 1.0)})
    assert bench.method({})["burst"] == {"idle_s": 1.0, "warmups": 5, "launches": 30, "rounds": 9}
    assert len(result["a"].windows) == 9 and {w.launches for w in result["a"].windows} == {30}
    assert bench.method({})["sustained"] == {"warmup_s": 2.0, "window_s": 1.0, "windows": 3}


def test_sustained_never_rests_and_windows_last_a_second():
    device = Device()
    contenders = {"ours": device.contender("ours", 2.0), "cublas": device.contender("cublas", 1.5)}
    result = Sustained()(device, contenders)
    assert not any(entry[0] == "rest" for entry in device.log if isinstance(entry, tuple))
    windows = [entry[1] for entry in device.log if isinstance(entry, tuple)]
    # A glance at each, two seconds of warm-up shared by both, then three windows in turn.
    assert windows == [5, 5, 500, 667, *[500, 667] * 3]
    for series in result.values():
        assert len(series.windows) == 3
        assert all(1000 <= window.milliseconds < 1002 for window in series.windows)


@given(drift=st.floats(0.0, 0.5), ours=st.floats(0.5, 4.0))
def test_a_gpu_that_slows_down_does_not_change_the_ratio(drift, ours):
    """Timing one contender after the other, not in turn, would be off by up to the drift."""
    device = Device(slowdown=lambda now: 1 + drift * now / 20000)
    contenders = {"ours": device.contender("ours", ours), "cublas": device.contender("cublas", 2.0)}
    result = Burst()(device, contenders)
    found = records.ratio(result["cublas"].latency_ms, result["ours"].latency_ms)
    assert found == pytest.approx(2.0 / ours, rel=0.03 + drift / 10)


def test_a_disturbed_round_does_not_count():
    device = Device(slowdown=lambda now: 10.0 if 3000 < now < 5000 else 1.0)
    result = Burst()(device, {"ours": device.contender("ours", 1.0)})
    assert max(result["ours"].latency_ms) > 2 and result["ours"].median_ms == pytest.approx(1.0)


def test_progress_is_told_before_each_window():
    device, said = Device(), []
    Burst(rounds=2)(device, {"v3": device.contender("v3", 1.0)}, said.append)
    Sustained(windows=1)(device, {"v3": device.contender("v3", 1.0)}, said.append)
    assert said == ["burst 1/2, v3", "burst 2/2, v3", "sustained warm-up, v3", "sustained 1/1, v3"]


def test_a_series_is_per_launch():
    series = Series((Window(30.0, 30), Window(90.0, 30), Window(60.0, 30)))
    assert series.latency_ms == (1.0, 3.0, 2.0) and series.median_ms == 2.0


# ---- the CUDA timer -----------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of events that log; time passes by launches, and by sleeping."""
    log = []

    class Event:
        def __init__(self, device):
            self.device, self.name = device, f"event{sum('made' in entry for entry in log)}"
            log.append(f"{self.name} made")

        def record(self, stream):
            log.append(f"{self.name} recorded on {stream}")

        def synchronize(self):
            log.append(f"{self.name} awaited")

        def since(self, other):
            log.append(f"{self.name} since {other.name}")
            return 12.0

    def telemetry(gpu):
        log.append("telemetry")
        return runtime.Telemetry(1500, 3201, 640.0, 700.0, 60)

    monkeypatch.setattr(runtime, "Event", Event)
    monkeypatch.setattr(runtime, "telemetry", telemetry)
    monkeypatch.setattr(runtime, "synchronize", lambda device: log.append("synchronized"))
    monkeypatch.setattr(bench.time, "monotonic", lambda: 5.0)
    monkeypatch.setattr(bench.time, "sleep", lambda s: log.append(f"slept {s:g}"))
    made = runtime.Gpu(0, "H200", (9, 0), 132, 232448, 0, 0, (13, 0), "580")
    timer = CudaTimer(made, stream=7)
    del log[:]
    return timer, log


def test_one_pair_of_events_stands_around_the_launches(gpu):
    timer, log = gpu
    window = timer.run(lambda: log.append("launch"), 3, expected_ms=1000.0)
    assert log == [
        "event0 recorded on 7",
        *["launch"] * 3,
        "event1 recorded on 7",
        "slept 0.8",
        "telemetry",
        "event1 awaited",
        "event1 since event0",
    ]
    assert window == Window(12.0, 3, 1500, 640.0) and window.latency_ms == 4.0


@pytest.mark.parametrize("expected_ms", [0.0, 50.0])
def test_a_warm_up_and_a_burst_are_not_sampled(gpu, expected_ms):
    """NVML averages power over a second: what it says of 50 ms was true before."""
    timer, log = gpu
    assert timer.run(lambda: None, 5, expected_ms).sm_mhz is None and "telemetry" not in log


def test_a_rest_begins_when_the_gpu_is_done(gpu):
    timer, log = gpu
    timer.rest(1.0)
    assert log == ["synchronized", "slept 1"]


class Clock:
    """Events on a stream whose calls take as long as ``durations`` says, one after another."""

    def __init__(self, monkeypatch, durations):
        self.durations, self.now, self.streams = list(durations), 0.0, set()
        clock = self

        class Event:
            def __init__(self, device):
                assert device == 0

            def record(self, stream):
                clock.streams.add(stream)
                self.at = clock.now

            def synchronize(self):
                assert not clock.durations

            def since(self, start):
                return self.at - start.at

        monkeypatch.setattr(runtime, "Event", Event)
        monkeypatch.setattr(runtime, "require_gpu", lambda: SimpleNamespace(index=0))
        monkeypatch.setattr(runtime, "library_stream", lambda device: 42)

    def call(self):
        self.now += self.durations.pop(0)


def test_benchmark_func_gives_the_median_of_the_calls_after_warming_up(monkeypatch):
    clock = Clock(monkeypatch, [100, 50, 3, 1, 2, 7, 2])
    assert tilus.utils.benchmark_func(clock.call, warmup=2, repeat=5) == 2
    assert clock.streams == {42}


@pytest.mark.parametrize("counts", [{"repeat": 0}, {"warmup": -1}, {"repeat": 2.5}])
def test_benchmark_func_refuses_counts_that_time_nothing(counts):
    with pytest.raises(ArgumentError, match=f"{next(iter(counts))} must be an integer of at least"):
        tilus.utils.benchmark_func(print, **counts)


@pytest.mark.skipif(runtime.find_gpu() is not None, reason="there is a Hopper GPU")
def test_benchmark_func_needs_a_gpu():
    with pytest.raises(DeviceError, match="no GPU that will do"):
        tilus.utils.benchmark_func(print)
