# SPDX-License-Identifier: Apache-2.0
"""Calls that came before are launched at once, and never with what belongs to another call."""

import copy
import ctypes
import gc
import importlib
import math
import pickle
import sys
import threading
import weakref
from collections import namedtuple
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import kernels
from tests.runtime.fake_driver import CONTEXT, argument
from tests.runtime.pitched import FORMS, Pitched
from tests.test_script import Copy

import tilus
from tilus import boolean, float16, float32, int32, launch
from tilus.errors import ArgumentError
from tilus.launch import Known, bind
from tilus.launch.known import ARRAY, READ, TENSOR, written
from tilus.runtime import DeviceArray, describe, encode_tensor_map, tensor_map

A, C = 0x10000, 0x80000
COPY, PITCHED = Copy(), Pitched()


class Alike:
    """What a kernel sees of a tensor of PyTorch."""

    requires_grad = False

    def __init__(self, address, shape):
        self.address, self.shape, self.strides = address, shape, (*shape[1:], 1)
        self.dtype, self.device = "torch.float16", Device("cuda", 0)

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    def data_ptr(self):
        return self.address

    def is_neg(self):
        return False

    def stride(self):
        return self.strides

    def get_device(self):
        return self.device.index


class Tensor(Alike):
    """One that is of PyTorch."""

    __module__ = "torch"


Device = namedtuple("Device", "type index")


@pytest.fixture
def torch(gpu, monkeypatch):
    """A fake GPU, and a PyTorch with a current stream; a tensor map holds what it was made of."""

    def encode(place, kind, rank, address, shape, *rest):
        words = (ctypes.c_uint64 * 4).from_address(place)
        words[:] = [address, *shape, 7]
        return 0

    made = ModuleType("torch")
    made.stream = 0x50
    made._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: made.stream + index)
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(tensor_map, "_encoder", lambda: encode)
    encode_tensor_map.cache_clear()
    gpu.read = seen
    yield made
    encode_tensor_map.cache_clear()


def seen(made):
    """Return what a launch of Copy hands its kernel: the map's numbers, m, k, addresses."""
    pointers = ctypes.cast(made.pointers, ctypes.POINTER(ctypes.c_void_p))
    words = tuple((ctypes.c_uint64 * 3).from_address(pointers[0]))
    kinds = (ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64)
    return (*words, *(argument(made, i + 1, kind) for i, kind in enumerate(kinds)))


def pair(m=64, k=64, a=A, c=C):
    """Return the arguments of a call of Copy."""
    return m, k, Tensor(a, (m, k)), Tensor(c, (m, 64))


@pytest.fixture
def bound(monkeypatch):
    """The calls that were bound, rather than found."""
    log = []
    bind = launch.launcher.bind
    monkeypatch.setattr(launch.launcher, "bind", lambda *words: log.append(words) or bind(*words))
    return log


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


# Options, streams, contexts, threads


def test_options_are_heeded(gpu, torch, device, bound):
    kernel, call = Copy(), pair()
    kernel(*call)
    device("sim")
    with pytest.raises(ArgumentError, match="a must be in host memory for the simulator"):
        kernel(*call)
    device("cuda")
    tilus.option.debug.watchdog(1)
    kernel(*call)
    assert gpu.calls.count("cuCtxSynchronize") == 1  # the build that says when it hangs
    kernel(*call)
    assert gpu.calls.count("cuCtxSynchronize") == 2
    tilus.option.debug.watchdog(None)
    kernel(*call)
    assert gpu.calls.count("cuCtxSynchronize") == 2
    assert len(bound) == 4 and len(kernel._launcher._programs) == 2


def test_what_is_kept_under_other_options_is_not_found(gpu, torch, device):
    """One thread prepares a call while another changes an option."""
    device("cuda")
    known = Known(Copy.__call__.__wrapped__)
    call, place = pair(), known.kept
    tilus.option.debug.watchdog(1)
    assert known.find(*call) is None
    known.keep(place, call, {}, COPY.bind(*call), "made without a watchdog")
    assert known.find(*call) is None
    tilus.option.debug.watchdog(None)


def test_the_stream_is_the_current_one_of_each_call(gpu, torch):
    kernel, call = Copy(), pair()
    kernel(*call)
    torch.stream = 0x60
    kernel(*call)
    kernel(*call, stream=0x70)
    kernel(*call, stream=SimpleNamespace(__cuda_stream__=lambda: (0, 0x80)))
    torch.stream = 0x50
    kernel(*call)
    assert [made.stream for made in gpu.launches] == [0x50, 0x60, 0x70, 0x80, 0x50]
    with pytest.raises(ArgumentError, match="stream must be"):
        kernel(*call, stream="0")


def test_any_number_of_streams(gpu, torch):
    kernel, call = Copy(), pair()
    wanted = [*range(1, 200), *range(1, 200)]
    for stream in wanted:
        kernel(*call, stream=stream)
    assert [made.stream for made in gpu.launches] == wanted


def test_the_kernels_context_is_current_whatever_is_current_around_it(gpu, torch):
    kernel, call = Copy(), pair()
    for current in (0, 0xBEEF, CONTEXT):
        gpu.current = [current]
        kernel(*call)
        assert gpu.current == [current or CONTEXT]
    assert [made.context for made in gpu.launches] == [CONTEXT] * 3


def test_threads_do_not_mix_their_calls(gpu, torch):
    kernel = Copy()
    calls = [pair(64, 64, a=A * (i + 1), c=C * (i + 1)) for i in range(4)]

    def work(i):
        for _ in range(50):
            kernel(*calls[i], stream=i + 1)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(gpu.launches) == 200
    assert {(made.stream, made.arguments[-2:]) for made in gpu.launches} == {
        (i + 1, (A * (i + 1), C * (i + 1))) for i in range(4)
    }


# What is not kept


def test_arrays_do_not_live_on_for_being_known(gpu, torch):
    kernel = Copy()
    for make in (lambda: Tensor(A, (64, 64)), lambda: DeviceArray((64, 64), float16)):
        arrays = [make(), make()]
        kernel(64, 64, *arrays)
        kernel(64, 64, *arrays)
        gone = [weakref.ref(array) for array in arrays]
        del arrays
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    assert gpu.memory == {}  # nor does what holds the memory of our own


def test_a_loop_over_new_addresses_does_not_grow(gpu, torch, monkeypatch):
    monkeypatch.setattr(Known, "LIMIT", 8)
    kernel = Copy()
    for i in range(1, 50):
        kernel(*pair(a=A * i))
        assert len(kernel._launcher.known.kept) <= 8
    assert [made.arguments[-2] for made in gpu.launches] == [A * i for i in range(1, 50)]


def test_on_the_simulator_nothing_is_known(device):
    device("sim")
    kernel = COPY
    for value in (1, 2):
        c = np.zeros((64, 64), np.float16)
        kernel(64, 64, np.full((64, 64), value, np.float16), c)
        assert (c == 1).all()
    assert not kernel._launcher.known.kept


@pytest.mark.parametrize("m, k, pitch", FORMS)
def test_the_kernel_that_a_gpu_is_tried_with_copies(device, m, k, pitch):
    device("sim")
    pool = np.arange(1 << 14).astype(np.float16)
    a, c = view(pool, m, k, pitch), np.zeros((m, k), np.float16)
    PITCHED(m, k, pitch, a, c)
    assert np.array_equal(c, a)


def view(pool, m, k, pitch):
    """Return an array at the beginning of a pool."""
    return np.lib.stride_tricks.as_strided(pool, (m, k), (2 * pitch, 2))


# A kernel whose schedule is open


@tilus.autotune("unused", [1])
class Open(Copy):
    def __init__(self, unused):
        super().__init__()


def test_a_tuned_kernel_knows_its_calls_too(gpu, torch, bound, monkeypatch):
    kernel, asked = Open(), []
    monkeypatch.setattr(
        kernel, "tuner", SimpleNamespace(choose=lambda *w: asked.append(w) or {"unused": 1})
    )
    binding = []
    monkeypatch.setattr(launch, "bind", lambda *w: binding.append(w) or bind(*w), raising=False)
    for _ in range(3):
        kernel(*pair())
    kernel(*pair(64, 64, a=2 * A))
    assert [len(asked), len(binding), len(gpu.launches)] == [1, 2, 4]
    assert kernel.schedule == {"unused": 1} and kernel.last_run.blocks == (1, 1, 1)
    assert gpu.launches[-1].arguments == (2 * A, 64, 64, 64, 64, 2 * A, C)


# Copies, and one array twice


def test_a_copy_is_a_kernel_of_its_own(gpu, torch):
    """What is prepared for the driver cannot be copied, and no copy may launch what is not its."""
    kernel = Copy()
    kernel(*pair())
    for made in (copy.copy(kernel), copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        made(*pair(a=2 * A))
        assert gpu.launches[-1].arguments == (2 * A, 64, 64, 64, 64, 2 * A, C)
        assert made._launcher is not kernel._launcher and made.schedule == kernel.schedule
    opened = Open()
    opened._known.kept[1] = kernel._launcher.known
    for made in (copy.deepcopy(opened), pickle.loads(pickle.dumps(opened))):
        assert (made.cls, made.given, made._known.kept) == (Open, {}, {})


class Guards:
    """PyTorch's comparison, to which the same tensor twice is never what it was."""

    def __init__(self, *tensors, **dynamic):
        self.shapes = [x.shape for x in tensors]

    def check(self, *others):
        return len(set(map(id, others))) == len(others) and self.shapes == [x.shape for x in others]


def test_one_tensor_twice_is_known_too(gpu, torch, bound):
    torch._C._dynamo = SimpleNamespace(guards=SimpleNamespace(TensorGuards=Guards))
    kernel, a = Copy(), Tensor(A, (64, 64))
    for _ in range(3):
        kernel(64, 64, a, a)
    assert len(bound) == 1 and len(gpu.launches) == 3
    a.shape = (64, 128)
    with pytest.raises(ArgumentError, match="a must be of shape"):
        kernel(64, 64, a, a)


# Products


def test_products_are_known_too(gpu, torch, monkeypatch):
    module, checked = importlib.import_module("tilus.kernels.matmul"), []
    check = module.checked
    monkeypatch.setattr(module, "checked", lambda *w: checked.append(w) or check(*w))
    gpu.read, matmul = None, module.Matmul()
    a, b, c = (Tensor(A * (i + 1), (63, 63)) for i in range(3))  # rows that TMA cannot address
    for stream in (0x50, 0x50, 0x60):
        torch.stream = stream
        assert matmul(a, b, c) is c
    matmul(a, b, c, stream=0x70)
    assert len(checked) == 1 and matmul.last_run.kernel == "plain"
    assert [made.stream for made in gpu.launches] == [0x50, 0x50, 0x60, 0x70]
    b.shape = (64, 63)
    with pytest.raises(ArgumentError, match="b must be of shape"):
        matmul(a, b, c)
    gone = weakref.ref(c)
    del c, checked[:]
    gc.collect()
    assert gone() is None


def test_a_workspace_is_its_streams_own_and_stays(gpu):
    """A CUDA graph may have its address."""
    arrays = importlib.import_module("tilus.kernels.arrays")
    arrays._workspace.cache_clear()
    first = arrays.workspace("cuda:0", 1, 100).address
    assert arrays.workspace("cuda:0", 1, 128).address == first
    others = {arrays.workspace(*w).address for w in (("cuda:0", 2, 100), ("cuda:0", 1, 129))}
    assert len(others - {first}) == 2
    gc.collect()
    assert {first, *others} <= gpu.memory.keys()
    assert arrays.workspace("cuda:0", 1, 100).address == first
    assert arrays.workspace("cuda:0", 1, 1) is arrays.workspace("cuda:0", 2, 1)
    arrays._workspace.cache_clear()


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
