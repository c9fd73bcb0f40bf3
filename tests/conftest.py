# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: both backends (CUDA where there is a Hopper GPU) and golden files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import tilus
from tilus import runtime

# A machine that does other things meanwhile is slow now and then: no example has to be quick.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


class Backend:
    """Runs kernels on NumPy arrays: as they are on the simulator, on copies on the GPU."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, kernel: tilus.Script, *arguments: object) -> None:
        """Call ``kernel``; the arrays among ``arguments`` hold what it wrote afterwards."""
        arrays = [x for x in arguments if isinstance(x, np.ndarray)] if self.name == "cuda" else []
        copies = {id(x): runtime.DeviceArray.from_numpy(whole(x)) for x in arrays}
        kernel(*(view_like(x, copies[id(x)]) if id(x) in copies else x for x in arguments))
        for x in arrays:
            whole(x)[...] = copies[id(x)].to_numpy()


def whole(x: np.ndarray) -> np.ndarray:
    """Return the array that ``x`` is a part of, so that what lies around it is copied too."""
    return x if x.base is None else x.base


def view_like(x: np.ndarray, copy: runtime.DeviceArray) -> runtime.DeviceArray:
    """Return the part of ``copy``, a copy of ``whole(x)``, that ``x`` is."""
    return copy.view(x.shape, x.strides, offset=x.ctypes.data - whole(x).ctypes.data)


@pytest.fixture
def device() -> Iterator[object]:
    """``tilus.option.device``, which has its old value again after the test."""
    before = tilus.option.current_device
    yield tilus.option.device
    tilus.option.device(before)


@pytest.fixture(params=["sim", "cuda"])
def backend(request: pytest.FixtureRequest, device: object) -> Backend:
    """Each backend in turn; CUDA is skipped on a machine without a Hopper GPU."""
    if request.param == "cuda" and runtime.find_gpu() is None:
        pytest.skip("no Hopper GPU")
    tilus.option.device(request.param)
    return Backend(request.param)


GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with the golden file of a name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), f"{name} differs; see --update-golden"

    return compare
