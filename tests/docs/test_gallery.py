# SPDX-License-Identifier: Apache-2.0
"""What has been run, drawn or measured is forgotten when what is behind it has changed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ladder import gallery, zips

from tilus.errors import DeviceError


@pytest.fixture
def project(tmp_path: Path) -> Any:
    """Return a stand-in for Sphinx in a project of one kernel and one runtime module."""
    for name in ("examples/kernel.py", "src/tilus/runtime.py", "plots/data/v3.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    config = SimpleNamespace(figure_sources=["examples/**/*.py", "src/**/*.*", "plots/**/*.*"])
    return SimpleNamespace(confdir=tmp_path, srcdir=tmp_path / "docs", config=config)


def ran(project: Any) -> Path:
    """Build once, and leave an output as an example that has run does."""
    gallery.forget_stale(project, project.config)
    output = project.srcdir / "gallery" / "output.rst"
    output.write_text("it ran")
    return output


def test_an_unchanged_example_does_not_run_again(project: Any) -> None:
    output = ran(project)
    gallery.forget_stale(project, project.config)
    assert output.exists()


@pytest.mark.parametrize("name", ["examples/kernel.py", "src/tilus/runtime.py"])
def test_an_edit_behind_an_example_forgets_its_output(project: Any, name: str) -> None:
    output = ran(project)
    (project.confdir / name).write_text("edited")
    gallery.forget_stale(project, project.config)
    assert not output.exists()


def test_a_new_and_a_renamed_file_change_the_hash(project: Any) -> None:
    def now() -> str:
        return gallery.digest(gallery.sources(project.config, project.confdir), project.confdir)

    before = now()
    new = project.confdir / "src" / "tilus" / "new.py"
    new.write_text("")
    with_new = now()
    new.rename(new.with_name("renamed.py"))
    assert len({before, with_new, now()}) == 3


def test_with_a_gpu_every_build_measures(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    output = ran(project)
    monkeypatch.setattr(gallery, "find_gpu", lambda: object())
    gallery.forget_stale(project, project.config)
    assert not output.exists()
    example = project.confdir / "examples" / "hopper_matmul" / "matmul_v3.py"
    record = project.confdir / "docs" / "_build" / "measured" / "v3.json"
    assert gallery.arguments({}, {"src_file": str(example)}) == ["--json", str(record)]
    other = project.confdir / "examples" / "first_kernels" / "vector_add.py"
    assert gallery.arguments({}, {"src_file": str(other)}) == []


def test_what_another_build_measured_is_not_measured_now(project: Any) -> None:
    record = project.confdir / gallery.MEASURED / "v3.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    gallery.forget_stale(project, project.config)
    assert not record.exists()


def test_require_gpu_fails_without_one(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("found none")

    monkeypatch.setattr(gallery, "require_gpu", absent)
    monkeypatch.setenv("REQUIRE_GPU", "1")
    with pytest.raises(DeviceError):
        gallery.forget_stale(project, project.config)


def test_zips_made_at_different_times_become_the_same(tmp_path: Path) -> None:
    made = []
    for year, names in ((2001, "ab"), (2024, "ba")):
        path = tmp_path / f"{year}.zip"
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), f"content of {name}")
        zips.normalise(path)
        made.append(path.read_bytes())
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "2001.zip") as file:
        assert {n: file.read(n) for n in file.namelist()} == {
            "a": b"content of a",
            "b": b"content of b",
        }
