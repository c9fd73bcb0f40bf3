typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

/* True in exactly one thread of a converged warp. */
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected;
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void tma_load_2d(unsigned dst, const CUtensorMap *map, int column,
                                            int row, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];"
               :: "r"(dst), "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}" :: "r"(barrier), "r"(parity) : "memory");
}

/* A K-major operand: `stride` bytes lead from one group of eight rows to the next; `type` names
   the swizzle. */
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned stride,
                                                              unsigned type) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16
       | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)type << 62;
}

/* d[64][8] = a[64][16] * b[16][8] (+ d where scale_d). */
__device__ __forceinline__ void wgmma_m64n8k16(float *d, unsigned long long a,
                                               unsigned long long b, int scale_d) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0, %1, %2, %3}, "
               "%4, %5, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(a), "l"(b), "r"(scale_d));
}

/* Neighbours that memory gives and takes at once. */
template <class T, int n> struct alignas(n * sizeof(T)) vector { T at[n]; };

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
OneTile(const __grid_constant__ CUtensorMap ga_map,
    const __grid_constant__ CUtensorMap gb_map,
    int  m,
    half_t *a_ptr,
    half_t *b_ptr,
    float *c_ptr) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) { prefetch_tensor_map(&ga_map); prefetch_tensor_map(&gb_map); }
  // tiles.py:25  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 4608, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  bool acc_live = false;
  // tiles.py:26  register_tensor
  float acc[4];
  // tiles.py:27  warp 0
  if (warp == 0) {
    // tiles.py:28  thread 0
    if (elect_one()) {
      // tiles.py:29  arrive_and_expect_tx
      mbarrier_arrive_expect_tx(smem + 4608, 4608u);
    }
    __syncwarp();
    // tiles.py:30  global_to_shared
    if (elect_one()) {
      tma_load_2d(smem + 0, &ga_map, 0, 0, smem + 4608);
    }
    __syncwarp();
    // tiles.py:31  global_to_shared
    if (elect_one()) {
      tma_load_2d(smem + 4096, &gb_map, 0, 0, smem + 4608);
    }
    __syncwarp();
  }
  // tiles.py:32  wait
  mbarrier_wait(smem + 4608, 0u);
  // tiles.py:33  fence
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll 1
  for (int i = 0; i < 1; i += 1) {
    // tiles.py:35  mma
    const unsigned long long a_desc = wgmma_descriptor(smem + 0, 512, 2);
    const unsigned long long b_desc = wgmma_descriptor(smem + 4096, 512, 2);
    wgmma_m64n8k16(acc, a_desc + 0, b_desc + 0, acc_live);
    wgmma_m64n8k16(acc, a_desc + 2, b_desc + 2, 1);
    acc_live = true;
  }
  // tiles.py:36  commit_group
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  // tiles.py:37  wait_group
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if ((!acc_live)) {
    // tiles.py:38  fill
    #pragma unroll
    for (int r = 0; r < 4; ++r) acc[r] = 0.0f;
    acc_live = true;
  }
  #pragma unroll
  for (int r = 0; r < 4; ++r) asm volatile("" : "+f"(acc[r]) :: "memory");
  // tiles.py:38  store_global
  const int first_0 = 0 + threadIdx.x / 4 % 8 + threadIdx.x / 32 % 4 * 16;
  const int first_1 = 0 + threadIdx.x % 4 * 2;
  float *const base = c_ptr + (first_0) * 8ll + (first_1);
  if (true && (unsigned long long)c_ptr % 8 == 0) {
    #pragma unroll
    for (int r = 0; r < 4; r += 2) {
      vector<float, 2> part;
      #pragma unroll
      for (int v = 0; v < 2; ++v) part.at[v] = acc[r + v];
      if (first_0 + r / 2 % 2 * 8 < m && first_1 + r % 2 < 8) *(vector<float, 2> *)(base + (r / 2 % 2 * 8) * 8ll + (r % 2)) = part;
    }
  }
  else
  {
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      if (first_0 + r / 2 % 2 * 8 < m && first_1 + r % 2 < 8) base[(r / 2 % 2 * 8) * 8ll + (r % 2)] = acc[r];
  }
}
