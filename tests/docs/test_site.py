# SPDX-License-Identifier: Apache-2.0
"""The site as a reader gets it: ``make html`` builds it, and a browser finds no fault."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_build" / "html"
SHOWN = ("hopper_matmul/matmul_v*.py", "first_kernels/*.py")
EXAMPLES = sorted(p for pattern in SHOWN for p in (ROOT / "examples").glob(pattern))
pytestmark = pytest.mark.timeout(900)
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def make_html() -> subprocess.CompletedProcess[str]:
    """Run the README's command."""
    command = ["make", "--no-print-directory", "html"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site from nothing."""
    for made in (ROOT / "docs" / "_build", ROOT / "docs" / "gallery"):
        shutil.rmtree(made, ignore_errors=True)
    result = make_html()
    assert result.returncode == 0, result.stdout + result.stderr
    return SITE


def test_v3s_page_has_what_it_promises(site: Path) -> None:
    html = (site / "tutorials" / "matmul-hopper" / "v3.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", html)
    assert "class MatmulWGMMAV3" in text
    assert text.count("stage = (stage + 1) % self.num_stages") == 3 + 2 + 1 + 1
    assert len(re.findall(r'src="[^"]+timelines-v3-(light|dark)', html)) == 2
    assert "simulated" in text
    assert 'href="../../reference/instructions.html#tilus.ops.wgmma.mma"' in html


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_gallery_has_run_the_kernel(site: Path, example: Path) -> None:
    page = site / "gallery" / example.parent.name / f"{example.stem}.html"
    text = page.read_text(encoding="utf-8")
    said = re.findall(r"^ok +(\w+)", text, re.MULTILINE)
    own = (example.stem.removeprefix("matmul_"), example.stem.title().replace("_", ""))
    assert len(said) == 1 and said[0] in own
    for kind in (".py", ".ipynb", ".zip"):
        assert re.search(rf'href="[^"]*/_downloads/[^"]*/{example.stem}{kind}"', text), kind


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_the_sources_the_site_carries_are_the_sources(site: Path, source: Path) -> None:
    copies = list((site / "_downloads").rglob(source.name))
    assert copies
    assert {copy.read_bytes() for copy in copies} == {source.read_bytes()}


def contents(site: Path) -> dict[str, str]:
    """Return a hash of every file of the site."""
    files = (path for path in site.rglob("*") if path.is_file())
    return {str(p.relative_to(site)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_two_builds_are_the_same_bytes(site: Path) -> None:
    first = contents(site)
    for made in (ROOT / "docs" / "_build", ROOT / "docs" / "gallery"):
        shutil.rmtree(made)
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
        "v9.html dark 1280px: console: a fault",
        "v9.html dark 1280px: script: missing is not defined",
        "v9.html dark 390px: axe image-alt",
        "v9.html dark 390px: a chart has no badge",
        "v9.html dark 390px: the kernel is not shown",
        "huge.html light 1280px: 3",
    ):
        assert complaint in result.stdout


def _missing() -> str:
    """Return what the browser check lacks on this machine, or ''."""
    if not Path(CHROMIUM).exists():
        return f"chromium at {CHROMIUM} (apt-get install chromium, or set CHROMIUM)"
    if shutil.which("node") is None:
        return "node (apt-get install nodejs npm)"
    if not (ROOT / "node_modules" / "axe-core").exists():
        return "playwright-core and axe-core (npm ci)"
    return ""
