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

template <class T> __device__ __forceinline__ void load_matrices_4(T *x, unsigned address) {
  unsigned w[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address) : "memory");
  memcpy(x, w, 16);
}

/* d[16][8] += a[16][16] * b[16][8], spread over a warp. */
__device__ __forceinline__ void mma_m16n8k16_f32_f16(float *d, const half_t *a, const half_t *b) {
  unsigned x[4], y[2];
  memcpy(x, a, 16);
  memcpy(y, b, 8);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}

__device__ __forceinline__ half_t to_half(float x) {
  half_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}

__device__ __forceinline__ unsigned pack(half_t lo, half_t hi) {
  return lo | (unsigned)hi << 16;
}

/* Thread q of four neighbours holds element q of four rows; afterwards it holds row q whole. */
__device__ __forceinline__ uint4 transpose_quad(uint4 x) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const unsigned a = __shfl_xor_sync(0xffffffff, odd ? x.x : x.y, 1);
  const unsigned b = __shfl_xor_sync(0xffffffff, odd ? x.z : x.w, 1);
  if (odd) { x.x = a; x.z = b; } else { x.y = a; x.w = b; }
  const unsigned c = __shfl_xor_sync(0xffffffff, upper ? x.x : x.z, 2);
  const unsigned d = __shfl_xor_sync(0xffffffff, upper ? x.y : x.w, 2);
  if (upper) { x.x = c; x.y = d; } else { x.z = c; x.w = d; }
  return x;
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
MatmulTMA(const __grid_constant__ CUtensorMap ga_map,
    const __grid_constant__ CUtensorMap gb_map,
    int  m_size,
    half_t *a_ptr,
    half_t *b_ptr,
    half_t *c_ptr) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) { prefetch_tensor_map(&ga_map); prefetch_tensor_map(&gb_map); }
  int offset_m = ((int)blockIdx.x * 128);
  int offset_n = ((int)blockIdx.y * 64);
  // matmul_v0.py:47  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 12288, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  unsigned phase = 0u;
  // matmul_v0.py:49  register_tensor
  float acc[64];
  #pragma unroll
  for (int r = 0; r < 64; ++r) acc[r] = 0.0f;
  #pragma unroll 1
  for (int offset_k = 0; offset_k < 520; offset_k += 32) {
    // matmul_v0.py:52  thread 0
    if (warp == 0 && elect_one()) {
      // matmul_v0.py:53  arrive_and_expect_tx
      mbarrier_arrive_expect_tx(smem + 12288, 12288u);
      // matmul_v0.py:54  global_to_shared
      tma_load_2d(smem + 0, &ga_map, offset_k, offset_m, smem + 12288);
      // matmul_v0.py:57  global_to_shared
      tma_load_2d(smem + 8192, &gb_map, offset_k, offset_n, smem + 12288);
    }
    __syncwarp();
    // matmul_v0.py:60  wait
    mbarrier_wait(smem + 12288, phase);
    phase = (phase ^ 1u);
    // matmul_v0.py:63  load_shared
    half_t a[32];
    const unsigned tile = smem + 0;
    const unsigned t = threadIdx.x;
    const unsigned named = (((t / 32u) * 32u) + ((t % 8u) * 4u));
    const unsigned first = (((t / 8u) % 4u) * 2u);
    const unsigned at_row = named / 4 % 8 + named / 32 % 4 * 16 + first / 2 % 2 * 8 + first / 16 % 2 * 64;
    const unsigned at_column = named % 4 * 2 + first % 2 + first / 4 % 4 * 8;
    const unsigned at = (((at_row * 32u) + at_column) * 2u);
    const unsigned swizzled = (at ^ (((at >> 7u) & 3u) << 4u));
    load_matrices_4(a, tile + swizzled);
    load_matrices_4(a + 8, tile + (swizzled ^ 32));
    load_matrices_4(a + 16, tile + swizzled + 4096);
    load_matrices_4(a + 24, tile + (swizzled ^ 32) + 4096);
    // matmul_v0.py:64  load_shared
    half_t b[64];
    const unsigned tile_1 = smem + 8192;
    const unsigned t_1 = threadIdx.x;
    const unsigned named_1 = (((t_1 / 32u) * 32u) + ((t_1 % 8u) * 4u));
    const unsigned first_1 = (((t_1 / 8u) % 4u) * 2u);
    const unsigned at_row_1 = named_1 % 4 * 2 + first_1 % 2 + first_1 / 2 % 2 * 8 + first_1 / 32 % 2 * 16;
    const unsigned at_column_1 = named_1 / 4 % 8 + first_1 / 4 % 8 * 8;
    const unsigned at_1 = (((at_column_1 * 32u) + at_row_1) * 2u);
    const unsigned swizzled_1 = (at_1 ^ (((at_1 >> 7u) & 3u) << 4u));
    load_matrices_4(b, tile_1 + swizzled_1);
    load_matrices_4(b + 8, tile_1 + swizzled_1 + 1024);
    load_matrices_4(b + 16, tile_1 + swizzled_1 + 2048);
    load_matrices_4(b + 24, tile_1 + swizzled_1 + 3072);
    load_matrices_4(b + 32, tile_1 + (swizzled_1 ^ 32));
    load_matrices_4(b + 40, tile_1 + (swizzled_1 ^ 32) + 1024);
    load_matrices_4(b + 48, tile_1 + (swizzled_1 ^ 32) + 2048);
    load_matrices_4(b + 56, tile_1 + (swizzled_1 ^ 32) + 3072);
    // matmul_v0.py:65  dot
    #pragma unroll
    for (int k = 0; k < 2; ++k)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      mma_m16n8k16_f32_f16(acc + i * 32 + j * 4, a + i * 16 + k * 8, b + k * 32 + j * 4);
    // matmul_v0.py:66  sync
    __syncthreads();
  }
  // matmul_v0.py:68  cast
  half_t casted_acc[64];
  #pragma unroll
  for (int r = 0; r < 64; ++r) casted_acc[r] = to_half(acc[r]);
  // matmul_v0.py:69  store_global
  const int first_0 = offset_m + threadIdx.x / 4 % 8 + threadIdx.x / 32 % 4 * 16;
  const int first_1_1 = offset_n + threadIdx.x % 4 * 2;
  half_t *const base = c_ptr + (first_0) * 904ll + (first_1_1);
  if (((((offset_n % 8) == 0) & ((offset_m + 128) <= m_size)) & ((offset_n + 64) <= 904)) && (unsigned long long)c_ptr % 16 == 0) {
    #pragma unroll
    for (int quad = 0; quad < 8; ++quad) {
      const int r = quad / 2 * 16 + quad % 2 * 2;  // four blocks of 8 columns
      const uint4 row = transpose_quad(make_uint4(pack(casted_acc[r + 0], casted_acc[r + 1]), pack(casted_acc[r + 4], casted_acc[r + 5]), pack(casted_acc[r + 8], casted_acc[r + 9]), pack(casted_acc[r + 12], casted_acc[r + 13])));
      *(uint4 *)(base + (r / 2 % 2 * 8 + r / 32 % 2 * 64) * 904ll + (r % 2 + r / 4 % 8 * 8) + threadIdx.x % 4 * 6) = row;
    }
  }
  else
  {
    #pragma unroll
    for (int r = 0; r < 64; ++r)
      if (first_0 + r / 2 % 2 * 8 + r / 32 % 2 * 64 < m_size && first_1_1 + r % 2 + r / 4 % 8 * 8 < 904) base[(r / 2 % 2 * 8 + r / 32 % 2 * 64) * 904ll + (r % 2 + r / 4 % 8 * 8)] = casted_acc[r];
  }
}
