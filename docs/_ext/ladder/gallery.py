# SPDX-License-Identifier: Apache-2.0
"""Keep sphinx-gallery honest: examples run again when anything behind them has changed.

By itself sphinx-gallery compares an example's own text with that of the last build. With a Hopper
GPU every build runs them and measures; what they write is the record of that build only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilus.runtime.device import find_gpu, require_gpu

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

MEASURED = "docs/_build/measured"


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
    """Remove what earlier builds have run or measured, unless it would come out the same.

    With ``REQUIRE_GPU=1`` in the environment a build without a Hopper GPU fails.
    """
    gpu = require_gpu() if os.environ.get("REQUIRE_GPU") == "1" else find_gpu()
    root = Path(app.confdir)
    shutil.rmtree(root / MEASURED, ignore_errors=True)
    stamp = Path(app.srcdir, "gallery", ".sources")
    now = digest(sources(config, root), root)
    if gpu or not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(stamp.parent, ignore_errors=True)
        stamp.parent.mkdir(parents=True)
        stamp.write_text(now)


def arguments(gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
    """Return an example's arguments: with a Hopper GPU a version writes this build's record."""
    example = Path(script_vars["src_file"])
    version = example.stem.removeprefix("matmul_")
    if version == example.stem or find_gpu() is None:
        return []
    return ["--json", str(example.parents[2] / MEASURED / f"{version}.json")]


def setup(app: Sphinx) -> None:
    """Look for changes before sphinx-gallery does."""
    app.add_config_value("figure_sources", [], "env", types=(list,))
    app.connect("config-inited", forget_stale, priority=1)
