# SPDX-License-Identifier: Apache-2.0
"""A script is launched by calling it: arguments are checked, programs kept, runs told about."""

import re

import numpy as np
import pytest

import tilus
from tilus import compiler, float16, float32, int32, int64, launch, runtime
from tilus.errors import ArgumentError, DeviceError, LanguageError
from tilus.utils import cdiv

H200 = runtime.Gpu(0, "NVIDIA H200", (9, 0), 132, 232448, 2**25, 2**37, (13, 0), "580.0")
A100 = runtime.Gpu(1, "NVIDIA A100", (8, 0), 108, 166912, 2**25, 2**36, (13, 0), "580.0")


class Fill(tilus.Script):
    """Gives every element of the first ``n`` columns of C one value."""

    def __init__(self, value, rows=32):
        super().__init__()
        self.value, self.rows = value, rows

    def __call__(self, m: int32, n: int, pitch: int64, c: ~float32):
        self.attrs.blocks = cdiv(m, self.rows), cdiv(n, 64)
        self.attrs.warps = 4
        gc = self.global_view(c, dtype=float32, shape=[m, n], strides=[pitch, 1])
        tile = self.register_tensor(dtype=float32, shape=[self.rows, 64], init=self.value)
        self.store_global(gc, tile, offsets=[self.blockIdx.x * self.rows, self.blockIdx.y * 64])


class Copy(tilus.Script):
    """Loads one tile by TMA and writes another; enough to have all rules for arrays."""

    def __call__(self, m: int32, k: int32, a: ~float16, c: ~float16):
        self.attrs.blocks, self.attrs.warps = cdiv(m, 64), 4
        ga = self.global_view(a, dtype=float16, shape=[m, k])
        gc = self.global_view(c, dtype=float16, shape=[m, 64])
        sa = self.shared_tensor(dtype=float16, shape=[1, 64, 64])
        full = self.mbarrier.alloc(1)
        with self.single_warp(), self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=sa.nbytes)
            self.tma.global_to_shared(ga, sa[0], offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        tile = self.cast(self.register_tensor(dtype=float32, shape=[64, 64], init=1.0), float16)
        self.store_global(gc, tile, offsets=[self.blockIdx.x * 64, 0])


def nan(*shape, dtype=np.float32):
    return np.full(shape, np.nan, dtype)


# Running


@pytest.mark.parametrize(("m", "n"), [(32, 64), (33, 65), (1, 1), (100, 130)])
def test_runs_on_each_backend(backend, m, n):
    memory = nan(m + 2, n + 3)
    backend.run(Fill(2.5), m, n, n + 3, memory[1:-1, 2:-1])
    assert (memory[1:-1, 2:-1] == 2.5).all()
    outside = np.ones_like(memory, bool)
    outside[1:-1, 2:-1] = False
    assert np.isnan(memory[outside]).all()


class Ones(Fill):
    """Leaves the program to the class it comes from; its numbers are given by name."""

    def __init__(self):
        super().__init__(1.0)

    def __call__(self, c: ~float32, *, m: int32, n: int):
        super().__call__(m, n, n, c)


def test_a_kernel_may_call_the_one_it_comes_from(device):
    device("sim")
    c = nan(33, 64)
    Ones()(c, m=33, n=64)
    assert (c == 1).all()


def test_what_is_to_be_named_is_refused_by_place(device):
    device("sim")
    message = "a call must be of at most 1 arguments by place, Ones(c, m, n), got 2. Pass the other"
    with pytest.raises(ArgumentError, match=re.escape(message)):
        Ones()(nan(33, 64), 33, n=64)


def test_last_run_says_where_and_what(backend):
    kernel = Fill(1.0)
    assert kernel.last_run is None
    backend.run(kernel, 65, 64, 64, nan(65, 64))
    assert kernel.last_run.blocks == (3, 1, 1)
    assert kernel.last_run.device == ("sim" if backend.name == "sim" else "cuda:0")
    assert (kernel.last_run.cycles is None) == (backend.name == "cuda")


def test_nothing_to_do_launches_nothing(backend):
    kernel = Fill(1.0)
    backend.run(kernel, 0, 64, 64, nan(0, 64))
    assert 0 in kernel.last_run.blocks


def test_one_program_per_compile_time_value(device, monkeypatch):
    device("sim")
    traced = []
    monkeypatch.setattr(
        compiler, "lower", lambda s, c, lower=compiler.lower: traced.append(c) or lower(s, c)
    )
    kernel = Fill(1.0)
    for m, n in [(8, 64), (9, 64), (8, 32), (9, 32)]:
        kernel(m, n, n, nan(m, n))
    assert traced == [{"n": 64}, {"n": 32}]
    Fill(2.0)(8, 64, 64, nan(8, 64))  # another schedule is another program
    assert len(traced) == 3


def test_arguments_by_name(device):
    device("sim")
    c = nan(4, 4)
    Fill(value=3.0)(4, c=c, pitch=np.int64(4), n=4)
    assert (c == 3.0).all()


def test_schedule_and_arguments_are_told():
    kernel = Fill(2.0, rows=64)
    assert kernel.schedule == {"value": 2.0, "rows": 64}
    call = kernel.bind(4, 5, 6, nan(4, 5))
    assert (call.constants, call.scalars) == ({"n": 5}, {"m": 4, "pitch": 6})
    assert call.arrays["c"].shape == (4, 5)
    assert kernel.lower(n=64) is kernel.lower(n=64)


# What is refused before anything runs


GOOD = {"m": 4, "n": 8, "pitch": 8, "c": np.zeros((4, 8), np.float32)}
READ_ONLY = np.zeros((4, 8), np.float32)
READ_ONLY.flags.writeable = False
BAD_CALLS = [
    ({"m": 4.0}, "m must be a number of type int32, got 4.0 (a float). Pass one."),
    ({"m": True}, "m must be a number of type int32, got True (a bool). Pass one."),
    (
        {"m": 2**31},
        "m must be within the range of int32, got 2147483648. Annotate 'm' with a wider",
    ),
    ({"n": "8"}, "n must be an int, as annotated, got '8' (a str). Pass one."),
    (
        {"m": np.full((30, 40), 7, np.float32)},
        "m must be a number of type int32, got a ndarray. Annotate 'm' with a pointer such as "
        "~int32 to take an array, or pass a number.",
    ),
    (
        {"n": np.full((30, 40), 7, np.float32)},
        "n must be an int, as annotated, got a ndarray. Annotate 'n' with a pointer such as "
        "~float32 to take an array, or pass a number.",
    ),
    ({"m": [7] * 1000}, "m must be a number of type int32, got a list. Pass one."),
    ({"c": 8}, "c must be an array with __cuda_array_interface__ or DLPack, got a int."),
    (
        {"c": np.zeros((4, 8), np.float64)},
        "c must be an array of float32, got one of float64. Convert it to float32, or annotate 'c'",
    ),
    ({"c": np.zeros(32, np.float32)}, "c must be of 2 dimensions, like the view 'gc' (4, 8), got"),
    ({"c": np.zeros((5, 8), np.float32)}, "c must be of shape (4, 8), like the view 'gc', got (5,"),
    (
        {"c": np.zeros((8, 4), np.float32).T},
        "c must be laid out with strides of (32, 4) bytes, like the view 'gc', got (4, 16) bytes.",
    ),
    ({"pitch": 9}, "strides of (36, 4) bytes, like the view 'gc', got (32, 4) bytes"),
    (
        {"c": np.broadcast_to(np.zeros(8, np.float32), (4, 8))},
        "c must be laid out with strides of (32, 4) bytes, like the view 'gc', got (0, 4) bytes.",
    ),
    ({"c": READ_ONLY}, "c must be a writable array, got a read-only one."),
    ({"m": -4}, "the shape of view 'gc' must be not negative, got (-4, 8)."),
]


@pytest.mark.parametrize(
    ("change", "message"), BAD_CALLS, ids=lambda x: x[:40] if isinstance(x, str) else ""
)
def test_bad_call_is_refused(device, change, message):
    device("sim")
    kernel = Fill(1.0)
    with pytest.raises(ArgumentError, match=re.escape(message)):
        kernel(**GOOD | change)
    assert kernel.last_run is None and not GOOD["c"].any()


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((4, 8, 8), {}, "c must be given to Fill(m, n, pitch, c), got nothing."),
        ((4, 8, 8, nan(4, 8), 1), {}, "a call must be of at most 4 arguments, Fill("),
        ((4, 8, 8, nan(4, 8)), {"m": 4}, "m must be given once to Fill("),
        ((4, 8, 8, nan(4, 8)), {"K": 4}, "K must be a parameter of Fill(m, n, "),
    ],
)
def test_wrong_arguments_are_refused(device, args, kwargs, message):
    device("sim")
    with pytest.raises(ArgumentError, match=re.escape(message)):
        Fill(1.0)(*args, **kwargs)


def offset_by(nbytes: int, *shape: int) -> np.ndarray:
    """Return a float16 array that begins ``nbytes`` behind a multiple of 16 bytes."""
    size = int(np.prod(shape))
    memory = np.zeros(size + 32, np.float16)
    start = (-memory.ctypes.data % 16 + nbytes) // 2
    return memory[start : start + size].reshape(shape)


@pytest.mark.parametrize(
    ("m", "a", "message"),
    [
        (64, offset_by(2, 64, 64), "a must be at an address that is a multiple of 16 bytes, got"),
        (64, offset_by(0, 64, 60), "a must be of a pitch that is a positive multiple of 16 bytes"),
        (1, offset_by(0, 1, 3), "got 6 bytes from row to row (dimension 0 of shape (1, 3))"),
    ],
    ids=["base", "pitch", "pitch hidden by a dimension of size 1"],
)
def test_what_tma_cannot_address_is_refused(device, m, a, message):
    device("sim")
    c = nan(m, 64, dtype=np.float16)
    with pytest.raises(ArgumentError, match=re.escape(message)):
        Copy()(m, a.shape[1], a, c)
    assert np.isnan(c).all()


def test_tma_accepts_what_is_aligned_and_what_is_empty(backend):
    for k in (64, 8, 0):
        c = nan(64, 64, dtype=np.float16)
        backend.run(Copy(), 64, k, offset_by(0, 64, k), c)
        assert (c == 1).all()


# Where it runs


def on_gpu(index: int, like: np.ndarray) -> runtime.DeviceArray:
    """Return an array that says it is on a GPU."""
    array = object.__new__(runtime.DeviceArray)
    host = runtime.describe(like, "like")
    array.described = runtime.Array(16, host.shape, host.strides, host.dtype, f"cuda:{index}")
    return array


@pytest.fixture
def gpus(monkeypatch):
    """A machine that seems to have an H200 and an A100."""
    monkeypatch.setattr(runtime, "gpus", lambda: (H200, A100))
    monkeypatch.setattr(runtime, "find_gpu", lambda: H200)
    monkeypatch.setattr(runtime, "require_gpu", lambda: H200)
    launch.backends.no_gpu.cache_clear()
    yield
    launch.backends.no_gpu.cache_clear()


def refusal(c) -> str:
    with pytest.raises(ArgumentError) as caught:
        Fill(1.0)(4, 8, 8, c)
    return str(caught.value)


@pytest.mark.parametrize("choice", ["auto", "cuda"])
def test_host_array_is_refused_on_the_gpu(device, gpus, choice):
    device(choice)
    assert refusal(nan(4, 8)).startswith(
        "c must be in GPU memory for the CUDA backend, got in host"
    )


def test_gpu_array_is_refused_by_the_simulator(device):
    device("sim")
    assert "c must be in host memory for the simulator, got on cuda:0" in refusal(
        on_gpu(0, nan(4, 8))
    )


def test_other_gpu_is_refused(device, gpus):
    device("auto")
    assert "compute capability 9.0), got on cuda:1, NVIDIA A100 (8.0)" in refusal(
        on_gpu(1, nan(4, 8))
    )


def test_arrays_on_two_devices_are_refused(device):
    a, c = on_gpu(0, nan(64, 64, dtype=np.float16)), on_gpu(1, nan(64, 64, dtype=np.float16))
    with pytest.raises(ArgumentError, match="c must be on cuda:0, where 'a' is, got on cuda:1"):
        Copy()(64, 64, a, c)


def test_cuda_without_a_gpu_is_an_error(device):
    if runtime.find_gpu() is not None:
        pytest.skip("there is a Hopper GPU")
    device("cuda")
    with pytest.raises(DeviceError, match="found: ") as caught:
        Fill(1.0)(4, 8, 8, nan(4, 8))
    assert len(str(caught.value).splitlines()) <= 10


def test_falling_back_to_the_simulator_is_said_once(device, monkeypatch):
    device("auto")
    monkeypatch.setattr(runtime, "find_gpu", lambda: None)
    launch.backends.no_gpu.cache_clear()
    with pytest.warns(
        UserWarning, match="no Hopper GPU found: kernels run on the simulator"
    ) as seen:
        for _ in range(2):
            Fill(1.0)(4, 8, 8, nan(4, 8))
    assert len(seen) == 1
    launch.backends.no_gpu.cache_clear()


# Schedules


@tilus.autotune("value", [1.0, 2.0])
@tilus.autotune("rows, warps", [(4096, 4), (64, 4), (32, 4)])
class Open(Fill):
    """4096 rows do not fit into the registers: that candidate cannot be compiled."""

    def __init__(self, value, rows, warps=4):
        super().__init__(value, rows)


def test_values_left_out_are_tuned(device):
    device("sim")
    kernel, c = Open(), nan(4, 8)
    assert len(kernel.candidates()) == 6 and kernel.last_run is None
    kernel(4, 8, 8, c)
    assert kernel.schedule == {"value": 1.0, "rows": 64, "warps": 4}
    assert (c == 1.0).all() and kernel.last_run.device == "sim"


def test_values_given_are_not_tuned():
    kernel = Open(2.0, rows=16)
    assert [c.schedule for c in kernel.candidates()] == [{"value": 2.0, "rows": 16, "warps": 4}]
    assert isinstance(Open(2.0, 16, 4), Open)


def test_space_without_a_possible_schedule_says_why(device):
    device("sim")
    with pytest.raises(
        LanguageError, match=r"none of 2 schedules will do: .* at most \d+ registers a thread"
    ):
        Open(rows=4096)(4, 8, 8, nan(4, 8))


def test_unknown_schedule_value_is_a_type_error():
    with pytest.raises(TypeError, match=r"Fill\(\): got an unexpected keyword argument 'columns'"):
        Fill(columns=3)


def test_stream_is_no_name_for_a_parameter():
    with pytest.raises(LanguageError, match="must not have a parameter 'stream'"):

        class Bad(tilus.Script):
            def __call__(self, stream: int32):
                pass
