# SPDX-License-Identifier: Apache-2.0
"""A page says what it is about where it is linked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sphinx.application import Sphinx

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "A <title>\n=========\n\n.. container:: opening\n\n   One < idea.\n\nThe rest.\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [(PAGE, "One &lt; idea."), (PAGE.replace("idea", "long " * 60), "One &lt; long ")],
)
def test_a_page_is_described_by_its_opening(tmp_path: Path, text: str, said: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.rst").write_text(text, encoding="utf-8")
    settings = {"extensions": ["ladder.head"], "html_theme": "basic"}
    folders = docs, None, tmp_path / "out", tmp_path / "trees"
    Sphinx(*folders, "html", settings, status=None, warning=None).build()
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    (line,) = (line for line in html.splitlines() if 'name="description"' in line)
    content = line.partition('content="')[2].partition('"')[0]
    assert content.startswith(said) and "The rest" not in content
    assert len(content.replace("&lt;", "<")) <= 200
    assert f'<meta property="og:description" content="{content}"' in html
    assert '<meta property="og:title" content="A &lt;title&gt;"' in html
    assert "<title>A &lt;title&gt;</title>" in html
