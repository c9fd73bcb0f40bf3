# SPDX-License-Identifier: Apache-2.0
"""What the runtime reads off arrays, and the device memory of our own."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilus import dtypes
from tilus.dtypes import float16, float32, int8, int32
from tilus.errors import ArgumentError, DeviceError
from tilus.runtime import DeviceArray, describe


class TestDescribe:
    """NumPy, DLPack and PyTorch; what lies on a GPU is tested on a GPU."""

    def test_numpy(self):
        array = np.zeros((3, 8), np.float16)[:, :5]
        found = describe(array, "a")
        assert (found.address, found.shape, found.strides) == (array.ctypes.data, (3, 5), (16, 2))
        assert (found.dtype, found.device, found.device_index) == (float16, "cpu", None)
        assert found.owner is array

    def test_a_read_only_array_is_known_to_be_one(self):
        array = np.zeros(3, np.int32)
        assert describe(array, "a").writable
        array.flags.writeable = False
        assert not describe(array, "a").writable

    def test_a_mask_is_refused(self):
        masked = np.ma.masked_invalid(np.array([1, np.nan], np.float32))
        with pytest.raises(ArgumentError, match=r"^a must be an array without a mask"):
            describe(masked, "a")
        assert describe(masked.filled(0), "a").shape == (2,)
        assert describe(np.ma.array(np.zeros(2, np.float32)), "a").shape == (2,)  # has none

    @pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
    def test_every_type_of_ours(self, dtype):
        assert describe(np.zeros(1, dtype.numpy), "a").dtype is dtype

    @pytest.mark.parametrize("dtype", ["complex64", ">f4", "O", "U3", "datetime64[s]"])
    def test_other_types_are_refused(self, dtype):
        with pytest.raises(
            ArgumentError, match=r"^a_ptr must be an array of .*float16.*Convert it"
        ):
            describe(np.zeros(1, dtype), "a_ptr")

    @pytest.mark.parametrize("thing", [3, None, [1.0], "text", memoryview(b"bytes")])
    def test_what_is_no_array_is_refused(self, thing):
        with pytest.raises(
            ArgumentError, match=rf"b must be an array.*got a {type(thing).__name__}"
        ):
            describe(thing, "b")

    def test_dlpack_on_the_cpu(self):
        array = np.zeros((4, 6), np.float32)[:, 1:4]
        exporter = SimpleNamespace(
            __dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__
        )
        found = describe(exporter, "a")
        assert (found.address, found.shape, found.strides) == (array.ctypes.data, (4, 3), (24, 4))
        assert (found.dtype, found.device) == (float32, "cpu")

    def test_a_failing_exporter_is_an_argument_error(self):
        def failing(**options):
            raise BufferError("not today")

        exporter = SimpleNamespace(__dlpack__=failing, __dlpack_device__=lambda: (1, 0))
        with pytest.raises(ArgumentError, match="not today"):
            describe(exporter, "a")


class Tensor:
    """As much of a PyTorch tensor as the runtime touches."""

    requires_grad = False

    def __init__(self, dtype="torch.float16", device="cuda", strides=(8, 1)):
        self.dtype, self.device, self.shape = dtype, SimpleNamespace(type=device), [3, 5]
        self.is_cuda, self._strides = device == "cuda", strides

    def data_ptr(self):
        return 4096

    def stride(self):
        return self._strides

    def get_device(self):
        return 1 if self.is_cuda else -1

    def is_neg(self):
        return False


Tensor.__module__ = "torch"


class TestPyTorch:
    """PyTorch's tensors are read by their own methods."""

    def test_on_a_gpu(self):
        found = describe(Tensor(), "a")
        assert (found.address, found.shape, found.strides) == (4096, (3, 5), (16, 2))
        assert (found.dtype, found.device, found.device_index) == (float16, "cuda:1", 1)

    def test_on_the_cpu(self):
        found = describe(Tensor("torch.int8", "cpu"), "a")
        assert (found.dtype, found.device, found.strides) == (int8, "cpu", (8, 1))

    def test_elsewhere(self):
        with pytest.raises(ArgumentError, match=r"^a must be on a GPU of CUDA or the CPU"):
            describe(Tensor(device="meta"), "a")

    def test_a_type_we_lack(self):
        with pytest.raises(ArgumentError, match=r"^a must be an array of .*torch\.float8_e4m3fn"):
            describe(Tensor("torch.float8_e4m3fn"), "a")

    def test_what_is_of_pytorch_but_no_tensor(self):
        module = type("Linear", (), {"__module__": "torch.nn.modules.linear"})()
        with pytest.raises(ArgumentError, match=r"^b must be an array.*got a Linear"):
            describe(module, "b")

    def test_a_gradient_that_would_get_lost(self, monkeypatch):
        tensor, mode = Tensor(), SimpleNamespace(is_grad_enabled=lambda: True)
        monkeypatch.setitem(sys.modules, "torch", mode)
        assert describe(tensor, "a").dtype is float16
        tensor.requires_grad = True
        message = r"^a must be a tensor that needs no gradient.*requires_grad=True.*\.detach\(\)"
        with pytest.raises(ArgumentError, match=message):
            describe(tensor, "a")
        mode.is_grad_enabled = lambda: False
        assert describe(tensor, "a").dtype is float16

    def test_the_negative_of_what_lies_in_memory(self):
        """Such is the imaginary part of a conjugate."""
        tensor = Tensor()
        tensor.is_neg = lambda: True
        with pytest.raises(ArgumentError, match=r"^a must be .* as it is read.*resolve_neg\(\)"):
            describe(tensor, "a")

    def test_what_has_a_form_and_no_elements(self):
        """Such are fake tensors, wrappers of other tensors, and those whose storage was freed."""
        tensor = Tensor()
        tensor.data_ptr = lambda: 0
        with pytest.raises(ArgumentError, match=r"^a must be .* memory of its own.* at address 0"):
            describe(tensor, "a")
        tensor.shape = [0, 5]
        assert describe(tensor, "a").shape == (0, 5)

    def test_without_memory(self):
        def sparse():
            raise RuntimeError("no storage")

        tensor = Tensor()
        tensor.data_ptr = sparse
        with pytest.raises(ArgumentError, match="a must be a strided tensor, got no storage"):
            describe(tensor, "a")


class TestDeviceArray:
    """Device memory of our own, over a fake driver whose device memory is host memory."""

    def test_there_and_back(self, fake):
        array = np.arange(24, dtype=np.float16).reshape(4, 6)
        there = DeviceArray.from_numpy(array)
        assert np.array_equal(there.to_numpy(), array)
        assert (there.shape, there.strides, there.dtype) == ((4, 6), (12, 2), float16)
        assert fake.current == [0]  # whoever was current before is current again

    def test_copies_wait_for_all_streams(self, fake):
        there = DeviceArray((2,), int32)
        for copy, name in [
            (there.to_numpy, "cuMemcpyDtoH"),
            (lambda: there.copy_from(np.zeros(2, np.int32)), "cuMemcpyHtoD"),
        ]:
            fake.calls.clear()
            copy()
            assert fake.calls.index("cuCtxSynchronize") < fake.calls.index(name)

    def test_it_describes_itself(self, fake):
        there = DeviceArray((4, 6), int32)
        found = describe(there, "a")
        assert found is there.described
        assert (found.device, found.dtype, found.strides) == ("cuda:0", int32, (24, 4))

    def test_other_libraries_can_read_it(self, fake):
        there = DeviceArray.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
        interface = there.view((3, 2), (4, 12)).__cuda_array_interface__
        exporter = SimpleNamespace(__array_interface__=interface)
        assert np.asarray(exporter).tolist() == [[0, 3], [1, 4], [2, 5]]

    def test_sources_of_any_layout_are_copied_by_value(self, fake):
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        assert np.array_equal(DeviceArray.from_numpy(array.T).to_numpy(), array.T)
        assert np.array_equal(DeviceArray.from_numpy(array[::-1, ::2]).to_numpy(), array[::-1, ::2])

    def test_a_copy_to_a_view_leaves_what_lies_between(self, fake):
        there = DeviceArray.from_numpy(np.zeros((4, 6), np.int32))
        view = there.view((2, 2), (48, 4), offset=8)
        view.copy_from(np.array([[1, 2], [3, 4]], np.int32))
        expected = np.zeros((4, 6), np.int32)
        expected[::2, 2:4] = [[1, 2], [3, 4]]
        assert np.array_equal(there.to_numpy(), expected)
        assert np.array_equal(view.to_numpy(), [[1, 2], [3, 4]])

    def test_filling_with_ones_makes_floats_nan_and_stays_inside(self, fake):
        there = DeviceArray.from_numpy(np.zeros(8, np.float16))
        there.view((4,), offset=4).fill_bytes(0xFF)
        assert np.isnan(there.to_numpy()).tolist() == [False] * 2 + [True] * 4 + [False] * 2

    @pytest.mark.parametrize(
        ("shape", "strides", "offset"),
        [((13,), None, 0), ((12,), None, 4), ((1,), None, -4), ((2,), (48,), 0), ((2,), (-4,), 8)],
    )
    def test_a_view_stays_within_its_array(self, fake, shape, strides, offset):
        with pytest.raises(ArgumentError, match="view must be within the 48 bytes"):
            DeviceArray((12,), int32).view(shape, strides, offset)

    def test_shapes_and_types_must_agree(self, fake):
        there = DeviceArray((2, 3), float16)
        with pytest.raises(ArgumentError, match=r"of shape \(2, 3\) and type float16"):
            there.copy_from(np.zeros((3, 2), np.float16))
        with pytest.raises(
            ArgumentError, match=r"of shape \(2, 3\) and type float16, got.*float32"
        ):
            there.copy_from(np.zeros((2, 3), np.float32))

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
    def test_empty_and_scalar(self, fake, shape):
        array = np.ones(shape, np.float32)
        assert np.array_equal(DeviceArray.from_numpy(array).to_numpy(), array)

    def test_memory_is_freed_with_its_last_view(self, fake):
        there = DeviceArray((4,), int32)
        view = there.view((2,))
        del there
        gc.collect()
        assert len(fake.memory) == 1
        del view
        gc.collect()
        assert fake.memory == {}

    def test_memory_can_be_had_while_a_stream_is_captured(self, fake):
        modes = fake.CUstreamCaptureMode
        for name in ("GLOBAL", "THREAD_LOCAL"):
            fake.mode = before = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{name}")
            DeviceArray((4,), float16)
            assert fake.mode == before
        assert fake.modes == [modes.CU_STREAM_CAPTURE_MODE_RELAXED] * 2

    def test_out_of_memory_is_a_device_error(self, fake):
        fake.failing["cuMemAlloc"] = fake.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(DeviceError, match="allocating 400 bytes: CUDA_ERROR_OUT_OF_MEMORY: as"):
            DeviceArray((100,), int32)
        assert fake.current == [0]

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
    @given(data=st.data())
    def test_a_view_is_numpys_view(self, fake, data):
        memory = np.arange(64, dtype=np.int8)
        there = DeviceArray.from_numpy(memory)
        shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
        strides = tuple(data.draw(st.integers(0, 6)) for _ in shape)
        offset = data.draw(st.integers(0, 9))
        expected = np.lib.stride_tricks.as_strided(memory[offset:], shape, strides)
        assert np.array_equal(there.view(shape, strides, offset).to_numpy(), expected)


def test_no_array_makes_the_runtime_import_its_library(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    describe(np.zeros(1, np.float32), "a")
    describe(Tensor(), "a")
    assert "torch" not in sys.modules
