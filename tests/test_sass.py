# SPDX-License-Identifier: Apache-2.0
"""The checks of machine code hold for a kernel that is right, and fail on those that are not."""

import pytest
from tests import cuda_sources, sass
from tests.kernels import load_v3

from tilus import compiler, disasm, nvrtc
from tilus.errors import DeviceError


def cubin(source: str) -> bytes:
    """Compile without judging: these kernels are here because ``nvrtc.compile`` refuses them."""
    return nvrtc._run(source, nvrtc.FLAGS).code


def test_a_good_kernel_passes():
    assert sass.complaints(cubin(cuda_sources.GOOD)) == []


def test_a_kernel_without_tensor_cores_and_tma_fails():
    assert sass.complaints(cubin(cuda_sources.PLAIN)) == ["no HGMMA", "no UTMALDG"]


@pytest.mark.parametrize(
    "source", [cuda_sources.LOCAL, cuda_sources.SPILLING], ids=["local", "spills"]
)
def test_a_kernel_with_local_memory_fails(source):
    found = " ".join(sass.complaints(cubin(source)))
    assert " LDL" in found and " STL" in found and " STACK " in found


def test_predicated_and_labelled_instructions_are_counted(monkeypatch):
    text = """
.L_x_1:
        /*0000*/              @!P0 LDL.64 R4, [R1] ;
        /*0010*/             @UP1 UTMALDG.2D [UR8], [UR4] ;
        /*0020*/                   HGMMA.64x8x16.F32 R4, gdesc[UR4], R4 ;
        /*1230*/                   IMAD.MOV.U32 R5, RZ, RZ, STL ;
"""
    monkeypatch.setattr(disasm, "sass", lambda code: text)
    assert dict(sass.opcodes(b"")) == {"LDL": 1, "UTMALDG": 1, "HGMMA": 1, "IMAD": 1}


def test_what_is_no_cubin_is_said_to_be_none():
    with pytest.raises(DeviceError, match="nvdisasm failed on 5 bytes"):
        disasm.sass(b"hello")


def test_a_missing_tool_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(disasm, "find_tool", lambda name: None)
    with pytest.raises(
        DeviceError, match=r"nvdisasm must be installed.*pip install nvidia-cuda-nvd"
    ):
        disasm.sass(b"")


@pytest.mark.parametrize(
    "schedule", [(2, 128, 64, 16), (4, 128, 128, 64), (7, 128, 64, 32)], ids=str
)
def test_v3_is_tensor_cores_and_tma_without_local_memory(schedule):
    kernel = load_v3()(*schedule).lower(n_size=8192, k_size=8192)
    code = compiler.build(kernel).cubin.code
    assert sass.complaints(code) == []
