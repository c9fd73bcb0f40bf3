# SPDX-License-Identifier: Apache-2.0
"""What calls that came before leave behind: it heeds options, streams and threads, and ends."""

import copy
import gc
import importlib
import pickle
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tests.runtime.fake_driver import CONTEXT
from tests.runtime.pitched import FORMS, Pitched
from tests.runtime.tensors import COPY, A, C, Tensor, pair
from tests.runtime.threads import together
from tests.test_script import Copy

import tilus
from tilus import float16, launch
from tilus.errors import ArgumentError
from tilus.launch import Known, bind
from tilus.runtime import DeviceArray

PITCHED = Pitched()


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

    together(*(partial(work, i) for i in range(4)))
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
