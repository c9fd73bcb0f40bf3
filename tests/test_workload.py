# SPDX-License-Identifier: Apache-2.0
"""Running an example: what it says, what it keeps, and that a wrong kernel never ends with ok.

The GPU's side is played by NumPy: a device that counts launches, a kernel that may lie.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from tests.played import FACTS, Stage, kernel_like, rivals

import tilus
from tilus import (
    loader,
    option,
    product,
    records,
    runtime,
    verify,
    workload,
)
from tilus.errors import ArgumentError, LanguageError, TilusError

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "hopper_matmul" / "matmul_v3.py"


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    monkeypatch.setattr(option, "_cache_dir", str(tmp_path / "cache"))
    monkeypatch.setattr(option, "_device", "auto")
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def v3():
    return loader.find(EXAMPLE, tilus.Script)


def run(script, *words, version="v3"):
    """Run the command; an error becomes an exception."""
    workload.command(script, version).main(list(words), standalone_mode=False)


# ---- the whole program, on the simulator --------------------------------------------------------


def example(*words):
    command = [sys.executable, str(EXAMPLE), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_the_example_runs_on_the_simulator_and_says_so(tmp_path):
    done = example(
        "--device", "sim", "--size", "64", "72", "40", "--json", str(tmp_path / "r.json")
    )
    assert done.returncode == 0, done.stderr
    assert "simulator" in done.stdout.splitlines()[0] and "simulated cycles" in done.stdout
    assert "TFLOPS" not in done.stdout and " ms" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("ok v3 device=sim m=64 n=72 k=40 rel_err=")
    assert 1e-4 < float(last.rpartition("=")[2]) < 3e-4
    record = records.load(tmp_path / "r.json")
    (row,) = record.measurements
    assert row["latency_ms"] == [] and row["vs_cublas"] is None and row["regime"] == "simulated"
    assert record.environment["gpu"] is None and record.environment["device"] == "sim"
    assert records.staleness(record, ROOT) == ()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--device", "sim", "--size", "64", "64", "10"], 1, "a_ptr must be of a pitch"),
        (["--device", "sim", "--size", "64", "64", "10"], 1, "a multiple of 8 float16 elements"),
        (["--size", "64", "64"], 2, "'--size' requires 3 arguments"),
        (["--size", "64", "64", "0"], 2, "0 is not in the range"),
        (["--size", "64", "64", "99999999999"], 2, "99999999999 is not in the range"),
        (["--device", "sim", "--size", "2147483647", "64", "1048576"], 1, "Unable to allocate"),
        (["--device", "sim", "--size", "8", "8", "8", "--json", "/proc/no"], 1, "/proc/no"),
        (["--device", "tpu"], 2, "'tpu' is not one of"),
    ],
)
def test_what_is_wrong_is_said_in_a_few_lines(words, status, said):
    done = example(*words)
    assert done.returncode == status and said in done.stderr
    assert len(done.stderr.splitlines()) <= 10 and "Traceback" not in done.stderr
    assert not any(line.startswith("ok") for line in done.stdout.splitlines())


@pytest.mark.skipif(runtime.find_gpu() is not None, reason="there is a Hopper GPU")
def test_cuda_without_a_gpu_is_refused():
    done = example("--device", "cuda")
    assert done.returncode == 1 and "found:" in done.stderr
    assert "mend:" in done.stderr and "or run on the simulator: --device sim;" in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(runtime.find_gpu() is not None, reason="there is a Hopper GPU")
def test_auto_says_why_it_simulates(v3, capsys):
    run(v3, "--size", "16", "16", "16")
    assert capsys.readouterr().out.startswith("No Hopper GPU here: running on the simulator")
    assert option.current_device == "sim"


def test_what_takes_the_simulator_long_is_said_before(v3, monkeypatch, capsys):
    monkeypatch.setattr(workload, "LONG", 32**3)
    monkeypatch.setattr(workload, "_seconds", lambda launch: 512.0)
    run(v3, "--device", "sim", "--size", "32", "32", "32")
    first, *rest = capsys.readouterr().err.partition("2 launches")[2].splitlines()
    assert first == " of 32x32x32 take the simulator about 0:00:02 (hours:minutes:seconds)."
    told = [line for line in rest if line.startswith("launch ")]
    assert [line.partition(",")[0] for line in told] == ["launch 1 of 2", "launch 2 of 2"]
    assert all(line.endswith(": v3") for line in told)
    run(v3, "--device", "sim", "--size", "32", "32", "16")
    assert "launch" not in capsys.readouterr().err


def test_the_simulator_says_which_words_about_times_it_leaves_out(v3, capsys):
    words = "--device", "sim", "--size", "16", "16", "16"
    run(v3, *words, "--regime", "sustained")
    out = capsys.readouterr().out
    assert "takes no times: without effect here: --regime sustained\n" in out
    assert "no speed" in out
    run(v3, *words)
    assert "without effect" not in capsys.readouterr().out


def test_a_kernel_with_an_argument_more_is_refused(v3):
    def call(self, m_size, n_size, k_size, a_ptr, b_ptr, c_ptr, bias):
        raise AssertionError("never called")

    more = type("More", (), {"__call__": call})
    with pytest.raises(ArgumentError, match=r"C, got More\(m_size, .*, bias\)\. Run its own file"):
        run(more, "--device", "sim", "--size", "16", "16", "16")


# ---- lies ---------------------------------------------------------------------------------------


def spoilt(v3, spoil):
    """Return a script like V3 that spoils its operands after each run."""

    class Spoilt:
        __call__ = v3.__call__

        def __init__(self):
            self.kernel = v3(2, 128, 64, 16)
            self.schedule, self.bind = self.kernel.schedule, self.kernel.bind

        @property
        def last_run(self):
            return self.kernel.last_run

    def call(self, m, n, k, a, b, c):
        self.kernel(m, n, k, a, b, c)
        spoil(a, b, c)

    Spoilt.__call__ = call
    return Spoilt


def last_row_zero(a, b, c):
    c[-1] = 0


def integers_only(a, b, c):
    if not np.isin(a, (-1, 0, 1)).all():
        c[3, 4] *= 1.01


def rounded_input(a, b, c):
    if np.isin(a, (-1, 0, 1)).all():
        c[2, 2] += 1


def change_b(a, b, c):
    b[0, 0] += 1


def write_before(a, b, c):
    np.lib.stride_tricks.as_strided(c.base if c.base.ndim == 1 else c.base.base)[0] = 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (last_row_zero, "are wrong"),
        (integers_only, "(bounded check)"),
        (rounded_input, "(exact check)"),
        (change_b, "B was changed"),
        (write_before, "128 bytes before C were changed"),
    ],
)
def test_a_kernel_that_is_wrong_never_ends_with_ok(v3, spoil, said, capsys, tmp_path):
    with pytest.raises(TilusError, match="v3 at 32x24x16 is wrong") as caught:
        words = ["--device", "sim", "--size", "32", "24", "16", "--json", str(tmp_path / "r.json")]
        run(spoilt(v3, spoil), *words)
    assert said in str(caught.value)
    assert "ok" not in capsys.readouterr().out and not (tmp_path / "r.json").exists()


def test_main_turns_errors_into_a_status(v3, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["v3", "--device", "sim", "--size", "32", "24", "16"])
    with pytest.raises(SystemExit) as caught:
        workload.main(spoilt(v3, last_row_zero), "v3")
    assert caught.value.code == 1 and capsys.readouterr().err.startswith("error: v3 at 32x24x16")


# ---- measuring, on a GPU played by NumPy --------------------------------------------------------


@pytest.fixture
def stage(monkeypatch):
    return Stage().play(monkeypatch)


def played(v3, stage, monkeypatch, tmp_path, *words, ours=2.0):
    script = kernel_like(v3, stage.pace("v3", ours))
    monkeypatch.setattr(
        records,
        "generated",
        lambda cls, schedule, arguments: {
            "schedule": dict(schedule),
            "arguments": dict(arguments),
            "sha256": "0" * 64,
        },
    )
    monkeypatch.setattr(product, "facts", lambda kernel, gpu: dict(FACTS))
    path = tmp_path / "v3.json"
    run(script, "--device", "cuda", "--size", "64", "48", "32", "--json", str(path), *words)
    return records.load(path)


def test_a_measurement_says_how_much_faster_cublas_is(v3, stage, monkeypatch, tmp_path, capsys):
    rivals(monkeypatch, stage, {"cublas": 1.5, "cublaslt": 1.2})
    record = played(v3, stage, monkeypatch, tmp_path)
    rows = {row["version"]: row for row in record.measurements}
    assert list(rows) == ["v3", "cublas", "cublaslt"]
    assert rows["v3"]["latency_ms"] == pytest.approx([2.0] * 9)
    assert rows["v3"]["vs_cublas"] == pytest.approx(0.75)
    assert rows["v3"]["best_cublas"] == "cublaslt"
    assert rows["v3"]["vs_best_cublas"] == pytest.approx(0.6)
    assert rows["cublas"]["vs_cublas"] == 1.0 and rows["cublas"]["schedule"] is None
    assert rows["cublas"]["kernel"] == "sm90_cublas" and "kernel" not in rows["v3"]
    assert rows["v3"]["sm_mhz"] == [1500.0] * 9 and rows["v3"]["launches"] == [30] * 9
    assert all(row["verified"] and row["verification"]["worst"] <= 1 for row in rows.values())
    assert record.environment["gpu"] == "NVIDIA H200" and record.environment["form"] == "SXM"
    assert record.environment["cublas"]["cublas"] == {"library": "numpy", "version": "1.0"}
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("ok v3 device=cuda m=64 n=48 k=32 rel_err=")
    assert "0.750 (0.750-0.750)" in out and "num_stages=4" in out


def test_both_regimes_can_be_asked_for(v3, stage, monkeypatch, tmp_path):
    rivals(monkeypatch, stage, {"cublas": 1.5})
    record = played(
        v3, stage, monkeypatch, tmp_path, "--regime", "burst", "--regime", "sustained", ours=20.0
    )
    found = [(r["version"], r["regime"], len(r["latency_ms"])) for r in record.measurements]
    assert found[:2] == [("v3", "burst", 9), ("cublas", "burst", 9)]
    assert found[2:] == [("v3", "sustained", 3), ("cublas", "sustained", 3)]
    assert record.summary("v3", 64, 48, 32, "sustained").vs_cublas == pytest.approx(0.075)


def test_without_cublas_there_is_no_ratio(v3, stage, monkeypatch, tmp_path, capsys):
    rivals(monkeypatch, stage, {})
    (row,) = played(v3, stage, monkeypatch, tmp_path).measurements
    assert row["vs_cublas"] is None and row["latency_ms"]
    assert 'There is no cuBLAS to compare with. mend: pip install "cupy-' in capsys.readouterr().out


def test_a_rival_that_computes_something_else_is_no_rival(v3, stage, monkeypatch, tmp_path):
    def in_half(a, b, c):
        total = np.zeros(c.array.shape, np.float16)
        for k in range(a.array.shape[1]):
            total += np.outer(a.array[:, k], b.array[:, k])
        c.array[...] = total

    rivals(monkeypatch, stage, {"cublas": 1.0}, multiply=in_half)
    with pytest.raises(TilusError, match="cublas at 64x48x32 is wrong"):
        played(v3, stage, monkeypatch, tmp_path)


def test_a_rival_that_does_nothing_is_no_rival(v3, stage, monkeypatch, tmp_path):
    """C still holds the kernel's right result unless it is poisoned in between."""
    rivals(monkeypatch, stage, {"cublas": 0.1}, multiply=lambda a, b, c: None)
    with pytest.raises(TilusError, match="never written"):
        played(v3, stage, monkeypatch, tmp_path)


def test_timed_numbers_are_normal_and_the_same_each_time(v3):
    first, second = (product.Product((64, 64, 64), None).case for _ in range(2))
    assert (first.a == second.a).all() and (first.b == second.b).all()
    assert len(np.unique(first.a)) > 2000 and 0.95 < first.a.astype(np.float32).std() < 1.05


def test_a_record_is_about_a_kernel_in_the_repository(v3, tmp_path):
    copy = tmp_path / "matmul_v3.py"
    copy.write_text(EXAMPLE.read_text())
    stranger = loader.find(copy, tilus.Script)
    words = ["--device", "sim", "--size", "16", "16", "16", "--json", str(tmp_path / "r.json")]
    with pytest.raises(TilusError, match="--json must be used with a kernel below"):
        run(stranger, *words)
    assert product.below(EXAMPLE) == "examples/hopper_matmul/matmul_v3.py"


@pytest.mark.parametrize(
    ("name", "form"),
    [("NVIDIA H200", "SXM"), ("NVIDIA H100 80GB HBM3", "SXM"), ("NVIDIA H100 PCIe", "PCIe"),
     ("NVIDIA H200 NVL", "NVL"), ("NVIDIA GH200 480GB", "GH200"), ("NVIDIA A100", "unknown")],
)  # fmt: skip
def test_the_form_of_a_gpu(name, form):
    assert records.form(name) == form


def test_guards_are_where_the_kernel_does_not_look():
    case = verify.Case.draw("exact", 8, 8, 8, seed=0)
    operands = product.Operands.place(case, None)
    assert (
        operands.c.shape == (8, 8) and operands.c.ctypes.data - operands.memory.ctypes.data == 128
    )


def test_an_error_is_told_with_its_notes(capsys):
    def fail():
        error = LanguageError("'self' has no 'x'")
        error.add_note("called from kernel.py:3")
        raise error

    assert workload.status(click.Command("v3", callback=fail), []) == 1
    said = ["error: 'self' has no 'x'", "called from kernel.py:3"]
    assert capsys.readouterr().err.splitlines() == said


def test_a_library_that_is_missing_is_named_with_its_cure(capsys):
    program = click.Command("x", callback=lambda: importlib.import_module("no_such_library"))
    assert workload.status(program, []) == 1
    error, mend = capsys.readouterr().err.splitlines()
    assert error == "error: No module named 'no_such_library'"
    assert mend == f"mend: {sys.executable} -m pip install no_such_library"


def test_a_script_has_one_record_and_its_docstring_is_its_help(capsys):
    seen = []
    program = workload.on_record(
        lambda path: seen.append(path) or 3,
        Path("usual.json"),
        "Time it.\n\n    a   b\n    c   d\n",
    )
    assert workload.status(program, []) == workload.status(program, ["other.json"]) == 3
    assert seen == ["usual.json", "other.json"]
    assert workload.status(program, ["--help"]) == 0
    assert "    a   b\n" in capsys.readouterr().out
