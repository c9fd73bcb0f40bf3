# SPDX-License-Identifier: Apache-2.0
"""Schedules of tilus.kernels.matmul: what is chosen fits, for any size and any order of arrays."""

import json
from dataclasses import replace
from itertools import product
from math import log
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilus import compiler, runtime
from tilus.dtypes import float16
from tilus.kernels import Schedule, table
from tilus.kernels.matmul import limited, script
from tilus.kernels.schedules import (
    SHARED_BYTES,
    Order,
    candidates,
    distance,
    predicted_us,
    ranked,
    shortlist,
    uneven,
)
from tilus.kernels.suite import MORE, SUITE, UNSEEN

SIZES = st.tuples(st.integers(1, 20000), st.integers(1, 140000), st.integers(1, 30000))
ORDERS = st.builds(Order, st.booleans(), st.booleans(), st.booleans())
WIDE = Schedule(256, 200, 3)
NARROW = Schedule(256, 16, 6, swapped=True)
PAIRS = Schedule(256, 160, 3, cluster=2)
SPLIT = Schedule(128, 224, 5, split_k=4)
TABLE = table.Table(
    {(8192, 8192, 8192): WIDE, (16, 28672, 4096): NARROW, (128, 7168, 16384): SPLIT}, {}, {}
)
EMPTY = table.Table({}, {}, {})


@settings(deadline=None, max_examples=40)
@given(size=SIZES, order=ORDERS, known=st.sampled_from([TABLE, EMPTY, table.measured()]))
def test_what_is_chosen_fits(size, order, known):
    chosen = known.choose(size, order)
    assert chosen is not None
    assert chosen.fits(size, order)
    assert chosen.num_stages >= 2 and chosen.shared_bytes <= SHARED_BYTES


@settings(deadline=None, max_examples=60)
@given(size=SIZES, split=st.integers(1, 16))
def test_no_part_of_k_is_empty_where_a_split_fits(size, split):
    steps = -(-size[2] // 64)
    deep = -(-steps // split)
    filled = all(part * deep < steps for part in range(split))
    assert replace(SPLIT, num_stages=3, split_k=split).fits(size) == filled


def test_a_size_of_the_table_gets_its_own_schedule_and_another_one_what_is_ranked_first():
    assert all(TABLE.choose(size) == schedule for size, schedule in TABLE.rows.items())
    assert TABLE.choose((8, 28672, 4096)) == NARROW
    assert TABLE.choose((8192, 8192, 16384)) == WIDE
    assert TABLE.choose((128, 7168, 20000)) == SPLIT
    fastest = min(TABLE.rows.values(), key=lambda s: predicted_us(s, (700, 900, 800)))
    assert TABLE.choose((700, 900, 800)) == fastest


GRID = list(product((1, 64, 500, 4096), (64, 1000, 28672), (64, 2008, 16384)))


def test_what_is_clearly_faster_than_all_of_the_table_is_taken():
    """Nothing is predicted to lose more than the estimate errs; few tiles of a deep K are split."""
    known, beside = table.measured(), 0
    for size in GRID:
        chosen = known.choose(size)
        best = next(s for s in ranked(size) if s.kind in known.kinds)
        assert predicted_us(chosen, size) <= table.CLEARLY * predicted_us(best, size)
        beside += chosen not in known.rows.values()
    assert 0 < beside < len(GRID) / 2
    assert known.choose((64, 64, 16384)).split_k > 4
    assert all(known.choose(size) == schedule for size, schedule in known.rows.items())


def test_no_kind_is_taken_beside_the_table_that_nobody_measured():
    size, alone = (64, 64, 16384), Schedule(64, 80, 8, consumers=1)
    rows = {(128, 7168, 16384): alone}
    kinds = frozenset([alone.kind, replace(alone, split_k=2).kind])
    assert table.Table(rows, {}, {}).choose(size) == alone
    assert table.Table(rows, {}, {}, kinds - {alone.kind}).choose(size).split_k == 16
    assert table.Table({}, {}, {}, {alone.kind}).choose(size).split_k == 1
    assert EMPTY.choose(size).split_k == 16


def test_of_equals_the_one_measured_nearest_is_taken():
    other = replace(WIDE, group_m=16)
    rows = {(8192, 8192, 8192): WIDE, (16384, 16384, 1024): other}
    assert table.Table(rows, {}, {}).choose((16384, 16384, 2048)) == other
    assert table.Table(rows, {}, {}).choose((8192, 8192, 4096)) == WIDE
    assert distance((1, 2, 4), (2, 2, 1)) == 3


def test_an_order_that_a_schedule_has_no_tiles_for_gets_another_one():
    rows_of_n = Order(b_mn=True)
    assert not WIDE.fits((8192, 8192, 8192), rows_of_n)  # 200 columns are no whole panels of 64
    assert TABLE.choose((8192, 8192, 8192), rows_of_n).fits((8192, 8192, 8192), rows_of_n)


def test_what_is_worth_measuring_is_of_several_kinds():
    for size in SUITE:
        found = shortlist(size, 8)
        assert len(found) == len(set(found)) == 8
        kinds = {(s.block_m, s.swapped, s.turns, s.split_k > 1, s.cluster) for s in found}
        assert len(kinds) >= 3
        assert found[0] == ranked(size)[0]


def test_few_rows_get_operands_that_changed_places():
    assert shortlist((16, 28672, 4096), 8)[0].swapped


def test_the_estimate_of_shared_memory_is_no_less_than_what_the_kernel_takes():
    seen = {
        (s.consumers, s.swapped, s.turns, s.split_k > 1, s.cluster): s
        for s in candidates((96, 4096, 4104))
    }
    assert len(seen) >= 9
    for schedule in seen.values():
        kernel = compiler.lower(script(schedule, float16)(**schedule.values()), {})
        assert kernel.plan.shared_bytes <= schedule.shared_bytes


def test_a_table_comes_back_from_its_file_and_says_which_kernel_changed():
    row = {"m": 1, "n": 2, "k": 3, "ms": 0.1, "schedule": WIDE.values()}
    row["tried"] = [{"schedule": x.values(), "ms": 0.1} for x in (WIDE, SPLIT)]
    text = json.dumps({"rows": [row], "machine": {"gpu": "x"}, "sources": table.hashes()})
    found = table.Table.of(json.loads(text))
    assert found.rows == {(1, 2, 3): WIDE} and not found.changed()
    assert found.kinds == {WIDE.kind, replace(SPLIT, num_stages=2, split_k=9).kind}
    assert replace(found, sources={"product.py": "0"}).changed() == ("product.py",)


def test_a_table_from_before_a_kernel_existed_has_not_changed():
    sources = {"product.py": table.hashes()["product.py"]}
    assert not table.Table({}, {}, sources).changed()
    found = table.Table({}, {}, table.hashes() | {"pairs.py": "0"})
    assert found.changed() == ("pairs.py",)


def test_a_schedule_from_before_clusters_is_of_blocks_alone_and_comes_back_as_it_was():
    assert "cluster" not in WIDE.values() and Schedule.of(WIDE.values()) == WIDE
    assert Schedule.of(PAIRS.values()) == PAIRS != replace(PAIRS, cluster=1)


def test_pairs_are_thought_of_where_rows_lie_across_lines():
    def thought_of(k):
        return {s.cluster for s in candidates((3000, 5000, k))}

    assert thought_of(2008) == {1, 2} and thought_of(2048) == {1}
    assert PAIRS.fits((3000, 5000, 2048)) and PAIRS.fits((3000, 5000, 2008))
    assert ranked((3000, 5000, 2008))[0] == PAIRS


def test_an_odd_column_of_tiles_makes_a_tile_beyond_the_edge():
    assert replace(PAIRS, block_n=152).tiles((3000, 5000, 2008)) == 12 * 34
    assert PAIRS.tiles((3000, 5000, 2008)) == 12 * 32


def test_pairs_ask_for_fewer_rows_and_get_as_many_bytes():
    alone, even = replace(PAIRS, cluster=1), (3000, 5000, 2048)
    assert predicted_us(PAIRS, even) == predicted_us(alone, even)
    slow = replace(PAIRS, block_m=128, block_n=64)  # products are nothing beside its rows
    alone = replace(slow, cluster=1)
    ratio = predicted_us(slow, (4096, 4096, 20008)) / predicted_us(alone, (4096, 4096, 20008))
    assert ratio == pytest.approx((64 + 64) / (128 + 64), rel=0.02)


def test_rows_that_a_box_has_outside_the_matrix_take_time():
    """At eight rows of x, boxes of 64 rows are as slow as 100 rows; as columns there are eight."""
    few, rows = (8, 8192, 8192), Schedule(64, 64, 8, consumers=1)
    columns = Schedule(128, 8, 8, swapped=True)
    assert predicted_us(rows, few) > 1.2 * predicted_us(columns, few)
    full = (64, 8192, 8192)
    assert predicted_us(rows, full) < 1.2 * predicted_us(columns, full)


def test_few_stages_wait_for_device_memory_where_one_block_reads_a_row():
    alone, shared = (64, 5120, 13824), (256, 5120, 13824)
    deep, flat = (Schedule(64, 64, stages, consumers=1) for stages in (8, 2))
    assert predicted_us(flat, alone) > 2 * predicted_us(deep, alone)
    assert predicted_us(flat, shared) == predicted_us(deep, shared)


def test_pairs_are_not_chosen_where_their_rows_are_whole_lines():
    known = table.Table({(3000, 5000, 2008): PAIRS}, {}, {}, frozenset({PAIRS.kind}))
    assert known.choose((3000, 5000, 2000)).cluster == 2
    assert known.choose((3000, 5000, 2048)) == replace(PAIRS, cluster=1)


@pytest.mark.parametrize("sms, blocks", [(132, 132), (114, 114), (113, 112), (200, 132)])
def test_pairs_have_both_blocks_on_any_gpu(monkeypatch, sms, blocks):
    monkeypatch.setattr(runtime, "gpus", lambda: [SimpleNamespace(sms=sms)])
    assert limited(PAIRS, "cuda:0").num_blocks == blocks
    assert limited(replace(PAIRS, cluster=1), "cuda:0").num_blocks == min(sms, 132)


def test_the_table_of_the_package_fits_its_sizes():
    for size, schedule in table.measured().rows.items():
        assert schedule.fits(size), (size, schedule)


def tried():
    """Return what was tried for each size of the package's table: schedules and microseconds."""
    rows = json.loads(Path(table.__file__).with_name(table.FILE).read_text())["rows"]
    for row in rows:
        times = [(Schedule.of(t["schedule"]), 1e3 * t["ms"]) for t in row["tried"]]
        yield (row["m"], row["n"], row["k"]), times


def test_the_estimate_agrees_with_what_was_measured():
    """Times within a few percent; the schedule ranked first is nearly the fastest of each size.

    Of products that take less, it knows neither what is left in the cache nor what a launch hides.
    """
    errors, lost, between_lines = [], [], []
    for size, times in tried():
        if min(us for _, us in times) < 15:
            continue
        estimates = [predicted_us(schedule, size) for schedule, _ in times]
        errors += [log(e / us) for e, (_, us) in zip(estimates, times, strict=True)]
        between_lines += errors[-len(times) :] if uneven(size) else []
        first = times[estimates.index(min(estimates))][1]
        lost.append(first / min(us for _, us in times) - 1)
    assert stdev(errors) < 0.06 and abs(mean(errors)) < 0.03
    assert abs(mean(between_lines)) < 0.06
    assert mean(lost) < 0.015 and max(lost) < 0.08


def test_the_table_holds_the_fastest_of_what_was_tried_for_every_size_of_the_suite():
    fastest = {size: min(times, key=lambda x: x[1])[0] for size, times in tried()}
    assert fastest == table.measured().rows
    assert set(fastest) == {*SUITE, *MORE}
    assert not {*UNSEEN} & {*SUITE, *MORE}


@pytest.mark.parametrize(
    "bad",
    [
        replace(WIDE, block_n=208),  # 208 registers of sums
        replace(WIDE, num_stages=4),  # too much shared memory
        replace(WIDE, num_stages=1),
        replace(WIDE, block_m=320),
        replace(WIDE, block_m=64),  # no 64 rows for each of two groups
        replace(WIDE, block_n=12),
        replace(WIDE, turns=True),  # 256 rows of one group
        Schedule(128, 128, 3, turns=True, split_k=2),
        replace(WIDE, cluster=3),
        replace(WIDE, cluster=2, num_blocks=131),
        Schedule(192, 96, 3, consumers=3, cluster=2),
        Schedule(128, 128, 3, cluster=2, split_k=2),
        Schedule(128, 128, 3, cluster=2, swapped=True),
        Schedule(128, 128, 3, cluster=2, turns=True),
    ],
    ids=str,
)
def test_what_does_not_fit(bad):
    assert not bad.fits((8192, 8192, 8192))
