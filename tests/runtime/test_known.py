# SPDX-License-Identifier: Apache-2.0
"""Calls that came before are launched at once, and never with what belongs to another call."""

import ctypes
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import kernels
from tests.runtime.fake_driver import argument
from tests.runtime.tensors import COPY, A, Alike, C, Device, Tensor, pair
from tests.test_script import Copy

from tilus import boolean, float16, float32, int32, launch
from tilus.errors import ArgumentError
from tilus.launch import Known
from tilus.launch.known import ARRAY, READ, TENSOR, written
from tilus.runtime import DeviceArray, describe


def test_a_call_like_one_before_is_not_bound_again(gpu, torch, bound):
    kernel = Copy()
    for _ in range(3):
        kernel(*pair())
    assert len(bound) == 1 and len(gpu.launches) == 3
    assert {made.arguments for made in gpu.launches} == {(A, 64, 64, 64, 64, A, C)}
    assert kernel.last_run == launch.Run("cuda:0", (1, 1, 1))


def test_a_parameter_may_have_any_name():
    def kernel(self, type: int32, describe: ~float16, copysign: float32): ...

    x = np.zeros(8, np.float16)
    key = written(kernel, READ, ARRAY)(3, x, copysign=-0.0)
    assert key == (int, 3, np.ndarray, describe(x, "x").key, float, -0.0, -1.0)


@kernels.script
def odd(self, _known: int32, _option: int32, _describe: float32, _found: int32, _: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.put(self.global_view(_, dtype=float32, shape=[1]), 0, _describe)


def test_calls_are_known_whatever_parameters_are_called(gpu, torch, bound):
    gpu.read, memory = None, DeviceArray((1,), float32)
    for _ in range(2):
        odd(1, 2, 3.0, 4, memory)
    assert len(bound) == 1 and len(gpu.launches) == 2


def test_what_finds_calls_is_written_once_for_all_schedules():
    one, other = (Known(Copy.__call__.__wrapped__) for _ in range(2))
    assert one.find.__func__ is other.find.__func__
    assert (one.find.__self__, other.find.__self__) == (one, other)


def test_names_and_places_are_the_same_call(gpu, torch, bound):
    kernel, (m, k, a, c) = Copy(), pair()
    kernel(m, k, a, c)
    kernel(m, c=c, a=a, k=k)
    kernel(np.int32(m), k, a, c)
    kernel(np.int32(m), k, a, c)
    assert len(bound) == 2  # a number of another type might mean something else
    assert len({made.arguments for made in gpu.launches}) == 1


def test_arrays_of_every_library_are_known(gpu, torch, bound):
    kernel, memory = Copy(), [DeviceArray((64, 64), float16) for _ in range(2)]
    for _ in range(2):
        kernel(64, 64, *memory)
    assert len(bound) == 1
    assert gpu.launches[0].arguments == gpu.launches[1].arguments


# What makes another call


def test_an_address_that_another_array_has_now_is_another_call(gpu, torch, bound):
    kernel = Copy()
    kernel(*pair(64, 64))
    kernel(*pair(64, 128))
    kernel(*pair(65, 64))
    kernel(*pair(64, 64, a=A + 64))
    kernel(*pair(64, 64))
    assert [made.arguments[:5] for made in gpu.launches] == [
        (A, 64, 64, 64, 64),
        (A, 128, 64, 64, 128),
        (A, 64, 65, 65, 64),
        (A + 64, 64, 64, 64, 64),
        (A, 64, 64, 64, 64),
    ]
    assert len(bound) == 4


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("address", A + 2, "a must be at an address"),
        ("shape", (64, 128), "a must be of shape"),
        ("strides", (1, 64), "a must be laid out"),
        ("dtype", "torch.float32", "a must be an array of float16"),
        ("device", Device("cuda", 1), "c must be on cuda:1"),
        ("device", Device("cpu", -1), "c must be on cpu"),
    ],
)
def test_what_a_tensor_has_become_is_seen(gpu, torch, field, value, message):
    kernel, (m, k, a, c) = Copy(), pair()
    kernel(m, k, a, c)
    setattr(a, field, value)
    with pytest.raises(ArgumentError, match=message):
        kernel(m, k, a, c)
    assert len(gpu.launches) == 1


def test_a_gradient_that_would_get_lost_is_seen(gpu, torch, bound):
    """Evaluation comes before training: what was known without gradients is another call then."""
    kernel, (m, k, a, c) = Copy(), pair()
    torch.is_grad_enabled = lambda: False
    kernel(m, k, a, c)
    a.requires_grad = True
    kernel(m, k, a, c)
    assert len(bound) == 1
    torch.is_grad_enabled = lambda: True
    for _ in range(2):
        with pytest.raises(ArgumentError, match="a must be a tensor that needs no gradient"):
            kernel(m, k, a, c)
    a.requires_grad = False
    kernel(m, k, a, c)
    assert len(gpu.launches) == 3


SIZES = st.sampled_from([64, 65, 128])
PLACES = st.sampled_from([A, A + 64, 2 * A])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(calls=st.lists(st.tuples(SIZES, SIZES.map(lambda k: k // 8 * 8), PLACES), max_size=30))
def test_no_sequence_of_calls_launches_with_what_is_stale(gpu, torch, calls):
    kernel, before = COPY, len(gpu.launches)
    for m, k, a in calls:
        kernel(*pair(m, k, a))
    wanted = [(a, k, m, m, k, a, C) for m, k, a in calls]
    assert [made.arguments for made in gpu.launches[before:]] == wanted


@kernels.script
def put(self, x: float32, flag: boolean, n: int, c: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    view = self.global_view(c, dtype=float32, shape=[n])
    self.put(view, 0, x)


def test_numbers_that_are_equal_and_not_the_same(gpu, torch):
    gpu.read = lambda made: argument(made, 0, ctypes.c_float)
    memory = DeviceArray((1,), float32)
    for x in (0.0, -0.0, 0, 0.0, math.nan, math.nan):
        put(x, True, 1, memory)
    written = [math.copysign(1, made.arguments) for made in gpu.launches[:4]]
    assert written == [1, -1, 1, 1]
    assert all(math.isnan(made.arguments) for made in gpu.launches[4:])
    for numbers, name in [((0.0, 1, 1), "flag"), ((0.0, True, 1.0), "n"), ((0.0, True, True), "n")]:
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            put(*numbers, memory)


class Changing:
    """A number that is another one each time."""

    value = 63

    def __index__(self):
        self.value += 1
        return self.value


@kernels.script
def count(self, x: int32, c: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.put(self.global_view(c, dtype=float32, shape=[1]), 0, x)


def test_a_number_that_changes_is_asked_for_each_time(gpu, torch):
    gpu.read = lambda made: argument(made, 0, ctypes.c_int32)
    x, c = Changing(), DeviceArray((1,), float32)
    for _ in range(3):
        count(x, c)
    assert [made.arguments for made in gpu.launches] == [64, 65, 66]


def test_what_only_looks_like_a_tensor_is_described_each_time(gpu, torch, bound):
    array = DeviceArray((64, 64), float16)

    class Other(Alike):
        __cuda_array_interface__ = array.__cuda_array_interface__

    kernel, c = Copy(), Tensor(C, (64, 64))
    for _ in range(2):
        kernel(64, 64, Other(A, (64, 64)), c)
    assert len(bound) == 2
    assert {made.arguments[-2] for made in gpu.launches} == {array.described.address}


# The keys themselves


def test_a_key_is_made_with_the_kernels_own_signature():
    def kernel(self, m: int32, x: float, a: ~float16, *, n: int = 3):
        """Have all sorts of parameters."""

    a = Tensor(A, (4, 4))
    read = written(kernel, READ, TENSOR)
    assert read(1, 2.0, a) == read(m=1, x=2.0, a=a, n=3) != read(1, 2.0, a, n=4)
    assert hash(read(1, 2.0, a)) == hash(read(1, 2.0, a))
    with pytest.raises(TypeError):
        read(1, 2.0)
    assert written(lambda self: None, READ, TENSOR)() == ()
