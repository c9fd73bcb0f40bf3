# SPDX-License-Identifier: Apache-2.0
"""Figures are drawn again when anything behind them has changed, in both themes, with a badge."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from sphinx.cmd.build import main

ROOT = Path(__file__).parents[2]
CONF = """
import os, sys
sys.path[:0] = [{extensions!r}, {plots!r}, {failures!r}, os.path.abspath("plots")]
extensions = ["matplotlib.sphinxext.plot_directive", "ladder.numbers", "ladder.charts",
              "ladder.gallery"]
plot_working_directory = os.getcwd()
plot_formats = ["svg"]
plot_html_show_source_link = False
plot_rcparams = {{"svg.hashsalt": "test"}}
figure_sources = ["plots/*.py", "src/*.py"]
record_folders = ["plots/data"]
"""
SCRIPT = """
import matplotlib.pyplot as plt
from pathlib import Path

def draw(theme):
    plt.figure(figsize=(1, 1))
    plt.plot([0, len(Path("src/behind.py").read_text())])
"""
PAGE = """
Page
====

.. chart:: plot_test.draw
   :badge: simulated
   :alt: a line

   The caption.
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a site with one chart, whose figure depends on a file that the page does not name."""
    folders = {
        "extensions": str(ROOT / "docs/_ext"),
        "plots": str(ROOT / "plots"),
        "failures": str(ROOT / "examples/failures"),
    }
    for name, text in (
        ("conf.py", CONF.format(**folders)),
        ("plots/plot_test.py", SCRIPT),
        ("src/behind.py", "a"),
        ("docs/index.rst", PAGE),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # its conf.py changes it
    with plt.rc_context():
        yield tmp_path
    sys.modules.pop("plot_test", None)


def figures(project: Path) -> dict[str, bytes]:
    """Build; return the images that the page shows, by theme."""
    assert main(["-q", "-W", "-c", ".", "-d", "trees", "docs", "out"]) == 0
    html = (project / "out" / "index.html").read_text(encoding="utf-8")
    images = re.findall(r"<img [^>]*only-[^>]*>", html)
    return {
        re.findall(r"only-(\w+)", image)[0]: (
            project / "out" / re.findall(r'src="([^"]+)"', image)[0]
        ).read_bytes()
        for image in images
    }


def test_one_figure_for_each_theme(project: Path) -> None:
    assert set(figures(project)) == {"light", "dark"}
    html = (project / "out" / "index.html").read_text(encoding="utf-8")
    assert html.count('alt="a line"') == 2
    kept = re.findall(r'<img [^>]*height="72" [^>]*width="72"', html)
    assert len(kept) == 2  # a browser keeps their place
    assert '<span class="badge badge-simulated">simulated</span>' in html
    assert "The caption." in html


def test_an_edit_behind_a_figure_draws_it_again(project: Path) -> None:
    before = figures(project)
    assert figures(project) == before
    (project / "src" / "behind.py").write_text("a longer file, another line")
    assert figures(project)["light"] != before["light"]


@pytest.mark.parametrize(
    ("option", "file"),
    [(":record: v3", "v3"), (":trace: v3", "trace"), (":loads: zeros", "why")],
)
def test_a_chart_of_a_record_that_is_not_there_says_so(
    project: Path, option: str, file: str
) -> None:
    page = project / "docs" / "index.rst"
    page.write_text(PAGE.replace(":badge: simulated", option), encoding="utf-8")
    assert figures(project) == {}
    assert f"Not measured yet: there is no record plots/data/{file}.json" in (
        project / "out" / "index.html"
    ).read_text(encoding="utf-8")
