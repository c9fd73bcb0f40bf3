# SPDX-License-Identifier: Apache-2.0
"""TMA does with our tensor maps what the layouts say: boxes, zero fill, swizzles, byte for byte."""

import numpy as np
import pytest

from tilus import nvrtc
from tilus.dtypes import float16, float32, int32, uint64
from tilus.layout import SharedLayout, Swizzle
from tilus.runtime import DeviceArray, Launch, Tiling, encode_tensor_map, load

#: Loads one box to shared memory and writes its bytes, as they lie there, to ``out``.
SOURCE = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void box(const __grid_constant__ Map map, unsigned char* out,
                               int x, int y, int nbytes) {
  extern __shared__ __align__(1024) unsigned char tile[];
  unsigned dst = __cvta_generic_to_shared(tile), mbar = dst + nbytes;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(mbar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("fence.proxy.async;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(mbar), "r"(nbytes) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 :: "r"(dst), "l"(&map), "r"(mbar), "r"(x), "r"(y) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
               " @!p bra again; }" :: "r"(mbar) : "memory");
  for (int i = threadIdx.x; i < nbytes; i += blockDim.x) out[i] = tile[i];
}
"""


def load_box(matrix, box, swizzle, x, y):
    """Return the elements of one box of a matrix in the order in which TMA leaves them."""
    there = DeviceArray.from_numpy(matrix)
    nbytes = box[0] * box[1] * matrix.itemsize
    out = DeviceArray((box[0] * box[1],), there.dtype)
    out.fill_bytes(0xFF)
    array = there.described
    arguments = (array.address, array.dtype, array.shape, array.strides, box, swizzle)
    function = load(nvrtc.compile(SOURCE, name="box").code, "box", nbytes + 16)
    run = Launch(function, 1, [uint64, int32, int32, int32], threads=128)
    run((1, 1, 1), [encode_tensor_map(Tiling(*arguments))], [out.described.address, x, y, nbytes])
    return out.to_numpy()


@pytest.mark.parametrize("swizzle", list(Swizzle), ids=lambda s: s.name)
@pytest.mark.parametrize(("x", "y"), [(0, 0), (16, 24), (-8, -3), (88, 40)])
def test_elements_lie_where_the_layout_says_and_outside_is_zero(gpu, swizzle, x, y):
    rows, columns = 32, (swizzle or 64) // 2
    matrix = np.arange(50 * 96, dtype=np.float16).reshape(50, 96)
    got = load_box(matrix, (rows, columns), swizzle, x, y)
    padded = np.pad(matrix, 128)[128 + y : 128 + y + rows, 128 + x : 128 + x + columns]
    expected = np.zeros_like(got)
    expected[SharedLayout((rows, columns), 2, swizzle).offsets()] = padded
    assert np.array_equal(got, expected)


def test_four_byte_elements(gpu):
    matrix = np.arange(40 * 36, dtype=np.float32).reshape(40, 36)
    got = load_box(matrix, (8, 32), Swizzle.B128, 8, 30)
    expected = np.zeros_like(got)
    padded = np.pad(matrix, 64)[64 + 30 : 64 + 38, 64 + 8 : 64 + 40]
    expected[SharedLayout((8, 32), 4, Swizzle.B128).offsets()] = padded
    assert np.array_equal(got, expected)


def test_a_tensor_without_elements_has_a_map(gpu):
    made = encode_tensor_map(Tiling(4096, float16, (0, 64), (128, 2), (64, 64), Swizzle.B128))
    assert any(bytes(made))
    other = encode_tensor_map(Tiling(4096, float32, (8, 64), (256, 4), (8, 32), Swizzle.B128))
    assert bytes(made) != bytes(other)
