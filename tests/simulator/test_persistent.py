# SPDX-License-Identifier: Apache-2.0
"""Persistent kernels: the right ones are proved, each mistake gets its verdict."""

import re
from pathlib import Path

import numpy as np
import persistent
import pytest
from persistent import Persistent
from tests import sass

from tilus import compiler, simulator

SOURCE = Path(persistent.__file__).read_text().splitlines()
COPY, STORE = "self.tma.global_to_shared(", "self.tma.shared_to_global(slot"
STAGE, MMA = "self.store_shared(slot, tile)", "self.wgmma.mma("
RELEASE = "self.mbarrier.arrive_remote(empty, rank=block, sem=self.sem)"
FENCE = "warps 0-3 must call fence.proxy_async between the store_shared"

MISTAKES = {  # fault: verdict, the line it stands at, facts of both accesses, what is missing
    ("phase reset", 1): ("race", MMA, "copy", "read", "nobody has waited on full[1]"),
    ("phase reset", 2): ("race", MMA, "copy", "read", "nobody has waited on full[1]"),
    ("released early", 1): ("race", COPY, "product", "write", "no mbarrier or"),
    ("released early", 2): ("race", COPY, "product", "write", "no mbarrier or"),
    ("fence missing", 1): ("race", STORE, "store_shared", "read", FENCE),
    ("fence before", 1): ("race", STORE, "store_shared", "read", FENCE),
    ("fence by one thread", 1): ("race", STORE, "store_shared", "read", FENCE),
    ("staging reused early", 1): ("race", STAGE, "bulk store", "write", "wait_group has not made"),
    ("no sync before", 1): ("race", STAGE, "bulk store", "write", "no sync() of warps 0-3 lies"),
    ("no sync behind", 1): ("race", STORE, "store_shared", "read", "no mbarrier or sync() leads"),
    ("tail twice", 1): ("race", STORE, "bulk store", "write", "blocks of a grid run in any order"),
    ("tail twice", 2): ("race", STORE, "bulk store", "write", "blocks of a grid run in any order"),
    ("peer not counted", 2): ("race", COPY, "product", "write", "no mbarrier or"),
    ("leaves early", 2): ("race", RELEASE, "arrive_remote", "exit", "(0, 0, 0) does not wait for"),
}  # fmt: skip


def arguments(m: int, n: int, k: int) -> tuple[dict, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    arrays = dict(a_ptr=a.reshape(-1), b_ptr=b.reshape(-1), c_ptr=np.full(m * n, np.nan, "f2"))
    return dict(m_size=m, n_size=n, k_size=k) | arrays, a.astype(int) @ b.astype(int).T


def judged(cluster: int, **options) -> simulator.Judgement:
    """Judge a kernel whose blocks compute two or three tiles of 1 to 4 K tiles each."""
    kernel = Persistent(cluster=cluster, blocks=2 * cluster, **options).lower()
    return simulator.judge(kernel, arguments(200, 40 * cluster, 40)[0])


@pytest.mark.parametrize("cluster, sem", [(1, "release"), (2, "release"), (2, "relaxed")])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_right_kernel_is_proved(cluster, sem, stages):
    found = judged(cluster, num_stages=stages, sem=sem)
    assert found.proved, found.message
    assert found.executions == 5  # one of each cluster, behind three schedules


@pytest.mark.parametrize("sem", ["release", "relaxed"])
def test_a_relaxed_arrival_puts_no_fence_into_the_loops_over_k(sem):
    code = compiler.build(Persistent(cluster=2, sem=sem).lower()).cubin.code
    for inside, fence in (("HGMMA", "MEMBAR"), ("UTMALDG.2D.MULTICAST", "CCTL")):
        body = sass.loop(code, inside)
        found = re.findall("MEMBAR|CCTL", body)
        assert "SYNCS.PHASECHK" in body and set(found) == ({fence} if sem == "release" else set())


@pytest.mark.parametrize("schedule", simulator.SCHEDULES)
@pytest.mark.parametrize("cluster", [1, 2])
def test_it_is_right_for_any_number_of_tiles(cluster, schedule):
    kernel = Persistent(cluster=cluster, blocks=2 * cluster).lower()
    for m, n, k in [(1, 8, 0), (64, 16, 16), (300, 88, 56), (129, 24, 80)]:
        given, want = arguments(m, n, k)
        simulator.run(kernel, given, schedule=schedule, seed=m)
        np.testing.assert_array_equal(given["c_ptr"].reshape(m, n), want, f"{m} {n} {k}")


@pytest.mark.parametrize(
    "fault, cluster, sem",
    [(*case, "release") for case in MISTAKES]
    + [(fault, 2, "relaxed") for fault, cluster in MISTAKES if cluster == 2],
)
def test_a_mistake_gets_its_verdict(fault, cluster, sem):
    verdict, line, first, kind, missing = MISTAKES[fault, cluster]
    found = judged(cluster, fault=fault, sem=sem)
    assert found.verdict == verdict, found.message
    assert line in SOURCE[found.facts["line"] - 1], found.message
    assert f"the {first} at" in found.message and missing in found.facts["missing"]
    assert found.facts["second"]["kind"] == kind


@pytest.mark.parametrize("cluster", [1, 2])
def test_stores_that_nobody_waits_for(cluster):
    found = judged(cluster, fault="stores not awaited")
    assert found.verdict == "protocol" and found.facts["engine"] == "store", found.message
    assert STORE in SOURCE[found.facts["line"] - 1]
    assert found.facts["state"] == "never waited for"
