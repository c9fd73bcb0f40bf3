# SPDX-License-Identifier: Apache-2.0
"""Tiny CUDA kernels by hand: one that is as it should be, and one for each thing we refuse."""

PRELUDE = """
__device__ __forceinline__ void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
struct alignas(64) Map { unsigned long long words[16]; };
"""


def _wgmma(bounds: str, before: str, loop: str) -> str:
    return f"""{PRELUDE}
extern "C" __global__ void {bounds} kernel(
    float* p, unsigned long long a, unsigned long long b, int n, const __grid_constant__ Map map) {{
  __shared__ alignas(1024) char tile[1024];
  __shared__ unsigned long long barrier;
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {{%3, %3}}], [%2];" :: "r"((unsigned)__cvta_generic_to_shared(tile)),
               "l"(&map), "r"((unsigned)__cvta_generic_to_shared(&barrier)), "r"(0) : "memory");
  {before}
  float d[4] = {{p[0], p[1], p[2], p[3]}};
  for (int i = 0; i < n; i++) {{ {loop} }}
  for (int i = 0; i < 4; i++) p[threadIdx.x * 4 + i] = d[i];
}}
"""


BOUNDS = "__launch_bounds__(128, 1)"
STEP = "fence(); mma(d, a, b); commit_wait();"

#: A TMA load and a loop of WGMMA, with nothing to complain about.
GOOD = _wgmma(BOUNDS, "", STEP)

#: The fence is missing where the accumulator is touched: ptxas adds it, and serialises.
SERIALIZED = _wgmma(BOUNDS, "", "d[1] *= 2; mma(d, a, b); commit_wait();")

#: The wait is missing: ptxas adds it after the loop.
INJECTED = _wgmma(
    BOUNDS, "", STEP.replace("commit_wait()", 'asm volatile("wgmma.commit_group.sync.aligned;")')
)

#: Without launch bounds ptxas knows no register count at entry, and drops the budget.
IGNORED = _wgmma("", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");', STEP)

#: An array indexed by a run-time value lives in local memory.
LOCAL = """
extern "C" __global__ void kernel(float* p, int n) {
  float d[64];
  for (int i = 0; i < 64; i++) d[i] = p[i];
  d[n] = 1;
  for (int i = 0; i < 64; i++) p[i] = d[(i * n) % 64];
}
"""


def _spilling() -> str:
    loads = "".join(f"float v{i} = p[t + {i * 1024}];\n" for i in range(64))
    stores = "".join(f"p[t + {i * 7 % 64 * 1024}] = v{i} * v{i * 5 % 64};\n" for i in range(64))
    return f"""
extern "C" __global__ void __launch_bounds__(1024, 2) kernel(float* p) {{
  int t = threadIdx.x;
  {loads} __syncthreads();
  {stores}
}}
"""


#: 64 values at a time where each thread may have 32 registers.
SPILLING = _spilling()

#: Nothing wrong, but neither tensor cores nor TMA.
PLAIN = 'extern "C" __global__ void kernel(float* p) { p[threadIdx.x] += 1; }'
