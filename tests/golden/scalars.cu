typedef unsigned short half_t;  /* the bits of a 16-bit float */
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(count) : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 1)
Scalars(int  n,
    half_t *c_ptr) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  // test_golden.py:28  register_tensor
  unsigned counts[3];
  #pragma unroll
  for (int r = 0; r < 3; ++r) counts[r] = 5u;
  // test_golden.py:29  register_tensor
  unsigned bits = 0x0;  // one bit an element
  // test_golden.py:30  alloc
  if (threadIdx.x == 0) {
    mbarrier_init(smem + 0, 32);
    mbarrier_init(smem + 8, 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  int total = ((int)blockIdx.x - n);
  int i = 0;
  while ((i < n)) {
    const unsigned chosen = (((i % 3) == 0 ? counts[0] : (i % 3) == 1 ? counts[1] : counts[2]) + 1u);
    counts[0] = (i % 3) == 0 ? chosen : counts[0];
    counts[1] = (i % 3) == 1 ? chosen : counts[1];
    counts[2] = (i % 3) == 2 ? chosen : counts[2];
    bits = (bits & ~(1u << (i % 3))) | ((unsigned)(unsigned)((((i % 3) == 0 ? counts[0] : (i % 3) == 1 ? counts[1] : counts[2]) > 7u) ? 1 : 0) << (i % 3));
    if ((floor_div(total, 3) == i)) {
      break;
    }
    else {
      if (((floor_mod(total, 3) != 0) && (!(n > 4)))) {
        i = (i + 2);
        continue;
      }
    }
    i = ((i + 1) > (total >> 1) ? (i + 1) : (total >> 1));
  }
  // test_golden.py:42  warps 4-7
  if (warp >= 4 && warp <= 7) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    // test_golden.py:43  sync
    asm volatile("bar.sync 1, 128;" ::: "memory");
  }
  // test_golden.py:44  warps 0-3
  else if (warp <= 3) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 232;");
    // test_golden.py:45  warp 2
    if (warp == 2) {
      // test_golden.py:46  arrive
      mbarrier_arrive(smem + ((bits >> 0 & 1) * 8u), 1);
    }
    // test_golden.py:47  sync
    asm volatile("bar.sync 2, 128;" ::: "memory");
  }
}
