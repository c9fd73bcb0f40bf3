# SPDX-License-Identifier: Apache-2.0
"""
A rival in Triton: the same product in a language that hides warps and barriers
===============================================================================

Plain pointers and masks, tiles in groups of rows, Triton's own tuning over a few configurations.
Needs Triton and PyTorch; ``benchmark.py`` imports it where they are installed.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8},
        num_stages=stages,
        num_warps=warps,
    )
    for m, n, stages, warps in [
        (128, 256, 3, 8),
        (128, 256, 4, 8),
        (256, 128, 3, 8),
        (128, 128, 4, 4),
        (128, 128, 4, 8),
        (64, 128, 4, 4),
    ]
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.heuristics({"EVEN_K": lambda known: known["k"] % known["BLOCK_K"] == 0})
@triton.jit
def kernel(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    tile = tl.program_id(0)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    rows = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    at_m = (first + within % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = within // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    # Rows beyond the end read others instead, and are not stored.
    from_a = a + (at_m % m)[:, None] * k + at_k[None, :]
    from_b = b + (at_n % n)[None, :] * k + at_k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, k, BLOCK_K):
        if EVEN_K:
            tile_a, tile_b = tl.load(from_a), tl.load(from_b)
        else:
            left = k - done
            tile_a = tl.load(from_a, mask=at_k[None, :] < left, other=0.0)
            tile_b = tl.load(from_b, mask=at_k[:, None] < left, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
        from_a += BLOCK_K
        from_b += BLOCK_K
    inside = (at_m[:, None] < m) & (at_n[None, :] < n)
    tl.store(c + at_m[:, None] * n + at_n[None, :], total.to(tl.float16), mask=inside)


def launcher(a, b, c):
    """Return a function that queues C = A Bᵀ on arrays of the GPU; the first call tunes."""
    a, b, c = (torch.as_tensor(x, device="cuda") for x in (a, b, c))
    (m, k), n = a.shape, len(b)

    def grid(known):
        return (triton.cdiv(m, known["BLOCK_M"]) * triton.cdiv(n, known["BLOCK_N"]),)

    return lambda: kernel[grid](a, b, c, m, n, k)


def chosen():
    """Return the configuration that the last tuning chose, in words."""
    best = kernel.best_config
    sizes = " ".join(f"{name}={value}" for name, value in best.kwargs.items())
    return f"triton {sizes} num_stages={best.num_stages} num_warps={best.num_warps}"
