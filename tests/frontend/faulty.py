# SPDX-License-Identifier: Apache-2.0
"""Kernels that the language refuses: each is a test, by the words and the place of the message.

The faulty line ends in a comment ``# <underlined text>``; ``@refused`` holds words of the message.
"""

import inspect
import re

import pytest
from tests.kernels import Probe, script

from tilus import frontend
from tilus.errors import LanguageError


def refusal(function, **constants) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        frontend.trace(script(function) if not isinstance(function, Probe) else function, constants)
    return caught.value


def underlined(error: LanguageError) -> str:
    """Return what the carets of a message point at."""
    source, carets = str(error).splitlines()[-2:]
    assert set(carets.strip()) == {"^"}
    return source[carets.index("^") : carets.rindex("^") + 1]


def faulty_line(function) -> tuple[int, str]:
    """Return the number of the line with the comment, and the comment."""
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, first):
        if found := re.search(r"  # (.*)$", line):
            return number, found[1]
    raise AssertionError("no marked line")


def start(self):
    self.attrs.blocks, self.attrs.warps = 1, 4


class Kernel(Probe):
    """What such kernels share."""

    start = start


def refused(*fragments: str):
    """Make a test of a kernel that must be refused with these words, in the kernel's module."""

    def decorate(function):
        file = inspect.getsourcefile(function)

        def test():
            line, marked = faulty_line(function)
            error = refusal(type("Faulty", (Kernel,), {"__call__": function})())
            assert error.location.line == line, error
            assert error.location.file == file
            assert underlined(error) == marked, error
            for fragment in fragments:
                assert fragment in error.message
            assert str(error).startswith(f"{file}:{line}: ")

        test.__name__, test.__doc__ = f"test_{function.__name__}", " / ".join(fragments)
        function.__globals__[test.__name__] = test
        return test

    return decorate
