# SPDX-License-Identifier: Apache-2.0
"""V3 from its source: right at every depth, and diagnosed where its source is broken."""

import time
from pathlib import Path

import pytest
from tests.kernels import V3_FILE, load_v3
from tests.products import execute

from tilus import compiler, ir, simulator
from tilus.errors import SimulationError

SCHEDULES = list(simulator.SCHEDULES)
V3 = load_v3()


def lower(script: type, n: int, k: int, stages: int, block=(64, 8, 16)) -> ir.Kernel:
    return compiler.lower(script(stages, *block), {"n_size": n, "k_size": k})


@pytest.mark.parametrize("stages", range(2, 8))
def test_right_for_every_number_of_tiles(stages):
    for tiles in range(2 * stages + 2):
        kernel = lower(V3, 8, 16 * tiles, stages)
        for schedule in SCHEDULES:
            execute(kernel, 64, 8, 16 * tiles, schedule=schedule, seed=tiles)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shapes_that_tiles_do_not_divide(schedule):
    execute(lower(V3, 72, 40, 3, (64, 32, 32)), 200, 72, 40, schedule=schedule)


@pytest.mark.parametrize("block", [(128, 64, 16), (128, 128, 32), (128, 128, 64)])
def test_256_cubed_in_three_seconds(block):
    kernel = lower(V3, 256, 256, 3, block)
    start = time.process_time()
    execute(kernel, 256, 256, 256)
    assert time.process_time() - start < 3


class Mutant:
    """V3 with one piece of its source replaced; ``line(text)`` finds a line of it."""

    def __init__(self, folder: Path, old: str, new: str) -> None:
        text = V3_FILE.read_text()
        assert text.count(old) == 1, old
        self.path = folder / "mutant.py"
        self.path.write_text(text.replace(old, new))
        self.script = load_v3(self.path)

    def line(self, text: str, occurrence: int = 0) -> int:
        lines = self.path.read_text().splitlines()
        return [i for i, line in enumerate(lines, 1) if text in line][occurrence]

    def verdict(self, tiles: int, stages: int, schedule: str = "timed") -> SimulationError:
        with pytest.raises(SimulationError) as info:
            execute(lower(self.script, 8, 16 * tiles, stages), 64, 8, 16 * tiles, schedule=schedule)
        return info.value


PRODUCER_WAIT = "wait(producer_barriers[stage]"
CONSUMER_WAIT = "wait(consumer_barriers[stage]"


def expect(error: SimulationError, mutant: Mutant, role: str, line: int, **facts: object) -> None:
    """Require the wait of ``role`` among the facts, and its parts in the message."""
    assert error.verdict == "deadlock"
    (wait,) = [w for w in error.facts["waits"] if w["role"] == role]
    place = {"file": str(mutant.path), "line": line, "block": (0, 0, 0)}
    assert wait.items() >= (place | facts).items()
    barrier = f"{facts['barrier']}[{facts['index']}], parity {facts['parity']}"
    arrivals = f"{facts['arrivals_pending']} of {facts['arrivals_expected']} arrivals"
    text = f"{mutant.path}:{line}: {role}: waits for {barrier}"
    assert text in str(error) and arrivals in str(error)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_missing_arrive(tmp_path, schedule):
    mutant = Mutant(tmp_path, "self.mbarrier.arrive(producer_barriers[stage])", "pass")
    error = mutant.verdict(5, 3, schedule)
    expect(
        error, mutant, "warp 4", mutant.line(PRODUCER_WAIT),
        barrier="producer_barriers", index=0, parity=0, arrivals_pending=128,
        arrivals_expected=128, bytes_pending=0,
    )  # fmt: skip
    expect(
        error, mutant, "warps 0-3", mutant.line(CONSUMER_WAIT),
        barrier="consumer_barriers", index=0, parity=1, arrivals_pending=1,
        arrivals_expected=1, bytes_pending=0,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wrong_initial_phase(tmp_path, schedule):
    mutant = Mutant(tmp_path, "init=self.mbarrier.producer_initial_phase", "init=0")
    expect(
        mutant.verdict(5, 3, schedule), mutant, "warp 4", mutant.line(PRODUCER_WAIT),
        barrier="producer_barriers", index=0, parity=0, arrivals_pending=128, arrivals_expected=128,
    )  # fmt: skip


def test_arrival_count_too_high(tmp_path):
    mutant = Mutant(tmp_path, "alloc([128] * self.num_stages)", "alloc([129] * self.num_stages)")
    expect(
        mutant.verdict(5, 3), mutant, "warp 4", mutant.line(PRODUCER_WAIT),
        barrier="producer_barriers", index=0, parity=0, arrivals_pending=1, arrivals_expected=129,
    )  # fmt: skip


def test_arrival_count_too_low(tmp_path):
    mutant = Mutant(tmp_path, "alloc([128] * self.num_stages)", "alloc([127] * self.num_stages)")
    error = mutant.verdict(5, 3)
    assert error.verdict == "protocol" and error.facts["role"] == "warps 0-3"
    assert error.facts["line"] == mutant.line("arrive(producer_barriers[stage])")
    assert (error.facts["arrivals"], error.facts["arrivals_pending"]) == (128, 127)


def test_too_many_drains(tmp_path):
    old = "range(min(self.num_stages, cdiv(k_size, self.block_k)))"
    mutant = Mutant(tmp_path, old, "range(self.num_stages + 1)")
    error = mutant.verdict(5, 3)
    expect(
        error, mutant, "warp 4", mutant.line(PRODUCER_WAIT, 1),
        barrier="producer_barriers", index=2, parity=1, arrivals_pending=128, arrivals_expected=128,
    )  # fmt: skip
    assert "warps 0-3 ended" in str(error)


@pytest.mark.parametrize("stages", range(2, 8))
def test_the_drain_from_where_the_loop_stopped_leaves_too_early(tmp_path, stages):
    """No deadlock: a stage that was never filled lets the producer pass; it misses signals."""
    tiles = stages - 1
    wrong = Mutant(tmp_path, "                stage = 0\n", "                pass\n").script
    late = {}
    for name, script in (("right", V3), ("wrong", wrong)):
        kernel = lower(script, 8, 16 * tiles, stages)
        events = execute(kernel, 64, 8, 16 * tiles, schedule="late", trace=True).events
        end = max(e.end for e in events if e.lane == "warp 4")
        late[name] = [e for e in events if e.what == "arrive" and e.start > end]
    assert not late["right"] and late["wrong"]


def test_all_bytes_must_be_announced(tmp_path):
    mutant = Mutant(tmp_path, "sa[stage].nbytes + sb[stage].nbytes", "sa[stage].nbytes")
    for schedule in SCHEDULES:
        error = mutant.verdict(3, 2, schedule)
        lines = [mutant.line("global_to_shared", i) for i in (0, 1)]
        if error.verdict == "race":  # B's copy is issued after the phase has ended
            assert schedule in ("early", "random") and error.facts["first"]["line"] == lines[1]
        else:
            assert error.verdict == "protocol" and "bytes left over" in str(error)
            assert error.facts["line"] in lines
