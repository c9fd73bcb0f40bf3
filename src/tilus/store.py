# SPDX-License-Identifier: Apache-2.0
"""A folder of small files by key, shared by processes: what was compiled and tuned before.

An entry appears in one atomic step and carries a checksum over its key and content. Whatever is
broken, truncated or not ours reads as absent and is written anew. A folder that cannot be written
costs one warning, and nothing is kept.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

MAGIC = b"tilus store 1\n"
HEAD_SIZE = len(MAGIC) + 64 + 1


class Store:
    """Keep bytes in ``folder`` under string keys, which are file names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writable = True

    def get(self, key: str) -> bytes | None:
        """Return what was kept under ``key``, or None if there is nothing or it is damaged."""
        try:
            entry = (self.folder / key).read_bytes()
        except OSError:
            return None
        head, data = entry[:HEAD_SIZE], entry[HEAD_SIZE:]
        return data if head == _head(key, data) else None

    def put(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``; if the disk does not take it, warn the first time."""
        if not self._writable:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self.folder / key, _head(key, data) + data)
        except OSError as error:
            self._writable = False
            found = f"the cache folder {self.folder} cannot be written ({error})"
            remedy = "going on without it; set TILUS_CACHE_DIR to another folder"
            warnings.warn(f"{found}: {remedy}", RuntimeWarning, stacklevel=2)


@functools.cache
def open_store(folder: Path) -> Store:
    """Return this process's one store for ``folder``, so that its warning comes once."""
    return Store(folder)


def _head(key: str, data: bytes) -> bytes:
    # The key is in the checksum: an entry copied from another key is not taken for this one.
    return MAGIC + hashlib.sha256(key.encode() + b"\0" + data).hexdigest().encode() + b"\n"


def _write(path: Path, content: bytes) -> None:
    # A rename within a folder is atomic: readers see no file, the old one or the new one.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
