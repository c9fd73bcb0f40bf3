# SPDX-License-Identifier: Apache-2.0
"""From the frontend's function to a kernel that both backends can run: the passes, in order."""

from __future__ import annotations

from tilus.ir import Function, Kernel, Plan
from tilus.passes.accumulators import overwrite_first
from tilus.passes.checks import check, check_tiles
from tilus.passes.layouts import choose_layouts
from tilus.passes.placement import place, scratch_bytes
from tilus.passes.rings import unroll_rings
from tilus.passes.twins import find_twins
from tilus.passes.values import find_bits, find_nonnegative


def plan(function: Function) -> Kernel:
    """Choose layouts, places and tensor maps for ``function``; refuse what the hardware cannot run.

    Raises :class:`~tilus.errors.LanguageError` with the place, the rule and the sum that breaks it.
    """
    check(function)  # scalars, thread groups, register budgets
    function = overwrite_first(function)  # zeroed accumulators: the first product overwrites
    function = unroll_rings(function)  # the index of a stage becomes a constant
    function, layouts = choose_layouts(function)  # what instructions ask for; a default; moves
    check_tiles(function, layouts.registers)  # registers a thread
    scratch = scratch_bytes(function, layouts.registers)  # shared memory of instructions
    places, begins, total = place(function, layouts.shared, scratch)  # all of it, within the limit
    bits, nonnegative = find_bits(function), find_nonnegative(function)
    twins = find_twins(function, layouts.registers, (bits, nonnegative))  # groups that share code
    return Kernel(
        function,
        Plan(
            registers=layouts.registers,
            shared=layouts.shared,
            places=places,
            tensor_maps=layouts.tensor_maps,
            shared_bytes=total,
            bits=bits,
            nonnegative=nonnegative | {t.member for t in twins.values()},
            scratch=begins,
            twins=twins,
        ),
    )
