# SPDX-License-Identifier: Apache-2.0
"""From one simulated block to a launch: the formula of the design page."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.kernels import load_v3
from tests.products import version
from tests.sample_record import SCHEDULE, sample

from tilus import prediction, timeline
from tilus.prediction import Prediction
from tilus.records import Record
from tilus.simulator import Costs

ROOT = Path(__file__).parents[1]


def steady(**fields):
    return timeline.Steady(
        **{"step": 500, "copied": 0, "flop": 0, "mma_flop": 0, "rest": 100} | fields
    )


def made(blocks, resident, **fields):
    return Prediction(blocks, tiles=10, resident=resident, sms=4, steady=steady(**fields))


def test_whole_waves_take_as_long_as_a_block():
    assert made(4, 1).cycles == 100 + 10 * 500
    assert made(8, 1).cycles == 2 * (100 + 10 * 500) and made(8, 1).waves == 2


def test_blocks_of_one_sm_hide_each_others_waits_until_they_share_an_engine():
    flop = 300 * Costs().wgmma_flop
    assert made(8, 2, flop=flop).cycles == 100 + 10 * 600
    assert made(8, 2, flop=flop).limit == "tensor cores"
    assert made(8, 1, flop=flop).limit == "one block's own step"
    assert made(8, 2, copied=400 * Costs().tma_bytes).limit == "copies"
    assert made(8, 2, mma_flop=300 * Costs().mma_flop).cycles == 100 + 10 * 600


def test_what_is_left_makes_one_wave_more_of_fewer_blocks():
    flop = 300 * Costs().wgmma_flop
    full, last = 100 + 10 * 600, 100 + 10 * 500
    assert made(9, 2, flop=flop).cycles == full + last
    assert made(13, 2, flop=flop).cycles == full + full  # two blocks on one SM again
    assert made(3, 2, flop=flop).cycles == last


def test_time_is_cycles_by_the_clock():
    assert made(4, 1).milliseconds(1000) == pytest.approx(5100 / 1000 / 1000)
    assert 1800 < prediction.PEAK_MHZ < 1850


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "blocks"),
    [
        (5, 154, 64 * 1024 + 32, 2),  # registers: 65536 // (5 * 32 * 160)
        (4, 32, 113 * 1024, 2),  # shared memory, of which each block costs 1 KiB more
        (4, 32, 114 * 1024, 1),
        (8, 32, 0, 8),  # threads
        (1, 16, 0, 32),  # blocks
    ],
)
def test_blocks_that_an_sm_holds(warps, registers, shared, blocks):
    threads = SimpleNamespace(count=32 * warps)
    kernel = SimpleNamespace(
        function=SimpleNamespace(warps=warps, threads=threads),
        plan=SimpleNamespace(shared_bytes=shared),
    )
    assert prediction.resident(kernel, registers) == blocks


def test_a_step_of_the_ladder():
    """V3's model: a product, its latency and the way round the loop, hidden by a second block."""
    script = load_v3()(**SCHEDULE)
    alone = prediction.predict(script, 8192, 8192, 8192, resident=1)
    c, product = Costs(), 2 * 128 * 128 * 64 / Costs().wgmma_flop
    assert (alone.blocks, alone.tiles) == (64 * 64, 128)
    assert alone.steady.flop == 2 * 128 * 128 * 64 and alone.steady.copied == 2 * 64 * 256
    assert alone.steady.step == pytest.approx(product + c.wgmma_latency + 2 * c.wake, abs=6 * 4)
    assert alone.limit == "one block's own step"
    two = prediction.predict(script, 8192, 8192, 8192, resident=2)
    assert two.limit == "tensor cores" and two.cycles < alone.cycles


def test_a_persistent_block_computes_its_tiles_one_after_the_other():
    """The prediction of two tiles is the simulated time of two, of three that of three."""
    schedule = {"num_stages": 3, "block_m": 128, "block_n": 128, "group_m": 8, "num_blocks": 132}
    script, tiles = version("v6")(**schedule), prediction.TILES
    for outputs in (2, 3):
        size = (128 * 132, 128 * outputs, 64 * tiles)
        found = prediction.predict(script, *size, resident=1)
        assert (found.blocks, found.outputs, found.waves) == (132, outputs, 1)
        simulated = prediction.one_block(script, tiles, outputs).cycles
        assert found.cycles == pytest.approx(simulated, rel=0.002)
    assert 0 <= found.turn < found.steady.rest  # the next tile has been loaded meanwhile


def test_a_measurement_is_predicted_with_its_schedule_blocks_and_clock():
    data = sample()
    facts = {"threads": 160, "registers": 154, "shared_bytes": 131136, "compile_s": 0.1}
    entry = data["sources"]["kernels"]["v3"]["generated"][0]
    entry |= {"arguments": {"n_size": 8192, "k_size": 8192}}
    entry |= {"facts": facts | {"blocks_per_sm": 3}}
    size = (8192, 8192, 8192)
    burst = prediction.compare(Record(data), ROOT, "v3", *size, "burst")
    assert burst.prediction.resident == 3 and burst.measured_ms == 2.0
    assert (burst.mhz, burst.recorded) == (prediction.PEAK_MHZ, False)
    own = next(row for row in data["measurements"] if row["version"] == "v3")
    own["sm_mhz"] = [1400.0, 1500.0, 1600.0]
    data["environment"]["sms"] = 99
    entry["arguments"]["k_size"] = 64  # another size: its facts are not those of this one
    clocked = prediction.compare(Record(data), ROOT, "v3", *size, "burst")
    assert (clocked.mhz, clocked.recorded) == (1500.0, True)
    assert clocked.prediction.sms == 99
    assert clocked.prediction.resident == 1  # of 228 KiB, by the shared memory of its compilation
    assert clocked.ratio == pytest.approx(clocked.prediction.cycles / 1500 / 1e3 / 2.0)
