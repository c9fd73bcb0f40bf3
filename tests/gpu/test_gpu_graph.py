# SPDX-License-Identifier: Apache-2.0
"""Calls that come for the third time are queued as CUDA graphs: in order, and where they belong."""

import pytest
from tests.runtime.pitched import Pitched

from tilus.runtime.driver import binding
from tilus.runtime.graph import Graph

M, N, K = 256, 384, 320


def integers(torch, rows, columns=K):
    return torch.randint(-1, 2, (rows, columns), device="cuda").half()


def product(a, b):
    return (a.float() @ b.float().T).half()


def streams(kernel):
    """Return the streams that a kernel's calls have graphs for."""
    kept = kernel._launcher.known.kept.values()
    return {handle for found in kept for handle in found.made._graphs}


@pytest.mark.parametrize("side", [False, True])
def test_every_call_sees_what_came_before_it_on_its_stream(torch, v3, side):
    a, b, c = integers(torch, M), integers(torch, N), integers(torch, M, N)
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # so that nothing is done before all is queued
        want, got = [], []
        for _ in range(6):
            a.copy_(integers(torch, M))
            v3(M, N, K, a, b, c)
            got.append(c.clone())
            want.append(product(a, b))
    torch.cuda.synchronize()
    assert [torch.equal(x, y) for x, y in zip(got, want, strict=True)] == [True] * 6
    assert stream.cuda_stream in streams(v3)


def test_the_default_stream_and_blocking_ones_wait_for_each_other(torch, v3):
    a, b, c = integers(torch, M), integers(torch, N), integers(torch, M, N)
    for _ in range(3):
        v3(M, N, K, a, b, c)
    new, (_, made) = integers(torch, M), binding().cuStreamCreate(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.ExternalStream(int(made))):
        torch.cuda._sleep(100_000_000)
        a.copy_(new)
    v3(M, N, K, a, b, c)
    with torch.cuda.stream(torch.cuda.ExternalStream(int(made))):
        seen = c.clone()
    torch.cuda.synchronize()
    binding().cuStreamDestroy(made)
    assert torch.equal(seen, product(new, b))


def test_a_stream_that_has_a_graph_can_be_captured(torch, v3):
    a, b, c = integers(torch, M), integers(torch, N), integers(torch, M, N)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(3):
            v3(M, N, K, a, b, c)
    torch.cuda.synchronize()
    assert side.cuda_stream in streams(v3)
    with torch.cuda.graph(graph, stream=side):
        v3(M, N, K, a, b, c)
    new = integers(torch, M)
    a.copy_(new)
    c.fill_(float("nan"))
    graph.replay()
    assert torch.equal(c, product(new, b))


def test_a_graph_may_be_made_while_another_stream_is_captured(torch, v3):
    a, b, c = integers(torch, M), integers(torch, N), integers(torch, M, N)
    side, other, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    v3(M, N, K, a, b, c)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        kept = torch.ones(4, device="cuda")
        for _ in range(3):
            v3(M, N, K, a, b, c, stream=other)
    torch.cuda.synchronize()
    assert other.cuda_stream in streams(v3)
    graph.replay()
    assert torch.equal(c, product(a, b)) and kept.sum().item() == 4


def test_on_another_gpu_than_the_current_one_order_is_kept_too(torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    kernel = Pitched()
    a, c = (torch.zeros(64, 64, device="cuda:0").half() for _ in range(2))
    for turn in range(5):
        with torch.cuda.device(0):
            torch.cuda._sleep(50_000_000)
            a.fill_(turn + 1)
        with torch.cuda.device(1):
            kernel(64, 64, 64, a, c)
        assert (c == turn + 1).all().item(), turn


def test_graphs_take_a_bounded_part_of_the_memory(torch):
    kernel, pool = Pitched(), torch.randn(1 << 20, device="cuda").half()
    kernel(64, 64, 64, pool[:4096].view(64, 64), pool[8192:12288].view(64, 64))
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for place in range(400):
        a, c = (pool[x : x + 4096].view(64, 64) for x in (64 * place, 1 << 19))
        for _ in range(3):
            kernel(64, 64, 64, a, c)
    assert torch.equal(a, c) and len(Graph.alive) <= Graph.MOST
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20
