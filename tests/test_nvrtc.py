# SPDX-License-Identifier: Apache-2.0
"""CUDA to cubin: what is refused, and what the cache may and may not do."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import cuda_sources

import tilus.nvrtc as nvrtc
from tilus.errors import CompileError, DeviceError
from tilus.options import option


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setattr(option, "_cache_dir", str(tmp_path))
    return tmp_path / "cubin"


@pytest.fixture
def compiled(monkeypatch):
    """The sources that NVRTC was really run on, in order."""
    runs, run = [], nvrtc._run

    def counting(source, flags):
        runs.append(source)
        return run(source, flags)

    nvrtc.nvrtc_version()
    monkeypatch.setattr(nvrtc, "_run", counting)
    return runs


def test_a_good_kernel_comes_with_its_resources(cache):
    made = nvrtc.compile(cuda_sources.GOOD, name="good")
    assert made.code.startswith(b"\x7fELF")
    assert 16 <= made.registers <= 64
    assert made.shared_bytes == 1024 + 8  # the tile and the barrier
    assert "wgmma.mma_async" in made.ptx
    assert made.nvrtc == nvrtc.nvrtc_version()
    assert made.nvrtc.count(".") == 2


@pytest.mark.parametrize(
    ("source", "word", "line"),
    [
        (cuda_sources.SERIALIZED, "serialized", r"injected.*PTX \d+: "),
        (cuda_sources.INJECTED, "injected", r"PTX \d+: "),
        (cuda_sources.IGNORED, "ignored", r"'setmaxnreg' ignored; unable to determine"),
    ],
    ids=["serialized", "injected", "ignored"],
)
def test_what_ptxas_changed_is_refused(cache, source, word, line):
    with pytest.raises(CompileError, match=rf"(?s)^a kernel: ptxas says '{word}': .*{line}"):
        nvrtc.compile(source, name="a kernel")
    assert nvrtc.compile(source, name="a kernel", strict=False).code.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "note",
    [
        "ptxas info    : (C7511) wgmma.mma_async instructions are Serialized due to",
        "ptxas info    : (C9999) warpgroup.wait is injected somewhere",
        "ptxas warning : 'setmaxnreg' IGNORED to maintain minimum register requirements.",
        "ptxas info    : (C9998) Potential Performance Loss: a note of tomorrow",
    ],
)
def test_every_refused_word_is_found_in_a_log(note):
    fine = "ptxas . 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    with pytest.raises(CompileError, match="ptxas says"):
        nvrtc._judge("k", nvrtc._Output(b"", "", f"{note}\n{fine}"), "13.0.88")


def test_a_kernel_may_be_called_by_a_refused_word(cache):
    assert nvrtc.compile(cuda_sources.PLAIN.replace("kernel", "injected"), name="x").registers


def test_warnings_of_the_front_end_are_not_notes_of_ptxas(cache):
    source = cuda_sources.PLAIN.replace("{ p", "{\n int ignored; p[1] = ignored; p")
    assert "ignored" in nvrtc.compile(source, name="x").log


def test_local_memory_and_spills_are_refused(cache):
    with pytest.raises(
        CompileError, match="local: values must stay in registers, got 256 bytes of"
    ):
        nvrtc.compile(cuda_sources.LOCAL, name="local")
    with pytest.raises(CompileError, match=r"got \d+ bytes of spill stores and \d+ of spill loads"):
        nvrtc.compile(cuda_sources.SPILLING, name="spills")


def test_a_log_that_tells_nothing_is_refused():
    with pytest.raises(CompileError, match="log must tell the stack frame"):
        nvrtc._judge("k", nvrtc._Output(b"", "", "ptxas info : fine"), "13.0.88")


def test_an_error_shows_the_line_of_generated_cuda(cache):
    source = cuda_sources.PLAIN.replace("+= 1", "+= one")
    with pytest.raises(CompileError) as caught:
        nvrtc.compile(source, name="MatmulV3")
    assert "MatmulV3: NVRTC refused" in str(caught.value)
    assert 'identifier "one" is undefined' in str(caught.value)
    assert "p[threadIdx.x] += one;" in str(caught.value)


def test_an_error_of_ptxas_shows_the_line_of_ptx(cache):
    source = cuda_sources.PLAIN.replace("p[threadIdx.x] += 1", 'asm volatile("foo.bar;")')
    with pytest.raises(
        CompileError, match=r"Not a name of any known instruction(.|\n)*PTX \d+: foo"
    ):
        nvrtc.compile(source, name="x")


def test_nvrtc_missing_is_a_device_error_with_the_command(cache, monkeypatch):
    binding = pytest.importorskip("cuda.bindings.nvrtc")

    def missing():
        raise RuntimeError('Failure finding "libnvrtc.so"\nsearched everywhere')

    monkeypatch.setattr(binding, "nvrtcVersion", missing)
    with pytest.raises(
        DeviceError, match=r'libnvrtc(.|\n)*pip install "nvidia-cuda-nvrtc==13.0'
    ) as e:
        nvrtc.nvrtc_version.__wrapped__()
    assert len(str(e.value).splitlines()) <= 10


def test_cuda_python_missing_is_a_device_error_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match='pip install "cuda-bindings'):
        nvrtc.nvrtc_version.__wrapped__()


GOLDEN = Path(__file__).parent / "golden"
RECORDED = (
    "--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v", "--no-cache",
    "--diag-suppress=177",
)  # fmt: skip
"""The flags that the kernels of the records were compiled with, which a record does not tell."""


@pytest.mark.parametrize("name", ["scalars", "cluster_multicast", "v3_8192"])
def test_records_measured_the_code_that_the_flags_make(name):
    source = (GOLDEN / f"{name}.cu").read_text()
    now, then = nvrtc._run(source, nvrtc.FLAGS), nvrtc._run(source, RECORDED)
    assert now.code, now.log
    assert now.code == then.code, "flags change code: measure anew"


def test_importing_the_module_imports_no_cuda():
    code = "import sys, tilus.nvrtc; sys.exit(any(m.split('.')[0] == 'cuda' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class TestCache:
    """What is kept, and what is believed."""

    def test_a_second_compilation_is_a_hit(self, cache, compiled):
        first = nvrtc.compile(cuda_sources.GOOD, name="a")
        assert nvrtc.compile(cuda_sources.GOOD, name="another name") == first
        assert len(compiled) == 1

    def test_another_source_version_or_flag_is_a_miss(self, cache, compiled, monkeypatch):
        nvrtc.compile(cuda_sources.PLAIN, name="x")
        nvrtc.compile(cuda_sources.PLAIN + "\n", name="x")
        monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "13.0.89")
        nvrtc.compile(cuda_sources.PLAIN, name="x")
        monkeypatch.setattr(nvrtc, "FLAGS", (*nvrtc.FLAGS, "--dopt=on"))
        nvrtc.compile(cuda_sources.PLAIN, name="x")
        assert len(compiled) == 4

    def test_a_refused_kernel_is_refused_again_from_the_cache(self, cache, compiled):
        for _ in range(2):
            with pytest.raises(CompileError, match="ptxas says 'serialized'"):
                nvrtc.compile(cuda_sources.SERIALIZED, name="x")
        assert len(compiled) == 1

    @pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "foreign", "other key"])
    def test_a_damaged_entry_is_rebuilt(self, cache, compiled, damage):
        good = nvrtc.compile(cuda_sources.PLAIN, name="x")
        (entry,) = cache.iterdir()
        content = entry.read_bytes()
        entry.write_bytes(damaged(damage, content, cache))
        assert nvrtc.compile(cuda_sources.PLAIN, name="x").code == good.code
        assert compiled.count(cuda_sources.PLAIN) == 2
        assert nvrtc.compile(cuda_sources.PLAIN, name="x").code == good.code
        assert compiled.count(cuda_sources.PLAIN) == 2

    def test_threads_share_a_folder(self, cache):
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(nvrtc.compile, cuda_sources.PLAIN, name="x") for _ in range(16)]
        assert len({job.result().code for job in jobs}) == 1
        assert [entry.suffix for entry in cache.iterdir()] == [""]  # no temporary file is left

    def test_processes_share_a_folder(self, cache):
        code = (
            "from tests import cuda_sources\nfrom tilus import nvrtc\n"
            "nvrtc.compile(cuda_sources.GOOD, name='x')"
        )
        env = {"TILUS_CACHE_DIR": str(cache.parent), "PYTHONPATH": ":".join(sys.path)}
        jobs = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(4)]
        assert [job.wait() for job in jobs] == [0] * 4
        assert len(list(cache.iterdir())) == 1


def damaged(how, content, folder):
    """Return ``content`` of a cache entry, damaged as disks and people do."""
    if how == "other key":
        nvrtc.compile(cuda_sources.GOOD, name="x")
        return next(e for e in folder.iterdir() if e.read_bytes() != content).read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    ways = {"truncated": content[:-100], "empty": b"", "foreign": b"GIF89a", "flipped": flipped}
    return ways[how]
