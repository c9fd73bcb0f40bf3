# SPDX-License-Identifier: Apache-2.0
"""From the frontend's function to a kernel that both backends can run: the passes, in order."""

from __future__ import annotations

from tilus.ir import Function, Kernel, Plan
from tilus.passes.accumulators import overwrite_first
from tilus.passes.checks import check
from tilus.passes.layouts import choose_layouts
from tilus.passes.placement import place
from tilus.passes.rings import unroll_rings
from tilus.passes.values import find_bits, find_nonnegative


def plan(function: Function) -> Kernel:
    """Choose layouts, places and tensor maps for ``function``; refuse what the hardware cannot run.

    Raises :class:`~tilus.errors.LanguageError` with the place, the rule and the sum that breaks it.
    """
    check(function)  # scalars, thread groups, tiles, register budgets
    function = overwrite_first(function)  # zeroed accumulators: the first product overwrites
    function = unroll_rings(function)  # the index of a stage becomes a constant
    layouts = choose_layouts(function)  # what instructions ask for; the rest by default
    places, total = place(function, layouts.shared)  # shared memory, within the limit
    return Kernel(
        function,
        Plan(
            registers=layouts.registers,
            shared=layouts.shared,
            places=places,
            tensor_maps=layouts.tensor_maps,
            shared_bytes=total,
            bits=find_bits(function),
            nonnegative=find_nonnegative(function),
        ),
    )
