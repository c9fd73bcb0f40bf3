# SPDX-License-Identifier: Apache-2.0
"""The command line: doctor's findings, compiling, simulating, and messages for what is wrong."""

import json
import tomllib
import warnings
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.kernels import V3_FILE

from tilus import baseline, disasm, runtime, simulator
from tilus.cli import doctor, main, probe
from tilus.cli.doctor import Finding
from tilus.errors import DeviceError, SimulationError
from tilus.options import option

V3 = str(V3_FILE)
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
SMALL = ["num_stages=2", "block_m=128", "block_n=64", "block_k=16", "n_size=64", "k_size=32"]

FILL = """
import tilus
from tilus import float32


@tilus.autotune("rows", [1024, 512, 16])
class Fill(tilus.Script):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def __call__(self, out_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=float32, shape=[self.rows, 64])
        tile = self.register_tensor(dtype=float32, shape=[self.rows, 64], init=1.0)
        self.store_global(out, tile, offsets=[0, 0])
"""

MISSPELT = (
    FILL.replace("self.store_global(", "self.put(")
    + """
    def put(self, out, tile, offsets):
        self.store_globl(out, tile, offsets=offsets)
"""
)

WRONG = """
    def reference(self, out_ptr):
        out_ptr[...] = 2
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run ``tilus`` in a cache folder of its own; return its exit status and output."""
    monkeypatch.setattr(option, "_cache_dir", str(tmp_path / "cache"))
    monkeypatch.setattr(option.debug, "_dump_dir", None)
    monkeypatch.setenv("COLUMNS", "200")

    def run_(*words):
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        return result.exit_code, result.output

    return run_


def finding(what):
    """Return doctor's row called ``what``, or None."""
    return next((f for f in doctor.examine() if f.what == what), None)


class TestDoctor:
    """What doctor finds, one thing at a time."""

    def test_here_the_simulator_works_and_nvrtc_compiles(self, run):
        status, output = run("doctor")
        assert status == 0
        assert "The simulator works." in output
        for text in ("✓  Python", "ran a kernel", "compiled a kernel for sm_90a"):
            assert text in output

    def test_a_missing_gpu_is_named_with_what_mends_it(self, run, monkeypatch):
        def missing():
            raise DeviceError("no GPU", found="no driver", needed="one", mend="buy one")

        monkeypatch.setattr(runtime, "gpus", missing)
        monkeypatch.setattr(runtime, "require_gpu", missing)
        assert finding("GPU") == Finding("GPU", "no driver", False, "gpu", "buy one")
        status, output = run("doctor")
        assert status == 0
        assert "The GPU path lacks: GPU." in output

    def test_a_gpu_is_shown_with_its_facts_and_proved(self, monkeypatch):
        gpu = runtime.Gpu(0, "H200", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0), "580.1")
        now = runtime.Telemetry(1980, 3201, 90.0, 700.0, 30)
        monkeypatch.setattr(runtime, "gpus", lambda: (gpu,))
        monkeypatch.setattr(runtime, "require_gpu", lambda: gpu)
        monkeypatch.setattr(runtime, "telemetry", lambda gpu: now)
        monkeypatch.setattr(probe, "on_gpu", lambda gpu: True)
        facts = finding("GPU 0").found
        for text in ("H200", "9.0", "132 SMs", "232448 bytes", "60 MiB", "141 GiB", "700 W"):
            assert text in facts
        assert finding("driver").found == "580.1, CUDA 13.0"
        assert finding("target") == Finding("target", "GPU 0 ran a kernel", True, "gpu")
        monkeypatch.setattr(probe, "on_gpu", lambda gpu: False)
        assert not finding("target").ok

    def test_a_simulator_that_fails_makes_doctor_fail(self, run, monkeypatch):
        monkeypatch.setattr(probe, "on_simulator", lambda: False)
        status, output = run("doctor")
        assert status == 1
        assert "The simulator lacks: simulator." in output

    def test_a_foreign_tilus_is_named(self, monkeypatch):
        assert doctor.foreign_tilus() == []
        owners = {"tilus": ["tilus_hopper_tutorial", "Tilus"]}
        monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
        assert doctor.foreign_tilus() == ["tilus"]
        row = finding("foreign tilus")
        assert not row.ok and row.path == "simulator" and "pip uninstall tilus" in row.mend

    def test_missing_packages_are_named_with_the_command(self, monkeypatch):
        version = metadata.version

        def some(name):
            if name == "cuda-core":
                raise metadata.PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr(metadata, "version", some)
        monkeypatch.setattr(disasm, "find_tool", lambda name: None)
        assert "cuda-core>=1.2" in finding("cuda-core").mend
        assert finding("cuda-bindings").ok
        mend = "pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump"
        assert finding("disassemblers").mend == mend

    @pytest.mark.parametrize("libraries", [[], ["torch"], ["cupy"]])
    def test_a_comparison_needs_pytorch_or_cupy(self, monkeypatch, libraries):
        monkeypatch.setattr(baseline, "libraries", lambda: libraries)
        monkeypatch.setattr(metadata, "version", lambda name: "1.0")  # nvmath-python is no library
        row = finding("cuBLAS")
        assert row.ok == bool(libraries)
        extra = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["baseline"]
        packages = " ".join(f'"{name}"' for name in extra)
        assert row.mend == ("" if libraries else f"pip install {packages}, or PyTorch")

    def test_nvrtc_missing_is_named_with_the_command(self, monkeypatch):
        def missing():
            raise DeviceError("no compiler", "no libnvrtc", "it", "pip install nvrtc")

        monkeypatch.setattr(probe, "compiled", missing)
        row = finding("NVRTC")
        assert (row.ok, row.found, row.mend) == (False, "no libnvrtc", "pip install nvrtc")

    def test_a_cache_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(option, "_cache_dir", str(tmp_path))
        assert finding("cache folder").ok
        assert list(tmp_path.glob("doctor*")) == []
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(option, "_cache_dir", str(tmp_path / "file"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            row = finding("cache folder")
        assert not row.ok and "TILUS_CACHE_DIR" in row.mend

    def test_a_check_that_breaks_is_a_finding(self, monkeypatch):
        def check_moon():
            raise ValueError("not there")

        monkeypatch.setattr(doctor, "CHECKS", (check_moon, doctor.check_python))
        moon, python = doctor.examine()
        assert moon == Finding("moon", "ValueError: not there", False, "extra")
        assert python.ok

    def test_the_report_fits_a_narrow_terminal(self):
        console = Console(width=60, record=True)
        rows = [Finding("GPU", "a long sentence " * 9, False, "gpu", "do this")]
        assert doctor.report(rows, console) == 0
        assert max(map(len, console.export_text().splitlines())) <= 60


class TestCompile:
    """``tilus compile``."""

    def test_it_tells_what_a_block_takes(self, run):
        status, output = run("compile", V3, *SMALL)
        assert status == 0
        assert "MatmulWGMMAV3 num_stages=2 block_m=128 block_n=64 block_k=16\n" in output
        assert "160 threads a block" in output and "2 tensor maps" in output

    def test_an_open_schedule_takes_the_first_that_compiles(self, run):
        status, output = run("compile", V3, "block_n=128", "block_m=128", *SMALL[4:])
        assert status == 0
        assert "num_stages=2 block_m=128 block_n=128 block_k=16" in output

    def test_schedules_that_cannot_be_compiled_are_passed_over(self, run, tmp_path):
        (tmp_path / "fill.py").write_text(FILL)
        status, output = run("compile", str(tmp_path / "fill.py"))
        assert (status, output.splitlines()[0]) == (0, "Fill rows=16")
        status, output = run("compile", str(tmp_path / "fill.py"), "rows=512")
        assert status == 1
        assert "registers a thread" in output

    @pytest.mark.parametrize(
        ("stage", "text"),
        [
            ("ir", "mbarrier"),
            ("cuda", "__global__"),
            ("ptx", "wgmma.mma_async"),
            ("sass", "HGMMA"),
            ("log", "0 bytes spill stores"),
        ],
    )
    def test_it_shows_a_stage(self, run, stage, text):
        status, output = run("compile", V3, *SMALL, "--show", stage)
        assert status == 0
        assert text in output

    def test_it_writes_all_stages(self, run, tmp_path):
        status, _ = run("compile", V3, *SMALL, "--out", str(tmp_path))
        names = {path.suffix for path in tmp_path.glob("MatmulWGMMAV3/*")}
        assert status == 0
        assert names >= {".txt", ".cu", ".ptx", ".log", ".cubin", ".sass"}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([V3, "n_size=8"], "got no k_size. Add k_size=256."),
            ([V3, *SMALL, "colour=3"], "got colour. Check the spelling."),
            ([V3, "n_size"], "NAME=VALUE must be a name and a number, got 'n_size'"),
            ([V3, "n_size=many"], "got 'n_size=many'"),
            ([V3 + ":Other", *SMALL], "one of MatmulWGMMAV3, the classes of"),
            (["missing.py"], "KERNEL must be a Python file, got 'missing.py'"),
            ([V3, "num_stages=99", "block_k=64", *SMALL[4:]], "LanguageError"),
        ],
    )
    def test_mistakes_are_messages(self, run, words, message):
        status, output = run("compile", *words)
        assert status == 1
        assert message in output and "Traceback" not in output


def test_a_mistake_in_a_method_is_shown_with_who_called_it(run, tmp_path):
    (tmp_path / "fill.py").write_text(MISSPELT)
    status, said = run("compile", str(tmp_path / "fill.py"))
    assert status == 1 and "did you mean 'store_global'?" in said
    assert f"called from {tmp_path / 'fill.py'}:17\n" in said


class TestSimulate:
    """``tilus simulate``."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--size", str(10**12), "8", "8"), "MemoryError: Unable to allocate"),
            (("--size", "64", "64", "x"), "'x' is not a valid integer"),
            (("--seed", "-1"), "-1 is not in the range x>=0"),
            (("--size", "8", "8", "8", "--trace", "/proc/no/such"), "/proc/no/such"),
        ],
    )
    def test_what_it_cannot_do_is_said_in_a_line(self, run, words, said):
        status, output = run("simulate", V3, *SMALL[:4], *words)
        assert status in (1, 2) and said in output.splitlines()[-1]

    def test_a_product_is_compared_and_every_role_summed_up(self, run):
        status, output = run("simulate", V3, *SMALL[:4], "--size", "130", "64", "32")
        assert status == 0
        assert "no deadlock, no race, no broken protocol; proved: no order of moves" in output
        assert f"c_ptr: {130 * 64} elements as the reference has them" in output
        assert "block (0, 0, 0), the slowest of 2" in output
        cells = [line.split("│") for line in output.splitlines() if "│" in line]
        table = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in cells}
        assert table["TMA engine"][4] == str(2 * (128 + 64) * 16 * 2)
        assert table["tensor cores"][5] == str(2 * 128 * 64 * 32)
        assert table["warp 4"][1] == str(2 + 2)  # for each of two stages, then for both at the end

    def test_sizes_need_not_be_given(self, run):
        status, output = run("simulate", V3, *SMALL[:4])
        assert status == 0 and f"c_ptr: {256 * 256} elements" in output

    def test_a_trace_for_perfetto(self, run, tmp_path):
        path = tmp_path / "trace.json"
        words = ["m_size=130", "--trace", str(path), "--schedule", "random", "--seed", "3"]
        status, output = run("simulate", V3, *SMALL, *words)
        assert status == 0 and f"trace of 2 blocks: {path}" in output
        assert "under the schedule random, seed 3; others were not tried" in output
        assert json.loads(path.read_text())["traceEvents"]

    def test_a_verdict_says_how_to_repeat_it(self, run, tmp_path):
        broken = V3_FILE.read_text().replace("self.mbarrier.arrive(", "id(")
        assert broken != V3_FILE.read_text()
        (tmp_path / "broken.py").write_text(broken)
        status, output = run("simulate", str(tmp_path / "broken.py"), *SMALL, "m_size=64")
        assert status == 1
        assert "deadlock: nothing can move" in output and "waits for" in output
        assert "repeat: add --schedule late" in output
        words = [*SMALL, "m_size=64", "--schedule", "late"]
        status, output = run("simulate", str(tmp_path / "broken.py"), *words)
        assert status == 1 and "deadlock: nothing can move" in output

    @pytest.mark.parametrize(
        ("schedule", "said"),
        [("random", "add --schedule random --seed 7"), ("explored", "the same command")],
    )
    def test_other_verdicts_say_how_to_repeat_them_too(self, run, monkeypatch, schedule, said):
        found = simulator.Judgement(SimulationError("race", "a [b]"), 9, False, schedule, 7)
        asked = []
        monkeypatch.setattr(
            simulator, "judge", lambda kernel, arguments, **more: asked.append(more) or found
        )
        status, output = run("simulate", V3, *SMALL[:4], "--seeds", "3", "--cap", "5")
        assert status == 1 and asked == [{"seeds": 3, "cap": 5}]
        assert "race: a [b]" in output and f"repeat: {said}" in output

    def test_what_was_not_proved_is_said(self, run, monkeypatch):
        found = simulator.Judgement(None, 25)
        monkeypatch.setattr(simulator, "judge", lambda kernel, arguments, **more: found)
        status, output = run("simulate", V3, *SMALL[:4])
        assert status == 0 and "not proved: no verdict in 25 executions" in output

    def test_a_wrong_result_is_a_bad_end(self, run, tmp_path):
        (tmp_path / "wrong.py").write_text(FILL + WRONG)
        status, output = run("simulate", str(tmp_path / "wrong.py"), "rows=16")
        assert status == 1
        assert "out_ptr: 1024 of 1024 elements differ, first at [0, 0]: 1.0, not 2.0" in output

    @pytest.mark.parametrize(
        ("parameters", "status", "said"),
        [
            ("out", 0, "out_ptr: 1024 elements as the reference has them"),
            ("out, more=0", 0, "out_ptr: 1024 elements as the reference has them"),
            ("out, more", 1, "got parameters out, more. Write def reference(self, out_ptr)."),
            ("", 1, "reference must be a method reference(self, out_ptr) of Fill"),
        ],
    )
    def test_a_reference_takes_arguments_by_their_places(
        self, run, tmp_path, parameters, status, said
    ):
        own = WRONG.replace("out_ptr):", f"{parameters}):").replace("out_ptr[...] = 2", "BODY")
        own = own.replace("BODY", "out[...] = 1" if "out" in parameters else "pass")
        (tmp_path / "fill.py").write_text(FILL + own)
        assert (run("simulate", str(tmp_path / "fill.py"))[0]) == status
        assert said in " ".join(run("simulate", str(tmp_path / "fill.py"))[1].split())

    def test_without_a_reference_that_is_said(self, run, tmp_path):
        (tmp_path / "fill.py").write_text(FILL)
        status, output = run("simulate", str(tmp_path / "fill.py"), "rows=16")
        assert status == 0
        assert "out_ptr: 1024 of 1024 elements written; no reference to compare" in output
        status, output = run("simulate", str(tmp_path / "fill.py"), "--size", "1", "2", "3")
        assert status == 1 and "--size must be for a kernel with m_size, n_size, k_size" in output

    def test_bad_sizes_are_refused_as_on_a_gpu(self, run):
        status, output = run("simulate", V3, *SMALL[:5], "k_size=20", "m_size=128")
        assert status == 1
        assert "a_ptr must be of a pitch" in output

    def test_every_number_is_needed(self, run):
        status, output = run("simulate", str(V3_FILE.parents[1] / "first_kernels/vector_add.py"))
        assert status == 1
        assert "n must be given" in output


def test_bench_runs_the_workload_with_its_options():
    done = CliRunner().invoke(main, ["bench", V3, "--device", "sim", "--size", "64", "64", "64"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].startswith("ok v3 device=sim m=64 n=64 k=64 rel_err=")


def test_bench_refuses_what_is_no_matrix_product():
    file = V3_FILE.parents[1] / "first_kernels" / "vector_add.py"
    done = CliRunner().invoke(main, ["bench", str(file), "--device", "sim"])
    assert done.exit_code == 1
    rule = "KERNEL must be a matrix product, called with M, N, K, A, B and C, got VectorAdd(n, "
    assert rule in done.output


def test_bench_refuses_sizes_that_no_tensor_map_takes():
    done = CliRunner().invoke(main, ["bench", V3, "--device", "sim", "--size", "64", "64", "3"])
    assert done.exit_code == 1
    assert "multiple of 16 bytes" in done.output
