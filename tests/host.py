# SPDX-License-Identifier: Apache-2.0
"""Generated CUDA as a program of this machine's processor: one POSIX thread for each CUDA thread.

What the text computes is seen without a GPU. The device functions that are made of PTX are written
anew here: mbarriers count arrivals and bytes; instruments record and report. What TMA and WGMMA are
asked for does not happen, but its bytes come: such kernels take their way and compute nothing.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tilus
from tilus import ir
from tilus.emitter import Emitter
from tilus.instrument import Instrumented
from tilus.options import NO_INSTRUMENTS, Instruments

MACHINE = """
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
#include <time.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __shared__
#define __align__(n)
#define __grid_constant__
#define __threadfence_system __sync_synchronize
#define atomicCAS __sync_val_compare_and_swap
#define __cvta_generic_to_shared(p) 0ull
/* The headers of these instructions take the compiler three times as long as a kernel. */
#define __rdtsc __builtin_ia32_rdtsc
typedef float floats __attribute__((vector_size(16)));
typedef short shorts __attribute__((vector_size(16)));
struct uint3 { unsigned x, y, z; };
struct uint4 { unsigned x, y, z, w; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
static inline unsigned long long nanoseconds() {
  timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static unsigned long long deadline;  /* a kernel that waits for longer is wrong */
struct MBarrier { long long pending : 12, count : 12, bytes : 22, phase : 18; };
static pthread_mutex_t signalling = PTHREAD_MUTEX_INITIALIZER;
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
struct CUtensorMap;
/* The lanes of a warp look at a barrier together; these threads do not, and one may look when the
   next phase is over already. So each knows the phase it waits for, not only its parity. */
struct Passed { unsigned barrier; int phase; };
thread_local Passed passed[64];
static MBarrier *mbarrier(unsigned address) { return (MBarrier *)(shared_memory + address); }
static void signal(unsigned address, int arrivals, int nbytes) {
  pthread_mutex_lock(&signalling);
  MBarrier *b = mbarrier(address);
  b->pending -= arrivals;
  b->bytes += nbytes;
  if (!b->pending && !b->bytes) { b->pending = b->count; ++b->phase; }
  pthread_mutex_unlock(&signalling);
}
static bool passes(unsigned address, unsigned parity) {
  Passed *mine = passed;
  while (mine->barrier && mine->barrier != address + 1) ++mine;
  if (!mine->barrier) *mine = {address + 1, -1};
  const int phase = mine->phase + ((mine->phase & 1) != (int)parity);
  pthread_mutex_lock(&signalling);
  const bool over = mbarrier(address)->phase > phase;
  pthread_mutex_unlock(&signalling);
  if (over) mine->phase = phase; else if (nanoseconds() > deadline) abort(); else usleep(2000);
  return over;
}
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
"""

FUNCTIONS = {
    "mbarrier_init": """void mbarrier_init(unsigned a, unsigned n) {
      *mbarrier(a) = {(int)n, (int)n, 0, 0}; }""",
    "mbarrier_arrive": "void mbarrier_arrive(unsigned a, unsigned n) { signal(a, n, 0); }",
    "mbarrier_arrive_expect_tx": """void mbarrier_arrive_expect_tx(unsigned a, unsigned nbytes) {
      signal(a, 1, nbytes); }""",
    "mbarrier_try_wait": "bool mbarrier_try_wait(unsigned a, unsigned p) { return passes(a, p); }",
    "mbarrier_wait": "void mbarrier_wait(unsigned a, unsigned p) { while (!passes(a, p)); }",
    "tma_load_2d": """void tma_load_2d(unsigned, const CUtensorMap *map, int, int, unsigned a) {
      signal(a, 0, -(int)map->opaque[0]); }""",
    "tma_store_2d": "void tma_store_2d(const CUtensorMap *, int, int, unsigned) {}",
    "never": "bool never() { return false; }",
    "elect_one": "bool elect_one() { return threadIdx.x % 32 == 0; }",
    "prefetch_tensor_map": "void prefetch_tensor_map(const CUtensorMap *) {}",
    "global_timer": "unsigned long long global_timer() { return nanoseconds(); }",
    "trap": "void trap() { pthread_exit(0); }",
    "trace_clock": "unsigned trace_clock() { return (unsigned)__rdtsc(); }",
    "trace_begin": """unsigned long long trace_begin(unsigned long long buffer, int block,
                                                  unsigned threads, unsigned segment) {
      if (block < 0) return 0;
      buffer += block * (32ull + threads * segment);
      if (threadIdx.x == 0) {
        unsigned long long *head = (unsigned long long *)buffer;
        head[0] = __rdtsc(); head[1] = nanoseconds(); head[2] = 7;
      }
      return buffer + 32 + threadIdx.x * segment + 16; }""",
    "trace_event": """void trace_event(unsigned long long trace, unsigned long long &at,
                                      unsigned &size, unsigned &ended, bool writes,
                                      unsigned what, unsigned begun, unsigned where,
                                      unsigned most) {
      const unsigned now = (unsigned)__rdtsc();
      unsigned *event = (unsigned *)at;
      if (writes && size < most) {
        event[0] = what; event[1] = begun; event[2] = ended; event[3] = where;
      }
      if (writes) { size += 16; ended = now; }
      at = trace + size; }""",
    "trace_end": """void trace_end(unsigned long long trace, unsigned size, unsigned ended) {
      if (!trace) return;
      unsigned *head = (unsigned *)trace - 4;
      head[0] = size / 16; head[1] = ended;
      head[2] = (unsigned)__rdtsc(); head[3] = (unsigned)nanoseconds(); }""",
    "to_half": "half_t to_half(float x) { return __builtin_ia32_vcvtps2ph(floats{x}, 0)[0]; }",
    "from_half": """float from_half(half_t h) {
      return __builtin_ia32_vcvtph2ps(shorts{(short)h})[0]; }""",
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
  deadline = nanoseconds() + 20000000000ull;
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

    def run(
        self,
        script: tilus.Script,
        *arguments: object,
        instruments: Instruments = NO_INSTRUMENTS,
        memory: Sequence[np.ndarray] = (),
    ) -> None:
        """Launch a kernel; a view may have any shape. ``memory`` is what its instruments write."""
        call = script.bind(*arguments)
        kernel = script.lower(**call.constants)
        params = kernel.function.params
        given = {p.name: call.scalars.get(p.name) for p in params}
        arrays = iter(x for x in arguments if isinstance(x, np.ndarray))
        values = [next(arrays).ctypes.data if p.pointer else given[p.name] for p in params]
        values += [m.ctypes.data for m in memory]
        grid = kernel.function.grid({p.var: given[p.name] for p in params if not p.pointer})
        types = [ctypes.c_void_p if p.pointer else ctype(p.dtype) for p in params]
        types += [ctypes.c_void_p] * len(memory)
        launch = build(kernel, instruments)
        launch.argtypes = [*[ctypes.c_uint] * 3, *types]
        launch(*grid, *values)


def ctype(dtype: tilus.dtypes.DType) -> type:
    """Return the ctypes type of a scalar."""
    return np.ctypeslib.as_ctypes_type(dtype.numpy)


FLAGS = ("-w", "-O0", "-std=c++17", "-mf16c", "-ffp-contract=off", "-fPIC", "-pthread")


def build(kernel: ir.Kernel, instruments: Instruments = NO_INSTRUMENTS):
    """Compile a kernel's CUDA for this machine; return what launches it."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        source.write_text(translated(kernel, instruments))
        compiler("-include", f"{machine().name}/machine.h", "-shared", "-o", binary, source)
        return ctypes.CDLL(str(binary)).launch


@functools.cache
def machine() -> tempfile.TemporaryDirectory:
    """Return a folder with the machine's functions, which the compiler has read once for all
    kernels; it is gone with this process."""
    folder = tempfile.TemporaryDirectory(prefix="host-")
    header = Path(folder.name) / "machine.h"
    header.write_text(MACHINE)
    compiler("-x", "c++-header", "-o", f"{header}.gch", header)
    return folder


def compiler(*words: str | Path) -> None:
    """Call the C++ compiler; what it has to say fails the test."""
    done = subprocess.run(["g++", *FLAGS, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def translated(kernel: ir.Kernel, instruments: Instruments) -> str:
    """Return a kernel's CUDA for this machine, whose functions are defined already, and what
    launches it."""
    emitter = Instrumented(kernel, instruments) if instruments else Emitter(kernel)
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
    # Groups that share their code have a barrier each, and its number from an expression.
    own = re.compile(r'asm volatile\("bar\.sync %0, (\d+);" :: "r"\((.*)\) : "memory"\);')
    for count, numbers in own.findall(text):
        for number in re.findall(r"[?:] (\d+)", numbers):
            counts[int(number)] = int(count)
    text = own.sub(r"sync(\2, \1);", text)
    # What is left of PTX orders what is in order here, or asks an engine that is not there.
    text = re.sub(r'asm volatile\("(?:fence|wgmma|setmaxnreg|)[^"]*"[^;]*;', ";", text)
    types = [p.dtype.cpp + " *" * p.pointer for p in function.params]
    types += ["unsigned *"] * (instruments.watchdog is not None)
    types += ["unsigned long long"] * (instruments.trace is not None)
    names = [f"p{i}" for i in range(len(types))]
    kept = "".join(f"static {t} kept_{n};\n" for t, n in zip(types, names, strict=True))
    # All that a copy says here is how many bytes it would have brought.
    boxes = ((math.prod(m.box), m.view.dtype.nbytes) for m in kernel.plan.tensor_maps)
    maps = [f"CUtensorMap{{{{{count * nbytes}}}}}" for count, nbytes in boxes]
    launcher = LAUNCH.format(
        name=function.name,
        values=", ".join([*maps, *(f"kept_{n}" for n in names)]),
        parameters="".join(f", {t} {n}" for t, n in zip(types, names, strict=True)),
        keep=" ".join(f"kept_{n} = {n};" for n in names),
        counts=", ".join(map(str, counts)),
        threads=function.threads.count,
    )
    return text + kept + launcher


def replacement(helper: str) -> str:
    """Return a device function of PTX in C++."""
    name = re.search(r"(\w+)\(", helper).group(1)
    direction, _, nbytes = name.partition("_")
    if direction in ("load", "store") and nbytes.isdigit():
        return FUNCTIONS[direction].format(name, nbytes)
    if direction in ("wgmma", "mma") or "matrices" in name:
        return helper[: helper.index(") {")] + ") {}"
    return FUNCTIONS[name]
