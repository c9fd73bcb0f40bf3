# SPDX-License-Identifier: Apache-2.0
"""What this site adds to Sphinx: numbers from records, loud excerpts, figures never stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder import (
    absent,
    agreement,
    charts,
    costs,
    diagnosis,
    evidence,
    excerpt,
    failures,
    gallery,
    head,
    launches,
    loads,
    machine,
    numbers,
    phases,
    predictions,
    reference,
    sources,
    stepper,
    steps,
    suite,
    sweep,
    tiles,
    traced,
    zips,
)

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, object]:
    """Register every part."""
    for part in (
        absent,
        agreement,
        excerpt,
        numbers,
        evidence,
        predictions,
        charts,
        costs,
        diagnosis,
        failures,
        gallery,
        head,
        launches,
        loads,
        machine,
        phases,
        reference,
        sources,
        stepper,
        steps,
        suite,
        sweep,
        tiles,
        traced,
        zips,
    ):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
