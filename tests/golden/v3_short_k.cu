typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}" :: "r"(barrier), "r"(parity) : "memory");
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

/* A K-major operand: `stride` bytes lead from one group of eight rows to the next; `type` names
   the swizzle. */
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned stride,
                                                              unsigned type) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16
       | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)type << 62;
}

/* d[64][128] = a[64][16] * b[16][128] (+ d where scale_d). */
__device__ __forceinline__ void wgmma_m64n128k16(float *d, unsigned long long a,
                                                 unsigned long long b, int scale_d) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "%64, %65, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
               : "l"(a), "l"(b), "r"(scale_d));
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(count) : "memory");
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

extern "C" __global__ void __launch_bounds__(160)
MatmulWGMMAV3(const __grid_constant__ CUtensorMap ga_map,
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
  int offset_n = ((int)blockIdx.y * 128);
  // matmul_v3.py:48  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 98304, 1);
    mbarrier_init(smem + 98312, 1);
    mbarrier_init(smem + 98320, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  // matmul_v3.py:50  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 98328, 128);
    mbarrier_init(smem + 98336, 128);
    mbarrier_init(smem + 98344, 128);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  // matmul_v3.py:52  warp 4
  if (warp == 4) {
    // matmul_v3.py:53  register_tensor
    unsigned phases = 0x7;  // one bit an element
    int stage = 0;
    #pragma unroll
    for (int turn = 0; turn < 1; turn += 1) {
      int offset_k = (turn * 64);
      stage = (turn % 3);
      // matmul_v3.py:58  wait
      mbarrier_wait(smem + ((stage * 8) + 98328), (phases >> stage & 1));
      phases ^= 1u << stage;
      // matmul_v3.py:60  thread 128
      if (elect_one()) {
        // matmul_v3.py:61  arrive_and_expect_tx
        mbarrier_arrive_expect_tx(smem + ((stage * 8) + 98304), 32768u);
        // matmul_v3.py:65  global_to_shared
        tma_load_2d(smem + ((stage * 8192) * 2), &ga_map, offset_k, offset_m, smem + ((stage * 8) + 98304));
        // matmul_v3.py:71  global_to_shared
        tma_load_2d(smem + (((stage * 8192) * 2) + 49152), &gb_map, offset_k, offset_n, smem + ((stage * 8) + 98304));
      }
      __syncwarp();
    }
    stage = 1;
    stage = 0;
    #pragma unroll 1
    for (int i = 0; i < 1; i += 1) {
      // matmul_v3.py:83  wait
      mbarrier_wait(smem + ((stage * 8) + 98328), (phases >> stage & 1));
      phases ^= 1u << stage;
      stage = ((stage + 1) % 3);
    }
  }
  // matmul_v3.py:87  warps 0-3
  else if (warp <= 3) {
    // matmul_v3.py:88  register_tensor
    unsigned phases_1 = 0x0;  // one bit an element
    bool acc_live = false;
    // matmul_v3.py:91  register_tensor
    float acc[128];
    int stage_1 = 0;
    #pragma unroll
    for (int turn_1 = 0; turn_1 < 1; turn_1 += 1) {
      int i_1 = (turn_1 * 64);
      stage_1 = (turn_1 % 3);
      // matmul_v3.py:94  wait
      mbarrier_wait(smem + ((stage_1 * 8) + 98304), (phases_1 >> stage_1 & 1));
      phases_1 ^= 1u << stage_1;
      // matmul_v3.py:96  fence
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      // matmul_v3.py:97  mma
      const unsigned long long a_desc = wgmma_descriptor(smem + ((stage_1 * 8192) * 2), 1024, 1);
      const unsigned long long b_desc = wgmma_descriptor(smem + (((stage_1 * 8192) * 2) + 49152), 1024, 1);
      wgmma_m64n128k16(acc, a_desc + 0, b_desc + 0, acc_live);
      wgmma_m64n128k16(acc, a_desc + 2, b_desc + 2, 1);
      wgmma_m64n128k16(acc, a_desc + 4, b_desc + 4, 1);
      wgmma_m64n128k16(acc, a_desc + 6, b_desc + 6, 1);
      wgmma_m64n128k16(acc + 64, a_desc + 512, b_desc + 0, acc_live);
      wgmma_m64n128k16(acc + 64, a_desc + 514, b_desc + 2, 1);
      wgmma_m64n128k16(acc + 64, a_desc + 516, b_desc + 4, 1);
      wgmma_m64n128k16(acc + 64, a_desc + 518, b_desc + 6, 1);
      acc_live = true;
      // matmul_v3.py:98  commit_group
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      // matmul_v3.py:99  wait_group
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      // matmul_v3.py:100  arrive
      mbarrier_arrive(smem + ((stage_1 * 8) + 98328), 1);
    }
    stage_1 = 1;
    if ((!acc_live)) {
      // matmul_v3.py:103  fill
      #pragma unroll
      for (int r = 0; r < 128; ++r) acc[r] = 0.0f;
      acc_live = true;
    }
    #pragma unroll
    for (int r = 0; r < 128; ++r) asm volatile("" : "+f"(acc[r]) :: "memory");
    // matmul_v3.py:103  cast
    half_t casted_acc[128];
    #pragma unroll
    for (int r = 0; r < 128; ++r) casted_acc[r] = to_half(acc[r]);
    // matmul_v3.py:104  store_global
    const int first_0 = offset_m + threadIdx.x / 4 % 8 + threadIdx.x / 32 % 4 * 16;
    const int first_1 = offset_n + threadIdx.x % 4 * 2;
    half_t *const base = c_ptr + (first_0) * 904ll + (first_1);
    if (((((offset_n % 8) == 0) & ((offset_m + 128) <= m_size)) & ((offset_n + 128) <= 904)) && (unsigned long long)c_ptr % 16 == 0) {
      #pragma unroll
      for (int quad = 0; quad < 16; ++quad) {
        const int r = quad / 2 * 16 + quad % 2 * 2;  // four blocks of 8 columns
        const uint4 row = transpose_quad(make_uint4(pack(casted_acc[r + 0], casted_acc[r + 1]), pack(casted_acc[r + 4], casted_acc[r + 5]), pack(casted_acc[r + 8], casted_acc[r + 9]), pack(casted_acc[r + 12], casted_acc[r + 13])));
        *(uint4 *)(base + (r / 2 % 2 * 8 + r / 64 % 2 * 64) * 904ll + (r % 2 + r / 4 % 16 * 8) + threadIdx.x % 4 * 6) = row;
      }
    }
    else
    {
      #pragma unroll
      for (int r = 0; r < 128; ++r)
        if (first_0 + r / 2 % 2 * 8 + r / 64 % 2 * 64 < m_size && first_1 + r % 2 + r / 4 % 16 * 8 < 904) base[(r / 2 % 2 * 8 + r / 64 % 2 * 64) * 904ll + (r % 2 + r / 4 % 16 * 8)] = casted_acc[r];
    }
  }
}
