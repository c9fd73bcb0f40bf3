typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_wait_cluster(unsigned barrier, unsigned parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
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

__device__ __forceinline__ void tma_load_2d_multicast(unsigned dst, const CUtensorMap *map, int column,
                                                      int row, unsigned barrier,
                                                      unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(dst), "l"(map), "r"(column), "r"(row), "r"(barrier),
                  "h"(mask) : "memory");
}

__device__ __forceinline__ unsigned cluster_ctarank() {
  unsigned value;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
  return value;
}

__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}" :: "r"(barrier), "r"(parity) : "memory");
}

template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}

/* Neighbours that memory gives and takes at once. */
template <class T, int n> struct alignas(n * sizeof(T)) vector { T at[n]; };

template <class T> __device__ __forceinline__ void load_16(T *x, unsigned address) {
  unsigned w[4];
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address) : "memory");
  memcpy(x, w, 16);
}

/* Arrives at the barrier that block `rank` of the cluster has where this block has `barrier`. */
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier, unsigned rank,
                                                       unsigned count) {
  asm volatile("{\n"
               ".reg .b32 there;\n"
               "mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there], %2;\n"
               "}" :: "r"(barrier), "r"(rank), "r"(count) : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

extern "C" __global__ void __launch_bounds__(160)
MaskImages(const __grid_constant__ CUtensorMap gm_map,
    int  images,
    int  m,
    int  n,
    float *x_ptr,
    float *mask_ptr,
    float *y_ptr) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) { prefetch_tensor_map(&gm_map); }
  int image = (int)blockIdx.x;
  int column = ((int)blockIdx.y * 64);
  // cluster_multicast.py:50  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 16384, 1);
    mbarrier_init(smem + 16392, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  // cluster_multicast.py:51  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 16400, 2);
    mbarrier_init(smem + 16408, 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  // cluster_multicast.py:52  sync
  cluster_sync();
  // cluster_multicast.py:54  warp 4
  if (warp == 4) {
    int stage = 0;
    unsigned phase = 1u;
    #pragma unroll 1
    for (int row_0 = 0; row_0 < m; row_0 += 32) {
      // cluster_multicast.py:58  wait
      mbarrier_wait_cluster(smem + ((stage * 8) + 16400), phase);
      // cluster_multicast.py:59  thread 128
      if (elect_one()) {
        // cluster_multicast.py:60  arrive_and_expect_tx
        mbarrier_arrive_expect_tx(smem + ((stage * 8) + 16384), 8192u);
        // cluster_multicast.py:61  global_to_shared
        tma_load_2d_multicast(smem + (((stage * 2048) + ((int)cluster_ctarank() * 1024)) * 4), &gm_map, column, (row_0 + ((int)cluster_ctarank() * 16)), smem + ((stage * 8) + 16384), (unsigned short)3);
        tma_load_2d_multicast(smem + ((((stage * 2048) + ((int)cluster_ctarank() * 1024)) * 4) + 2048), &gm_map, (column + 32), (row_0 + ((int)cluster_ctarank() * 16)), smem + ((stage * 8) + 16384), (unsigned short)3);
      }
      __syncwarp();
      stage = ((stage + 1) % 2);
      phase = (phase ^ (unsigned)(stage == 0));
    }
  }
  // cluster_multicast.py:71  warps 0-3
  else if (warp <= 3) {
    int stage_1 = 0;
    unsigned phase_1 = 0u;
    #pragma unroll 1
    for (int row_0_1 = 0; row_0_1 < m; row_0_1 += 32) {
      // cluster_multicast.py:75  wait
      mbarrier_wait(smem + ((stage_1 * 8) + 16384), phase_1);
      // cluster_multicast.py:78  load_global
      float x[8];
      const int first_0 = image + 0;
      const int first_1 = row_0_1 + threadIdx.x / 16 % 8;
      const int first_2 = column + threadIdx.x % 16 * 4;
      float *const base = x_ptr + (first_0) * ((long long)n * (long long)m) + (first_1) * (long long)n + (first_2);
      if (((((floor_mod(((long long)n * (long long)m), 4ll) == 0ll) & (floor_mod((long long)n, 4ll) == 0ll)) & ((column % 4) == 0)) & ((floor_mod(n, 4) == 0) | ((column + 64) <= n))) && (unsigned long long)x_ptr % 16 == 0) {
        #pragma unroll
        for (int r = 0; r < 8; r += 4) {
          vector<float, 4> part = {};
          if (first_0 + 0 < images && first_1 + r / 4 % 2 * 8 < m && first_2 + r % 4 < n) part = *(const vector<float, 4> *)(base + (0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4));
          #pragma unroll
          for (int v = 0; v < 4; ++v) x[r + v] = part.at[v];
        }
      }
      else
      {
        #pragma unroll
        for (int r = 0; r < 8; ++r)
          x[r] = first_0 + 0 < images && first_1 + r / 4 % 2 * 8 < m && first_2 + r % 4 < n ? base[(0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)] : 0;
      }
      // cluster_multicast.py:79  load_shared
      float load_shared[8];
      const unsigned tile = smem + ((stage_1 * 2048) * 4);
      const unsigned t = threadIdx.x;
      const unsigned at_row = t / 16 % 8;
      const unsigned at_column = t % 16 * 4;
      const unsigned at = ((((at_row + ((at_column / 32u) * 16u)) * 32u) + (at_column % 32u)) * 4u);
      const unsigned swizzled = (at ^ (((at >> 7u) & 7u) << 4u));
      load_16(load_shared, tile + swizzled);
      load_16(load_shared + 4, tile + swizzled + 1024);
      // cluster_multicast.py:79  operate
      float y[8];
      #pragma unroll
      for (int r = 0; r < 8; ++r) y[r] = (x[r] * load_shared[r]);
      // cluster_multicast.py:80  store_global
      const int first_0_1 = image + 0;
      const int first_1_1 = row_0_1 + threadIdx.x / 16 % 8;
      const int first_2_1 = column + threadIdx.x % 16 * 4;
      float *const base_1 = y_ptr + (first_0_1) * ((long long)n * (long long)m) + (first_1_1) * (long long)n + (first_2_1);
      if (((((floor_mod(((long long)n * (long long)m), 4ll) == 0ll) & (floor_mod((long long)n, 4ll) == 0ll)) & ((column % 4) == 0)) & ((floor_mod(n, 4) == 0) | ((column + 64) <= n))) && (unsigned long long)y_ptr % 16 == 0) {
        #pragma unroll
        for (int r = 0; r < 8; r += 4) {
          vector<float, 4> part;
          #pragma unroll
          for (int v = 0; v < 4; ++v) part.at[v] = y[r + v];
          if (first_0_1 + 0 < images && first_1_1 + r / 4 % 2 * 8 < m && first_2_1 + r % 4 < n) *(vector<float, 4> *)(base_1 + (0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)) = part;
        }
      }
      else
      {
        #pragma unroll
        for (int r = 0; r < 8; ++r)
          if (first_0_1 + 0 < images && first_1_1 + r / 4 % 2 * 8 < m && first_2_1 + r % 4 < n) base_1[(0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)] = y[r];
      }
      // cluster_multicast.py:78  load_global
      float x_1[8];
      const int first_0_2 = image + 0;
      const int first_1_2 = (row_0_1 + 16) + threadIdx.x / 16 % 8;
      const int first_2_2 = column + threadIdx.x % 16 * 4;
      float *const base_2 = x_ptr + (first_0_2) * ((long long)n * (long long)m) + (first_1_2) * (long long)n + (first_2_2);
      if (((((floor_mod(((long long)n * (long long)m), 4ll) == 0ll) & (floor_mod((long long)n, 4ll) == 0ll)) & ((column % 4) == 0)) & ((floor_mod(n, 4) == 0) | ((column + 64) <= n))) && (unsigned long long)x_ptr % 16 == 0) {
        #pragma unroll
        for (int r = 0; r < 8; r += 4) {
          vector<float, 4> part = {};
          if (first_0_2 + 0 < images && first_1_2 + r / 4 % 2 * 8 < m && first_2_2 + r % 4 < n) part = *(const vector<float, 4> *)(base_2 + (0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4));
          #pragma unroll
          for (int v = 0; v < 4; ++v) x_1[r + v] = part.at[v];
        }
      }
      else
      {
        #pragma unroll
        for (int r = 0; r < 8; ++r)
          x_1[r] = first_0_2 + 0 < images && first_1_2 + r / 4 % 2 * 8 < m && first_2_2 + r % 4 < n ? base_2[(0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)] : 0;
      }
      // cluster_multicast.py:79  load_shared
      float load_shared_1[8];
      const unsigned tile_1 = smem + (((stage_1 * 2048) + 1024) * 4);
      const unsigned t_1 = threadIdx.x;
      const unsigned at_row_1 = t_1 / 16 % 8;
      const unsigned at_column_1 = t_1 % 16 * 4;
      const unsigned at_1 = ((((at_row_1 + ((at_column_1 / 32u) * 16u)) * 32u) + (at_column_1 % 32u)) * 4u);
      const unsigned swizzled_1 = (at_1 ^ (((at_1 >> 7u) & 7u) << 4u));
      load_16(load_shared_1, tile_1 + swizzled_1);
      load_16(load_shared_1 + 4, tile_1 + swizzled_1 + 1024);
      // cluster_multicast.py:79  operate
      float y_1[8];
      #pragma unroll
      for (int r = 0; r < 8; ++r) y_1[r] = (x_1[r] * load_shared_1[r]);
      // cluster_multicast.py:80  store_global
      const int first_0_3 = image + 0;
      const int first_1_3 = (row_0_1 + 16) + threadIdx.x / 16 % 8;
      const int first_2_3 = column + threadIdx.x % 16 * 4;
      float *const base_3 = y_ptr + (first_0_3) * ((long long)n * (long long)m) + (first_1_3) * (long long)n + (first_2_3);
      if (((((floor_mod(((long long)n * (long long)m), 4ll) == 0ll) & (floor_mod((long long)n, 4ll) == 0ll)) & ((column % 4) == 0)) & ((floor_mod(n, 4) == 0) | ((column + 64) <= n))) && (unsigned long long)y_ptr % 16 == 0) {
        #pragma unroll
        for (int r = 0; r < 8; r += 4) {
          vector<float, 4> part;
          #pragma unroll
          for (int v = 0; v < 4; ++v) part.at[v] = y_1[r + v];
          if (first_0_3 + 0 < images && first_1_3 + r / 4 % 2 * 8 < m && first_2_3 + r % 4 < n) *(vector<float, 4> *)(base_3 + (0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)) = part;
        }
      }
      else
      {
        #pragma unroll
        for (int r = 0; r < 8; ++r)
          if (first_0_3 + 0 < images && first_1_3 + r / 4 % 2 * 8 < m && first_2_3 + r % 4 < n) base_3[(0) * ((long long)n * (long long)m) + (r / 4 % 2 * 8) * (long long)n + (r % 4)] = y_1[r];
      }
      // cluster_multicast.py:81  sync
      asm volatile("bar.sync 1, 128;" ::: "memory");
      // cluster_multicast.py:82  thread 0
      if (warp == 0 && elect_one()) {
        // cluster_multicast.py:84  arrive_remote
        mbarrier_arrive_remote(smem + ((stage_1 * 8) + 16400), 0u, 1);
        // cluster_multicast.py:84  arrive_remote
        mbarrier_arrive_remote(smem + ((stage_1 * 8) + 16400), 1u, 1);
      }
      __syncwarp();
      stage_1 = ((stage_1 + 1) % 2);
      phase_1 = (phase_1 ^ (unsigned)(stage_1 == 0));
    }
  }
  // cluster_multicast.py:88  sync
  cluster_sync();
}
