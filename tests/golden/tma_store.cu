typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

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

/* True in exactly one thread of a converged warp. */
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected;
}

template <class T> __device__ __forceinline__ void store_16(const T *x, unsigned address) {
  unsigned w[4];
  memcpy(w, x, 16);
  asm volatile("st.shared.v4.b32 [%4], {%0, %1, %2, %3};"
               :: "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(address) : "memory");
}

__device__ __forceinline__ void tma_store_2d(const CUtensorMap *map, int column, int row,
                                             unsigned src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(map), "r"(column), "r"(row), "r"(src) : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
Scale(const __grid_constant__ CUtensorMap gy_map,
    int  m,
    int  n,
    float  factor,
    float *x_ptr,
    float *y_ptr) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) { prefetch_tensor_map(&gy_map); }
  int row_0 = ((int)blockIdx.x * 16);
  #pragma unroll 1
  for (int column = 0; column < n; column += 64) {
    // tma_store.py:36  load_global
    float x[8];
    const int first_0 = row_0 + threadIdx.x / 16 % 8;
    const int first_1 = column + threadIdx.x % 16 * 4;
    float *const base = x_ptr + (first_0) * (long long)n + (first_1);
    if ((((floor_mod((long long)n, 4ll) == 0ll) & ((column % 4) == 0)) & ((floor_mod(n, 4) == 0) | ((column + 64) <= n))) && (unsigned long long)x_ptr % 16 == 0) {
      #pragma unroll
      for (int r = 0; r < 8; r += 4) {
        vector<float, 4> part = {};
        if (first_0 + r / 4 % 2 * 8 < m && first_1 + r % 4 < n) part = *(const vector<float, 4> *)(base + (r / 4 % 2 * 8) * (long long)n + (r % 4));
        #pragma unroll
        for (int v = 0; v < 4; ++v) x[r + v] = part.at[v];
      }
    }
    else
    {
      #pragma unroll
      for (int r = 0; r < 8; ++r)
        x[r] = first_0 + r / 4 % 2 * 8 < m && first_1 + r % 4 < n ? base[(r / 4 % 2 * 8) * (long long)n + (r % 4)] : 0;
    }
    // tma_store.py:38  thread 0
    if (warp == 0 && elect_one()) {
      // tma_store.py:39  wait_group
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncwarp();
    // tma_store.py:40  sync
    __syncthreads();
    // tma_store.py:41  operate
    float operate[8];
    const float scalar = factor;
    #pragma unroll
    for (int r = 0; r < 8; ++r) operate[r] = (x[r] * scalar);
    // tma_store.py:41  store_shared
    const unsigned tile = smem + 0;
    const unsigned t = threadIdx.x;
    const unsigned at_row = t / 16 % 8;
    const unsigned at_column = t % 16 * 4;
    const unsigned at = ((((at_row + ((at_column / 32u) * 16u)) * 32u) + (at_column % 32u)) * 4u);
    const unsigned swizzled = (at ^ (((at >> 7u) & 7u) << 4u));
    store_16(operate, tile + swizzled);
    store_16(operate + 4, tile + swizzled + 1024);
    // tma_store.py:42  proxy_async
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    // tma_store.py:43  sync
    __syncthreads();
    // tma_store.py:45  thread 0
    if (warp == 0 && elect_one()) {
      // tma_store.py:46  shared_to_global
      tma_store_2d(&gy_map, column, row_0, smem + 0);
      tma_store_2d(&gy_map, (column + 32), row_0, smem + 2048);
      // tma_store.py:47  commit_group
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncwarp();
  }
  // tma_store.py:49  thread 0
  if (warp == 0 && elect_one()) {
    // tma_store.py:50  wait_group
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  __syncwarp();
}
