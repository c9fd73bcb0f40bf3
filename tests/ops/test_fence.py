# SPDX-License-Identifier: Apache-2.0
"""Proxy fences."""

import pytest

import tilus
from tilus import LanguageError
from tilus.emitter import emit


class Fence(tilus.Script):
    """One fence."""

    def __init__(self, space):
        self.space = space

    def __call__(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.fence.proxy_async(space=self.space)


def test_proxy_async_is_one_instruction():
    assert emit(Fence("shared").lower()).count("fence.proxy.async.shared::cta;") == 1


def test_proxy_async_refuses_other_spaces():
    with pytest.raises(LanguageError, match="space must be 'shared', got 'global'"):
        Fence("global").lower()
