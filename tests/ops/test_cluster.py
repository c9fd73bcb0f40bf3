# SPDX-License-Identifier: Apache-2.0
"""Clusters: what generated code asks of the hardware, and what is refused."""

import functools

import numpy as np
import pytest
from tests.kernels import Probe

import tilus
from tilus import ArgumentError, LanguageError, compiler, disasm, float16, int32, simulator
from tilus.emitter import emit


class Pair(tilus.Script):
    """Two blocks use every form of an instruction that reaches for the other one."""

    def __init__(self, cluster=2, rank=1, mask=3, sync=True, scope="cluster", sem="release"):
        self.cluster_blocks, self.rank, self.mask = cluster, rank, mask
        self.sync, self.scope, self.sem = sync, scope, sem

    def __call__(self, m: int32, a_ptr: ~float16):
        self.attrs.blocks = m, 4
        self.attrs.cluster_blocks = self.cluster_blocks
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, 64])
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        full, empty = self.mbarrier.alloc([1, 8])
        own = self.mbarrier.alloc(128)  # nobody else arrives there
        if self.sync:
            self.cluster.sync()
        peer = self.cluster.clusterDim.x - 1 - self.cluster.blockRank
        row: int32 = self.cluster.blockIdx.x + self.cluster.blockIdx.y
        with self.single_warp(0):
            self.tma.global_to_shared(
                src=ga, dst=sa, offsets=[row, 0], mbarrier=full,
                multicast_mask=self.mask, cache_policy="evict_last",
            )  # fmt: skip
            self.tma.global_to_shared(
                src=ga, dst=sa, offsets=[0, 0], mbarrier=full, multicast_mask=1 << peer
            )
            for policy in ("evict_first", "evict_normal"):
                self.tma.global_to_shared(
                    src=ga, dst=sa, offsets=[0, 0], mbarrier=full, cache_policy=policy
                )
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx_remote(full, sa.nbytes, rank=peer)
                self.mbarrier.arrive_and_expect_tx_multicast(full, 64, multicast_mask=self.mask)
        theirs = self.cluster.map_shared_addr(sa, rank=self.rank)
        there = self.load_shared(self.cluster.map_shared_addr(sa, rank=peer))
        self.store_shared(theirs, there)
        self.mbarrier.arrive(own)
        self.mbarrier.wait(own, phase=0)
        self.mbarrier.wait(empty, phase=0, scope=self.scope)
        with self.single_warp(1):
            self.mbarrier.arrive_remote(empty, rank=self.rank, count=2, sem=self.sem)
        if self.sync:
            self.cluster.sync()


@functools.cache
def text():
    return emit(Pair().lower())


@functools.cache
def cubin():
    return compiler.build(Pair().lower()).cubin


@functools.cache
def code():
    return disasm.sass(cubin().code)


def ptx():
    return cubin().ptx


def test_sync_is_a_barrier_of_the_cluster():
    assert text().count("  cluster_sync();") == 2
    assert code().count("UCGABAR_ARV") == code().count("UCGABAR_WAIT") == 2


def test_map_shared_addr_asks_for_the_other_block():
    assert "= map_shared(smem + 0, (unsigned)((2 - 1) - (int)cluster_ctarank()));" in text()
    assert "= map_shared(smem + 0, 1u);" in text()
    for part in ("mapa.shared::cluster.u32", "ld.shared::cluster.v4.b32"):
        assert part in ptx()
    assert "st.shared::cluster.v4.b32" in ptx()


def test_multicast_and_remote_arrivals_are_in_the_machine_code():
    assert code().count("UTMALDG.2D.MULTICAST") == 2
    assert "SYNCS.ARRIVE.TRANS64.RED" in code()  # at the barrier of another block


def test_cache_policies_are_in_the_machine_code():
    assert code().count("UTMALDG.2D [UR") == 2
    for policy in ("evict_first", "evict_normal", "evict_last"):
        assert f"createpolicy.fractional.L2::{policy}.b64" in ptx()


def test_a_wait_acquires_from_the_scope_it_names():
    assert ptx().count("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64") == 1
    assert ptx().count("mbarrier.try_wait.parity.shared::cta.b64") == 1


class Arrivals(tilus.Script):
    """Both blocks arrive at a barrier of the first, in several ways."""

    def __init__(self, sems, scope):
        self.sems, self.scope = sems, scope

    def __call__(self):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        come = self.mbarrier.alloc(64 * len(self.sems))
        self.cluster.sync()
        for sem in self.sems:
            self.mbarrier.arrive_remote(come, rank=0, sem=sem)
        if self.cluster.blockRank == 0:
            self.mbarrier.wait(come, phase=0, scope=self.scope)
        self.cluster.sync()


@pytest.mark.parametrize("scope", ["cta", "cluster"])
def test_relaxed_arrivals_leave_the_scope_of_the_wait_open(scope):
    kernel = Arrivals(["relaxed"], scope).lower()
    ptx = compiler.build(kernel).cubin.ptx
    assert ptx.count("mbarrier.arrive.relaxed.cluster.shared::cluster.b64") == 1
    assert "mbarrier.arrive.release" not in ptx
    assert ptx.count("try_wait.parity.acquire.cluster") == (scope == "cluster")
    assert simulator.judge(kernel, {}).proved


def test_one_arrival_that_releases_asks_for_the_scope_of_the_cluster():
    with pytest.raises(LanguageError, match="wait: scope must be 'cluster', since other blocks"):
        Arrivals(["relaxed", "release"], "cta").lower()
    kernel = Arrivals(["relaxed", "release"], "cluster").lower()
    ptx = compiler.build(kernel).cubin.ptx
    assert "mbarrier.arrive.relaxed" in ptx and "mbarrier.arrive.release" in ptx


def test_the_place_in_the_cluster_is_read_from_special_registers():
    for register in ("cluster_ctarank", "cluster_ctaid.x", "cluster_ctaid.y"):
        assert f"%%{register};" in text()


class Grouped(tilus.Script):
    """Part of a block wants to meet the cluster."""

    def __call__(self):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        with self.single_warp():
            self.cluster.sync()


def test_sync_refuses_a_thread_group():
    with pytest.raises(LanguageError, match="sync: must stand outside of thread groups"):
        Grouped().lower()


@pytest.mark.parametrize(
    "fault, message",
    [
        ({"rank": 2}, "map_shared_addr: rank must be from 0 to 1, as the cluster has 2 blocks"),
        ({"rank": -1}, "map_shared_addr: rank must be from 0 to 1"),
        ({"mask": 4}, "global_to_shared: multicast_mask must be from 1 to 3, a bit for each"),
        ({"mask": 0}, "global_to_shared: multicast_mask must be from 1 to 3"),
        ({"sync": False}, r"the cluster must be synchronised \(self.cluster.sync\(\)\) before"),
        ({"cluster": 9}, "cluster_blocks must be at most 8 in all, got 9"),
        ({"cluster": (4, 4)}, "cluster_blocks must be at most 8 in all, got 16"),
        ({"scope": "cta"}, r"wait: scope must be 'cluster', since other blocks arrive there \(li"),
        ({"scope": "gpu"}, "wait: scope must be 'cta' or 'cluster', got 'gpu'"),
        ({"sem": "acquire"}, "arrive_remote: sem must be 'release' or 'relaxed', got 'acquire'"),
    ],
)
def test_faults_are_refused(fault, message):
    with pytest.raises(LanguageError, match=message):
        Pair(**fault).lower()


def test_a_cluster_of_one_block_has_nobody_to_meet():
    assert Pair(cluster=1, rank=0, mask=1, sync=False).lower()


def test_a_grid_that_clusters_do_not_fill_is_refused():
    function = Pair().lower().function
    (m,) = (p.var for p in function.params if not p.pointer)
    assert function.grid({m: 4}) == (4, 4, 1)
    with pytest.raises(ArgumentError, match=r"grid of Pair must be a multiple of the cluster"):
        function.grid({m: 3})


class Places(Probe):
    """Every block reports where in its cluster it is, once all of the cluster have come."""

    def __init__(self, cluster):
        self.blocks = cluster

    def __call__(self, out_ptr: ~int32):
        self.attrs.blocks = 4, 4, 2
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=int32, shape=[4 * 4 * 2 * 7])
        block: int32 = (self.blockIdx.z * 4 + self.blockIdx.y) * 4 + self.blockIdx.x
        at, size = self.cluster.blockIdx, self.cluster.clusterDim
        found = [at.x, at.y, at.z, self.cluster.blockRank, size.x, size.y, size.z]
        self.cluster.sync()
        with self.single_thread():
            for i, value in enumerate(found):
                self.put(out, block * 7 + i, value)


@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 2), (4, 2, 1), (2, 2, 2), (1, 1, 1)])
def test_blocks_know_their_place(backend, cluster):
    out = np.zeros((4 * 4 * 2, 7), np.int32)
    backend.run(Places(cluster), out.reshape(-1))
    cx, cy, cz = cluster
    for block, found in enumerate(out.tolist()):
        x, y, z = block % 4 % cx, block // 4 % 4 % cy, block // 16 % cz
        assert found == [x, y, z, (z * cy + y) * cx + x, cx, cy, cz]
