# SPDX-License-Identifier: Apache-2.0
"""The site as a reader gets it: ``make html`` builds it, and a browser finds no fault."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "tested-site"
"""Not where ``make html`` leaves the reader's site, which testing does not touch."""
SITE = BUILD / "html"
PLOTS = BUILD / "plot_directive"
GALLERY = ROOT / "docs" / "gallery"
SHOWN = ("hopper_matmul/matmul_v*.py", "first_kernels/*.py")
EXAMPLES_FOLDER = ROOT / "examples"
EXAMPLES = sorted(p for pattern in SHOWN for p in EXAMPLES_FOLDER.glob(pattern))
VERSIONS = [p.stem.removeprefix("matmul_") for p in EXAMPLES if p.stem.startswith("matmul_v")]
TRACES = json.loads((ROOT / "plots" / "data" / "trace.json").read_text(encoding="utf-8"))["traces"]
RECORDED = sorted({trace["version"] for trace in TRACES})
ANATOMY = [
    "The problem",
    "The whole kernel",
    "What changed",
    "Why it works",
    "Walk through the code",
    "What goes wrong",
    "Performance",
    "Exercises",
    "What is next",
]
pytestmark = pytest.mark.timeout(900)
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def make_html() -> subprocess.CompletedProcess[str]:
    """Run the README's command, into a folder of its own."""
    command = ["make", "--no-print-directory", "html", f"BUILD={BUILD}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site from nothing."""
    for made in (BUILD, GALLERY):
        shutil.rmtree(made, ignore_errors=True)
    result = make_html()
    assert result.returncode == 0, result.stdout + result.stderr
    phases = re.findall(r"^ *\d+ s  (\w+)", result.stderr, re.MULTILINE)
    assert phases == ["running", "reading", "writing"], result.stderr
    return SITE


def page_of(site: Path, version: str) -> str:
    """Return the HTML of a step's page."""
    page = site / "tutorials" / "matmul-hopper" / f"{version}.html"
    return page.read_text(encoding="utf-8")


def plain(html: str) -> str:
    """Return a page's text."""
    return unescape(re.sub(r"<[^>]+>", "", html))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_has_its_anatomy(site: Path, version: str) -> None:
    titles = re.findall(r"<h2>(.*?)<a", page_of(site, version))
    parts = [part for title in titles for part in ANATOMY if title.startswith(part)]
    assert parts == ANATOMY


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_has_what_it_promises(site: Path, version: str) -> None:
    html = page_of(site, version)
    source = (EXAMPLES_FOLDER / "hopper_matmul" / f"matmul_{version}.py").read_text()
    kernel = re.findall(r"^class (\w+)\(tilus\.Script\)", source, re.MULTILINE)
    python = "".join(re.findall(r'<div class="highlight-python.*?</pre>', html, re.DOTALL))
    assert f"class {kernel[0]}(tilus.Script)" in plain(python)
    assert html.count('<div class="ladder-diff') == (version != "v0")
    assert len(re.findall(rf'src="[^"]+timelines-{version}-(light|dark)', html)) == 2
    assert re.search(rf'href="[^"]+_downloads/[^"]+/matmul_{version}\.py"', html)
    assert f'href="../../gallery/hopper_matmul/matmul_{version}.html"' in html
    assert 'href="../../reference/instructions.html#tilus.ops.' in html


@pytest.mark.parametrize("version", RECORDED)
def test_a_recorded_block_stands_on_its_page(site: Path, version: str) -> None:
    html = page_of(site, version)
    assert len(re.findall(rf'src="[^"]+beside-{version}-(light|dark)', html)) == 2
    assert 'class="record-table trace-table' in html


def test_v3_shows_each_role_and_its_ring(site: Path) -> None:
    html = page_of(site, "v3")
    python = "".join(re.findall(r'<div class="highlight-python.*?</pre>', html, re.DOTALL))
    assert plain(python).count("stage = (stage + 1) % self.num_stages") == 3 + 2 + 1 + 1
    assert len(re.findall(r'src="[^"]+ring-v3-(light|dark)', html)) == 2
    assert 'href="../../reference/instructions.html#tilus.ops.wgmma.mma"' in html


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_gallery_has_run_the_kernel(site: Path, example: Path) -> None:
    page = site / "gallery" / example.parent.name / f"{example.stem}.html"
    text = page.read_text(encoding="utf-8")
    said = re.findall(r"^ok +(\w+)", text, re.MULTILINE)
    kernels = re.findall(r"^class (\w+)\(tilus\.Script\)", example.read_text(), re.MULTILINE)
    own = [example.stem.removeprefix("matmul_"), *kernels]
    assert len(said) == 1 and said[0] in own
    for kind in (".py", ".ipynb", ".zip"):
        assert re.search(rf'href="[^"]*/_downloads/[^"]*/{example.stem}{kind}"', text), kind


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_the_sources_the_site_carries_are_the_sources(site: Path, source: Path) -> None:
    copies = list((site / "_downloads").rglob(source.name))
    assert copies
    assert {copy.read_bytes() for copy in copies} == {source.read_bytes()}


def test_the_failure_gallery_shows_every_mutant(site: Path) -> None:
    html = (site / "failures.html").read_text(encoding="utf-8")
    patches = sorted(path.stem for path in (EXAMPLES_FOLDER / "failures").glob("*.patch"))
    assert len(patches) >= 20
    for name in patches:
        section = html.partition(f'<section id="{name}">')[2].partition("</section>")[0]
        assert 'class="highlight-diff' in section and "Error: " in plain(section), name
        assert html.count(f'href="#{name}"') >= 2  # in the table and among the page's parts


def contents(site: Path) -> dict[str, str]:
    """Return a hash of every file of the site."""
    files = (path for path in site.rglob("*") if path.is_file())
    return {str(p.relative_to(site)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def samples() -> list[Path]:
    """Return the largest figure of each kind, on a dark page.

    Others of its kind are the same functions' with the data of another version, or other colours.
    """
    drawn = sorted(PLOTS.rglob("*-dark-*.svg"), key=lambda path: (path.stat().st_size, path))
    return list({re.sub(r"(-v\d+)?-dark-.*", "", path.name): path for path in drawn}.values())


def test_two_builds_are_the_same_bytes(site: Path) -> None:
    """The second one makes all anew but most figures, on which a build spends half of its time."""
    first, again = contents(site), samples()
    assert again
    for made in {GALLERY, *BUILD.iterdir()} - {PLOTS}:
        shutil.rmtree(made)
    for figure in again:
        figure.unlink()
    assert make_html().returncode == 0
    second = contents(site)
    different = {name for name in first | second if first.get(name) != second.get(name)}
    assert not different


def browse(site: Path) -> subprocess.CompletedProcess[str]:
    """Look at a site in a browser; skip where there is none, but not under CI."""
    missing = _missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"the browser check needs {missing}")
    if missing:
        pytest.skip(f"the browser check needs {missing}")
    command = ["node", "tests/docs/browser.mjs", str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_browser_finds_no_fault(site: Path) -> None:
    result = browse(site)
    assert result.returncode == 0, result.stdout + result.stderr


BAD_PAGE = """<!DOCTYPE html><html lang="en" data-theme="dark"><title>Bad</title><main><h1>Bad</h1>
<img src="https://example.invalid/x.png"><p style="width: 2000px">wide</p>
<div class="chart"><img alt="" src="nothing.svg"></div>
<pre><b>same</b> <b>same</b> <i style="background: #222"><b>same</b></i></pre>
<pre style="color: #777; background: #888"><span class="k">if</span> <span class="k">if</span></pre>
<script>console.error("a fault"); document.title = missing.name</script></main></html>"""


def test_the_browser_check_finds_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "matmul-hopper" / "v9.html"
    page.parent.mkdir()
    page.write_text(BAD_PAGE)
    (page.parent / "huge.html").write_text(f"<!-- {os.urandom(300_000).hex()} -->")
    result = browse(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    for complaint in (
        "v9.html light 1280px: asks another host: https://example.invalid/x.png",
        "v9.html light 390px: scrolls sideways: 20",
        "v9.html light 390px: its theme is dark",
        "v9.html dark 390px: console: a fault",
        "v9.html dark 390px: script: missing is not defined",
        "v9.html dark 390px: axe image-alt",
        "v9.html light 390px: axe color-contrast: <b>same</b>",
        "v9.html dark 1280px: axe color-contrast: <b>same</b>",
        "v9.html dark 390px: a chart has no badge",
        "v9.html dark 390px: the kernel is not shown",
        "huge.html light 1280px: 3",
    ):
        assert complaint in result.stdout, result.stdout
    assert result.stdout.count("contrast: <b>same") == 4  # the last word, on its own background
    assert result.stdout.count('contrast: <span class="k">if') == 4  # once a look


def _missing() -> str:
    """Return what the browser check lacks on this machine, or ''."""
    if not Path(CHROMIUM).exists():
        return f"chromium at {CHROMIUM} (apt-get install chromium, or set CHROMIUM)"
    if shutil.which("node") is None:
        return "node (apt-get install nodejs npm)"
    if not (ROOT / "node_modules" / "axe-core").exists():
        return "playwright-core and axe-core (npm ci)"
    return ""
