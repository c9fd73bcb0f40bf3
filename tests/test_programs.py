# SPDX-License-Identifier: Apache-2.0
"""Every program of scripts/ and examples/: what it cannot do is said in a few lines."""

import runpy
import sys
from pathlib import Path

import pytest

from tilus import runtime
from tilus.errors import DeviceError

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(
    path
    for folder in ("scripts", "examples", "plots")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in ("", ".py") and path.is_file() and '"__main__"' in path.read_text()
)
RECORD = "there-is-none/record.json"
WORDS = {
    "scripts/gpu": ["doctor"],
    "scripts/suite": ["measure", RECORD],
    "examples/failures/on_gpu.py": ["--json", RECORD],
}
"""What a program is told to do on a GPU, where it is neither to write a record, as most of scripts/
do, nor to run on a device, as most examples do."""
ON_CPU = {
    "scripts/compile-times": [RECORD],
    "scripts/prose.py": [RECORD],
    "examples/failures/mutants.py": ["there-is-none"],
}
"""What needs no GPU, with words that no program can do anything with."""


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a program on a machine without a GPU; return its exit status and what it says of it."""

    def no_gpu():
        raise DeviceError("no GPU that will do", needed="a Hopper GPU", mend="TILUS_DEVICE=sim")

    def run(program, words):
        monkeypatch.setattr(sys, "argv", [program, *words])
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(str(ROOT / program), run_name="__main__")
        return caught.value.code, capsys.readouterr().err

    monkeypatch.setattr(runtime, "require_gpu", no_gpu)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.parametrize("program", [name(p) for p in PROGRAMS if name(p) not in ON_CPU])
def test_without_a_gpu_a_program_says_what_it_needs(program, run, monkeypatch):
    monkeypatch.syspath_prepend(str((ROOT / program).parent))  # as python PROGRAM does
    usual = [RECORD] if program.startswith("scripts/") else ["--device", "cuda"]
    code, said = run(program, WORDS.get(program, usual))
    assert code == 1
    assert said.splitlines()[-3:] == [
        "error: no GPU that will do",
        "needed: a Hopper GPU",
        "mend: TILUS_DEVICE=sim",
    ]


@pytest.mark.parametrize(
    ("program", "words"), [*ON_CPU.items(), ("scripts/gpu", ["--join", "out.json", RECORD])]
)
def test_what_is_not_there_is_named(program, words, run):
    code, said = run(program, words)
    assert code in (1, 2)
    assert words[-1] in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("scripts/gpu", ["--join", "out.json"]),
        ("scripts/gpu", ["--join", "out.json", "broken.json"]),
        ("examples/failures/on_gpu.py", ["--json", RECORD, "--device", "sim", "--known"]),
    ],
)
def test_records_that_are_none_are_told_in_a_line(program, words, run, monkeypatch):
    monkeypatch.syspath_prepend(str((ROOT / program).parent))
    Path("broken.json").write_text("{")
    code, said = run(program, [*words, "broken.json"] if words[-1] == "--known" else words)
    assert code in (1, 2)
    assert "records to join" in said or "JSON" in said.splitlines()[-1]
