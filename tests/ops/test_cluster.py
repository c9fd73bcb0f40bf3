# SPDX-License-Identifier: Apache-2.0
"""Clusters: what generated code asks of the hardware, and what is refused."""

import functools

import pytest

import tilus
from tilus import ArgumentError, LanguageError, compiler, disasm, float16, int32
from tilus.emitter import emit


class Pair(tilus.Script):
    """Two blocks use every form of an instruction that reaches for the other one."""

    def __init__(self, cluster=2, rank=1, mask=3, sync=True, scope="cluster"):
        self.cluster_blocks, self.rank, self.mask = cluster, rank, mask
        self.sync, self.scope = sync, scope

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
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx_remote(full, sa.nbytes, rank=peer)
                self.mbarrier.arrive_and_expect_tx_multicast(full, 64, multicast_mask=self.mask)
                address = self.cluster.map_shared_addr(sa, rank=peer)
                there = self.cluster.map_shared_addr(full, rank=self.rank)
                self.printf("%u %u\n", address, there)
        self.mbarrier.arrive(own)
        self.mbarrier.wait(own, phase=0)
        self.mbarrier.wait(empty, phase=0, scope=self.scope)
        with self.single_warp(1):
            self.mbarrier.arrive_remote(empty, rank=self.rank, count=2)
        if self.sync:
            self.cluster.sync()


@functools.cache
def text():
    return emit(Pair().lower())


@functools.cache
def code():
    return disasm.sass(compiler.build(Pair().lower()).cubin.code)


def test_sync_is_a_barrier_of_the_cluster():
    assert text().count("  cluster_sync();") == 2
    assert code().count("UCGABAR_ARV") == code().count("UCGABAR_WAIT") == 2


def test_map_shared_addr_asks_for_the_other_block():
    assert "map_shared(smem + 0, (unsigned)((2 - 1) - (int)cluster_ctarank()))" in text()
    assert "map_shared(smem + 8192, 1u)" in text()
    assert "mapa.shared::cluster.u32" in compiler.build(Pair().lower()).cubin.ptx


def test_multicast_and_remote_arrivals_are_in_the_machine_code():
    assert code().count("UTMALDG.2D.MULTICAST") == 2
    assert "SYNCS.ARRIVE.TRANS64.RED" in code()  # at the barrier of another block


def test_a_wait_acquires_from_the_scope_it_names():
    ptx = compiler.build(Pair().lower()).cubin.ptx
    assert ptx.count("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64") == 1
    assert ptx.count("mbarrier.try_wait.parity.shared::cta.b64") == 1


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
