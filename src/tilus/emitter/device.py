# SPDX-License-Identifier: Apache-2.0
"""Device functions that generated code calls; each kernel has those that it needs."""

from __future__ import annotations

PREAMBLE = """\
typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };"""

FLOOR = """\
template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}"""


PREFETCH = """\
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}"""

ELECT_ONE = """\
/* True in exactly one thread of a converged warp. */
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected;
}"""

CLUSTER = {"clusterRank": "cluster_ctarank", "clusterBlockIdx": "cluster_ctaid"}
"""Where a block stands in its cluster: PTX ISA, "Special Registers"."""


def special(name: str, register: str) -> str:
    """Return the device function ``name``, which reads a special register."""
    return f"""\
__device__ __forceinline__ unsigned {name}() {{
  unsigned value;
  asm("mov.u32 %0, %%{register};" : "=r"(value));
  return value;
}}"""
