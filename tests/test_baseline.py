# SPDX-License-Identifier: Apache-2.0
"""Which cuBLAS is found and how it is called, with libraries that only take notes."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tilus import baseline


@pytest.fixture
def world(monkeypatch):
    """A world of libraries: ``add(name, available)`` puts one there, ``log`` has the calls."""
    modules, log = {}, []

    def add(name, available=True):
        module = ModuleType(name)
        module.cuda = SimpleNamespace(is_available=lambda: available, synchronize=lambda: None)
        module.asarray = lambda x: x
        module.as_tensor = lambda x, device: x
        module.matmul = lambda a, b, out: log.append((name, a, b, out))
        module.backends = SimpleNamespace(
            cuda=SimpleNamespace(
                matmul=SimpleNamespace(allow_fp16_reduced_precision_reduction=True)
            )
        )
        modules[name] = module
        return module

    real = importlib.util.find_spec

    def find_spec(name, *rest):
        if name in ("torch", "cupy", "nvmath"):
            return ModuleSpec(name, None) if name in modules else None
        return real(name, *rest)

    monkeypatch.setattr(baseline.importlib.util, "find_spec", find_spec)
    for name in ("torch", "cupy", "nvmath", "nvmath.linalg", "nvmath.linalg.advanced"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(baseline.importlib, "import_module", modules.__getitem__)
    monkeypatch.setattr(baseline.metadata, "version", lambda name: "1.0")
    monkeypatch.setattr(baseline.metadata, "packages_distributions", lambda: {})
    return SimpleNamespace(add=add, log=log, modules=modules)


@pytest.fixture
def arrays():
    return tuple(np.zeros(shape, np.float16) for shape in ((4, 8), (6, 8), (4, 6)))


def names(arrays):
    return [(c.name, c.library) for c in baseline.contenders(*arrays)]


def test_without_a_library_there_is_nobody(world, arrays):
    assert baseline.contenders(*arrays) == []
    world.add("torch", available=False)
    assert baseline.contenders(*arrays) == []


def test_pytorch_comes_first_if_it_has_a_gpu(world, arrays):
    world.add("cupy")
    assert names(arrays) == [("cublas", "cupy 1.0")]
    torch = world.add("torch")
    assert names(arrays) == [("cublas", "torch 1.0")]
    world.add("torch", available=False)
    assert names(arrays) == [("cublas", "cupy 1.0")]
    assert torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction is False


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_launch_computes_a_times_b_transposed_into_c(world, arrays, library):
    world.add(library)
    (contender,) = baseline.contenders(*arrays)
    contender.launch()
    ((name, a, b, out),) = world.log
    assert name == library and a is arrays[0] and out is arrays[2]
    assert b.base is arrays[1] and b.shape == (8, 6)


class Product:
    """nvmath's Matmul, as far as it is used."""

    calls = []

    def __init__(self, a, b, c, beta, options):
        self.calls.append(("made", a.shape, b.shape, c.shape, beta, options))

    def plan(self, preferences):
        self.calls.append(("plan", preferences))

    def autotune(self, iterations):
        self.calls.append(("autotune",))

    def execute(self):
        self.calls.append(("execute",))


def test_cublaslt_is_measured_in_float32_with_32_mib(world, arrays, monkeypatch):
    monkeypatch.setattr(Product, "calls", [])
    world.add("cupy")
    world.add("nvmath")
    world.modules["nvmath.linalg.advanced"] = SimpleNamespace(Matmul=Product)
    world.modules["nvmath.linalg"] = SimpleNamespace(ComputeType=SimpleNamespace(COMPUTE_32F=68))
    cublas, cublaslt = baseline.contenders(*arrays)
    assert (cublaslt.name, cublaslt.library) == ("cublaslt", "nvmath-python 1.0")
    made, *rest = Product.calls
    options = {"inplace": True, "memory_limit": 32 * 2**20, "compute_type": 68}
    assert made == ("made", (4, 8), (8, 6), (4, 6), 0.0, options)
    assert rest == [("plan", {"limit": 16}), ("autotune",)]
    cublaslt.launch()
    assert Product.calls[-1] == ("execute",) and cublas.name == "cublas"


def test_a_library_that_fails_is_said_not_hidden(world, arrays):
    world.add("cupy")
    world.add("nvmath")  # its parts are missing: importing them fails
    with pytest.warns(UserWarning, match="cublaslt is not measured: nvmath-python: 'nvmath.linalg"):
        assert names(arrays) == [("cublas", "cupy 1.0")]


def test_the_profiler_names_the_longest_kernel(world, arrays):
    torch = world.add("torch")
    torch.autograd = SimpleNamespace(DeviceType=SimpleNamespace(CUDA="cuda", CPU="cpu"))
    took = {"memset": ("cuda", 1), "sm90_xmma_gemm": ("cuda", 900), "aten::mm": ("cpu", 5000)}
    events = [
        SimpleNamespace(
            name=name,
            device_type=where,
            time_range=SimpleNamespace(elapsed_us=lambda us=us: us),
        )
        for name, (where, us) in took.items()
    ]

    class Profile:
        def __init__(self, activities):
            assert activities == ["CPU", "CUDA"]

        def __enter__(self):
            return SimpleNamespace(events=lambda: events)

        def __exit__(self, *error):
            return None

    activity = SimpleNamespace(CPU="CPU", CUDA="CUDA")
    torch.profiler = SimpleNamespace(ProfilerActivity=activity, profile=Profile)
    (contender,) = baseline.contenders(*arrays)
    assert contender.kernel() == "sm90_xmma_gemm"
    events.clear()
    assert contender.kernel() is None


def test_cupy_does_not_name_kernels(world, arrays):
    world.add("cupy")
    assert baseline.contenders(*arrays)[0].kernel() is None
