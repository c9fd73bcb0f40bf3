# SPDX-License-Identifier: Apache-2.0
"""A build that takes minutes says how far it is, and the next one does not read all again."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from ladder import absent
from ladder.phases import Progress
from sphinx.application import Sphinx


def test_a_phase_tells_its_pages_every_few_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(every=0.05)
    progress.watch()
    progress.phase("reading 3 pages", 3)
    for _ in range(5):  # more events than pages: an index is written as well
        progress.page()
    deadline = time.monotonic() + 10
    lines = capfd.readouterr().err
    while lines.count("... 3 of 3 pages") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        lines += capfd.readouterr().err
    progress.end()
    assert re.match(r" +0 s  reading 3 pages\n( +\d s  \.\.\. \d of 3 pages\n)+", lines)
    assert lines.count("... 3 of 3 pages") >= 2


def test_a_page_is_read_again_once_the_file_it_wants_is_there(tmp_path: Path) -> None:
    (tmp_path / "index.rst").write_text("Page\n====\n")
    record, read = tmp_path / "record.json", []

    def build() -> list[str]:
        read.clear()
        app = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "trees", "html", status=None)
        app.connect("source-read", lambda app, name, text: read.append(name))
        app.connect("source-read", lambda app, *_: app.env.note_dependency(str(record)))
        absent.setup(app)
        app.build()
        return list(read)

    assert build() == ["index"]
    assert build() == []
    record.write_text("{}")
    assert build() == ["index"]
    assert build() == []
