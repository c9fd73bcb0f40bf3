# SPDX-License-Identifier: Apache-2.0
"""Give the members of downloadable zips one fixed time: two builds are the same bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

EPOCH = (1980, 1, 1, 0, 0, 0)


def normalise(path: Path) -> None:
    """Write the zip again with the earliest time a zip can hold."""
    with zipfile.ZipFile(path) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in sorted(members):
            new.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)


def normalise_all(app: Sphinx, exception: Exception | None) -> None:
    """Normalise every zip of a finished build."""
    if exception is None:
        for path in Path(app.outdir).rglob("*.zip"):
            normalise(path)


def setup(app: Sphinx) -> None:
    """Work last, on what is in the output."""
    app.connect("build-finished", normalise_all, priority=999)
