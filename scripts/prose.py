# SPDX-License-Identifier: Apache-2.0
"""Refuse measured numbers that are typed into pages: they come from records, through a role.

python scripts/prose.py [FILE ...]      without files: every page and the README
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from tilus.workload import start

ROOT = Path(__file__).parent.parent
UNIT = r"(?:[TGP]?FLOPS?(?:/s)?|[GT]B/s|ms|µs|us|ns|%|percent|[x×] ?cuBLAS|times cuBLAS)"
TYPED = re.compile(rf"(?<![\w.])\d[\d.,]*\s*{UNIT}(?!\w)", re.IGNORECASE)


def pages() -> list[Path]:
    """Return the texts that readers see: pages, not what a build made of them, and the README."""
    made = {ROOT / "docs" / "_build", ROOT / "docs" / "gallery"}
    found = [p for p in (ROOT / "docs").rglob("*.rst") if not made.intersection(p.parents)]
    return sorted([*found, ROOT / "README.md", *(ROOT / "examples").rglob("*.rst")])


def typed_numbers(text: str) -> list[tuple[int, str]]:
    """Return the line number and text of each measured number that is typed."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, match.group()) for number, line in lines for match in TYPED.finditer(line)]


def main(names: list[str]) -> int:
    """Print each offence; return how many there are, as far as an exit status can say it."""
    count = 0
    for path in [Path(n) for n in names] or pages():
        for line, found in typed_numbers(path.read_text(encoding="utf-8")):
            print(f"{path}:{line}: {found!r} is typed; take it from a record with :record:`...`")
            count += 1
    return min(count, 1)


if __name__ == "__main__":
    FILES = click.Argument(["names"], nargs=-1, type=click.Path(exists=True, dir_okay=False))
    start(click.Command("prose", params=[FILES], callback=main, help=main.__doc__))
