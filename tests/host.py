# SPDX-License-Identifier: Apache-2.0
"""Generated CUDA as a program of this machine's processor: one POSIX thread for each CUDA thread.

What the text computes is seen without a GPU. The device functions that are made of PTX are written
anew here; kernels that need others (TMA, mbarriers, tensor cores) do not compile.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import tilus
from tilus import ir
from tilus.emitter import Emitter

MACHINE = """
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __shared__
#define __align__(n)
#define __cvta_generic_to_shared(p) 0ull
struct uint3 { unsigned x, y, z; };
thread_local uint3 threadIdx, blockIdx;
static uint3 gridDim;
unsigned char shared_memory[232448] __attribute__((aligned(1024)));
static unsigned block_threads;
static pthread_barrier_t barriers[64];  /* 0 to 15: named ones; from 16 on: one a warp */
static unsigned long long lanes[32][32];
static inline void sync(unsigned number, unsigned) { pthread_barrier_wait(&barriers[number]); }
static inline void __syncthreads() { sync(0, block_threads); }
static inline void __syncwarp() { sync(16 + threadIdx.x / 32, 32); }
template <class T> T exchange(T x, unsigned lane) {
  const unsigned warp = threadIdx.x / 32;
  memcpy(&lanes[warp][threadIdx.x % 32], &x, sizeof x);
  __syncwarp();
  memcpy(&x, &lanes[warp][lane], sizeof x);
  __syncwarp();
  return x;
}
template <class T> T __shfl_xor_sync(unsigned, T x, unsigned mask) {
  return exchange(x, threadIdx.x % 32 ^ mask);
}
template <class T> T __shfl_sync(unsigned, T x, unsigned lane) { return exchange(x, lane); }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline float __int_as_float(int x) { return __uint_as_float(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
"""

FUNCTIONS = {
    "to_half": "half_t to_half(float x) { return _cvtss_sh(x, 0); }",
    "from_half": "float from_half(half_t h) { return _cvtsh_ss(h); }",
    "to_bfloat": """half_t to_bfloat(float x) {
      unsigned u; memcpy(&u, &x, 4);
      return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16; }""",
    "to_int": """int to_int(float x, int least, int most) {
      int i = x != x ? 0 : x >= 2147483648.f ? 2147483647 : x < -2147483648.f ? -2147483647 - 1
              : (int)x;
      return max(least, min(i, most)); }
    unsigned to_unsigned(float x) {
      return x != x || x < 0 ? 0 : x >= 4294967296.f ? 4294967295u : (unsigned)x; }""",
    "maximum": """float maximum(float a, float b) { return a != a || a > b ? a : b; }
    float minimum(float a, float b) { return a != a || a < b ? a : b; }""",
    "load": """template <class T> void {0}(T *x, unsigned address) {{
      memcpy(x, shared_memory + address, {1}); }}""",
    "store": """template <class T> void {0}(const T *x, unsigned address) {{
      memcpy(shared_memory + address, x, {1}); }}""",
}

LAUNCH = """
struct Arguments {{ unsigned x, y, z, thread; }};
static void *one(void *p) {{
  const Arguments *a = (const Arguments *)p;
  blockIdx = {{a->x, a->y, a->z}};
  threadIdx = {{a->thread, 0, 0}};
  {name}({values});
  return 0;
}}
extern "C" void launch(unsigned x, unsigned y, unsigned z{parameters}) {{
  gridDim = {{x, y, z}};
  block_threads = {threads};
  {keep}
  const int counts[] = {{{counts}}};
  for (int i = 0; i < 64; ++i) pthread_barrier_init(&barriers[i], 0, i < 16 ? counts[i] : 32);
  for (unsigned b = 0; b < x * y * z; ++b) {{
    pthread_t threads[1024];
    Arguments all[1024];
    memset(shared_memory, 0xff, sizeof shared_memory);
    for (unsigned t = 0; t < block_threads; ++t) {{
      all[t] = {{b % x, b / x % y, b / x / y, t}};
      pthread_create(&threads[t], 0, one, &all[t]);
    }}
    for (unsigned t = 0; t < block_threads; ++t) pthread_join(threads[t], 0);
  }}
}}
"""


class Host:
    """Runs kernels on NumPy arrays, as :class:`tests.conftest.Backend` does."""

    name = "host"

    def run(self, script: tilus.Script, *arguments: object) -> None:
        """Launch a kernel; a view may have any shape."""
        call = script.bind(*arguments)
        kernel = script.lower(**call.constants)
        params = kernel.function.params
        given = {p.name: call.scalars.get(p.name) for p in params}
        arrays = iter(x for x in arguments if isinstance(x, np.ndarray))
        values = [next(arrays).ctypes.data if p.pointer else given[p.name] for p in params]
        grid = kernel.function.grid({p.var: given[p.name] for p in params if not p.pointer})
        types = [ctypes.c_void_p if p.pointer else ctype(p.dtype) for p in params]
        launch = build(kernel)
        launch.argtypes = [*[ctypes.c_uint] * 3, *types]
        launch(*grid, *values)


def ctype(dtype: tilus.dtypes.DType) -> type:
    """Return the ctypes type of a scalar."""
    return np.ctypeslib.as_ctypes_type(dtype.numpy)


def build(kernel: ir.Kernel):
    """Compile a kernel's CUDA for this machine; return what launches it."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        source.write_text(translated(kernel))
        flags = ["-w", "-O0", "-std=c++17", "-mf16c", "-ffp-contract=off", "-shared", "-fPIC"]
        command = ["g++", *flags, "-o", binary, source, "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(binary)).launch


def translated(kernel: ir.Kernel) -> str:
    """Return a kernel's CUDA with this machine's functions in it, and what launches it."""
    emitter = Emitter(kernel)
    text, function = emitter.source(), kernel.function
    for helper in emitter._helpers:
        if "asm" in helper:
            text = text.replace(helper, replacement(helper))
    counts = [function.threads.count] + [1] * 15
    for number, count in re.findall(r'"bar\.sync (\d+), (\d+);"', text):
        counts[int(number)] = int(count)
    text = re.sub(
        r'asm volatile\("bar\.sync (\d+), (\d+);" ::: "memory"\);', r"sync(\1, \2);", text
    )
    types = [p.dtype.cpp + " *" * p.pointer for p in function.params]
    names = [f"p{i}" for i in range(len(types))]
    kept = "".join(f"static {t} kept_{n};\n" for t, n in zip(types, names, strict=True))
    launcher = LAUNCH.format(
        name=function.name,
        values=", ".join(f"kept_{n}" for n in names),
        parameters="".join(f", {t} {n}" for t, n in zip(types, names, strict=True)),
        keep=" ".join(f"kept_{n} = {n};" for n in names),
        counts=", ".join(map(str, counts)),
        threads=function.threads.count,
    )
    return MACHINE + text + kept + launcher


def replacement(helper: str) -> str:
    """Return a device function of PTX in C++."""
    name = re.search(r"(\w+)\(", helper).group(1)
    direction, _, nbytes = name.partition("_")
    if direction in ("load", "store") and nbytes.isdigit():
        return FUNCTIONS[direction].format(name, nbytes)
    return FUNCTIONS[name]
