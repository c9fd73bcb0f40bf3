# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: what TMA cannot address is refused, the rest reaches the driver in order."""

import ctypes

import pytest

from tilus.dtypes import float16, float32, int8
from tilus.errors import ArgumentError, DeviceError
from tilus.layout import Swizzle
from tilus.runtime import Tiling, encode_tensor_map, tensor_map

GOOD = {
    "address": 0x10000,
    "dtype": float16,
    "shape": (100, 64),
    "strides": (128, 2),
    "box": (64, 32),
    "swizzle": Swizzle.B64,
    "argument": "a_ptr",
}


def encode(*arguments, **named):
    return encode_tensor_map(Tiling(*arguments, **named))


@pytest.fixture
def calls(fake, monkeypatch):
    """The arguments of each call of the driver's encoder, arrays as lists."""
    made = []

    def encode(*arguments):
        ctypes.memset(arguments[0], len(made) + 1, 128)
        made.append([list(a) if isinstance(a, ctypes.Array) else int(a) for a in arguments])
        return 0

    monkeypatch.setattr(tensor_map, "_encoder", lambda: encode)
    encode_tensor_map.cache_clear()
    yield made
    encode_tensor_map.cache_clear()


def test_the_driver_gets_the_fastest_dimension_first(fake, calls):
    made = encode(**GOOD)
    ((address, kind, rank, start, shape, strides, box, steps, *modes),) = calls
    assert address == made.address and address % 64 == 0
    assert kind == fake.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    assert (rank, start, shape, strides, box) == (2, 0x10000, [64, 100], [128], [32, 64])
    assert steps == [1, 1]
    assert modes == [
        fake.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        fake.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
        fake.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        fake.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    ]
    assert bytes(made) == b"\x01" * 128


def test_one_and_three_dimensions(fake, calls):
    encode(4096, float32, (8,), (4,), (8,), Swizzle.NONE)
    encode(4096, float16, (2, 3, 8), (96, 32, 2), (1, 3, 8), Swizzle.NONE)
    assert [call[4:7] for call in calls] == [[[8], [], [8]], [[8, 3, 2], [32, 96], [8, 3, 1]]]


def test_an_extent_of_zero_becomes_one(calls):
    encode(**{**GOOD, "shape": (100, 0)})
    assert calls[0][4] == [1, 100]


def test_equal_tensors_share_a_map_and_others_do_not(calls):
    first = encode(**GOOD)
    assert encode(**GOOD) is first
    changes = {
        "address": 0x10010,
        "dtype": tensor_map.DType("i", "i", 16, "i2", "short", "s16", "UINT16"),
        "shape": (101, 64),
        "strides": (144, 2),
        "box": (64, 16),
        "swizzle": Swizzle.B128,
    }
    others = [encode(**{**GOOD, key: value}) for key, value in changes.items()]
    assert len({id(m) for m in [first, *others]}) == len(calls) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 0x10008}, "^a_ptr must be at an address that is a multiple of 16.*8 over"),
        ({"strides": (130, 2)}, "^a_ptr must be of a pitch.*16 bytes.*got 130 bytes.*to 144 bytes"),
        ({"strides": (0, 2)}, "^a_ptr must be of a pitch that is a positive.*got 0 bytes"),
        ({"strides": (-128, 2)}, "^a_ptr must be of a pitch that is a positive.*got -128 bytes"),
        ({"strides": (1 << 40, 2)}, r"below 2\^40"),
        ({"shape": (1, 64), "strides": (10, 2)}, "got 10 bytes from row to row.*shape .1, 64"),
        ({"strides": (2, 200)}, "^a_ptr must be contiguous in its last dimension .a stride of 2"),
        ({"shape": (1 << 33, 64)}, r"1 to 5 dimensions of at most 2\^32"),
        ({"dtype": int8}, "^a_ptr must be of a type that TMA knows, got int8"),
        ({"box": (257, 32)}, "^TMA box of a_ptr must be of 2 dimensions of 1 to 256"),
        ({"box": (0, 32)}, "of 1 to 256 elements, got .0, 32"),
        ({"box": (32,)}, "^TMA box of a_ptr must be of 2 dimensions"),
        ({"box": (64, 64)}, "multiple of 16 bytes and at most 64, the swizzle's width, got 128"),
        ({"box": (64, 4)}, "of rows of a multiple of 16 bytes.*got 8 bytes"),
    ],
)
def test_what_tma_cannot_address_is_refused(calls, change, message):
    for _ in range(2):  # a refusal is not cached as a result
        with pytest.raises(ArgumentError, match=message):
            encode(**{**GOOD, **change})
    assert calls == []


def test_without_a_swizzle_rows_may_be_wider(calls):
    encode(**{**GOOD, "box": (64, 256), "swizzle": Swizzle.NONE})
    assert len(calls) == 1


def test_a_map_belongs_to_numbers_and_gpu(fake, calls):
    tiling = Tiling(**GOOD)
    made = encode_tensor_map(tiling, 0)
    assert encode_tensor_map(Tiling(**GOOD), 0) is made
    assert encode_tensor_map(tiling, 1) is not made and len(calls) == 2
    assert fake.calls.count("cuCtxPushCurrent") == 2 and fake.current == [0]


def test_a_failure_of_the_driver_is_a_device_error(fake, calls, monkeypatch):
    monkeypatch.setattr(tensor_map, "_encoder", lambda: lambda *arguments: 1)
    with pytest.raises(DeviceError, match="encoding a tensor map: CUDA_ERROR_INVALID_VALUE"):
        encode(**GOOD)
