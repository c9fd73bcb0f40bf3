# SPDX-License-Identifier: Apache-2.0
"""The folder of entries: entries come back whole or not at all; failures cost a warning."""

import os
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilus.store import MAGIC, Store, open_store


def test_what_was_put_comes_back(tmp_path):
    store = Store(tmp_path / "deep" / "folder")
    assert store.get("key") is None
    store.put("key", b"one\n\0")
    store.put("key", b"two")
    assert Store(tmp_path / "deep" / "folder").get("key") == b"two"


@given(data=st.binary(max_size=40), place=st.integers(0), bit=st.integers(0, 7))
def test_no_flipped_bit_and_no_truncation_is_believed(tmp_path_factory, data, place, bit):
    store = Store(tmp_path_factory.mktemp("store"))
    store.put("key", data)
    path = store.folder / "key"
    entry = bytearray(path.read_bytes())
    path.write_bytes(entry[: place % len(entry)])
    assert store.get("key") is None
    entry[place % len(entry)] ^= 1 << bit
    path.write_bytes(entry)
    assert store.get("key") is None


def test_an_entry_under_another_key_is_not_believed(tmp_path):
    store = Store(tmp_path)
    store.put("a", b"data")
    os.rename(tmp_path / "a", tmp_path / "b")
    assert store.get("b") is None
    assert MAGIC in (tmp_path / "b").read_bytes()


def test_an_interrupted_write_leaves_the_old_entry_and_no_rubbish(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put("key", b"old")

    def full(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.*TILUS_CACHE_DIR"):
        store.put("key", b"new")
    assert store.get("key") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = open_store(tmp_path / "file" / "cubin")
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        store.put("a", b"")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_store(tmp_path / "file" / "cubin").put("b", b"")
    assert store.get("a") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_read_only_folder_costs_one_warning(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        Store(tmp_path).put("a", b"")


def test_a_folder_in_place_of_an_entry_reads_as_absent(tmp_path):
    (tmp_path / "key").mkdir()
    assert Store(tmp_path).get("key") is None
    with pytest.warns(RuntimeWarning):
        Store(tmp_path).put("key", b"")
