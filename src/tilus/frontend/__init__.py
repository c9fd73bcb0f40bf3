# SPDX-License-Identifier: Apache-2.0
"""Python AST -> IR: a partial evaluator for the language of ``docs/design``'s kernels.

Compile-time values run as ordinary Python, run-time values build the program.
:mod:`~tilus.frontend.expressions` and :mod:`~tilus.frontend.statements` list the syntax that is
part of the language, :mod:`~tilus.frontend.builder` keeps the rules about names,
:mod:`~tilus.frontend.divergence` those about threads. No instruction is known here by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilus import ir
from tilus.errors import LanguageError
from tilus.frontend import source
from tilus.frontend.builder import Builder
from tilus.frontend.expressions import Frame
from tilus.frontend.scalars import fast_divmod, static_assert
from tilus.frontend.scopes import (
    Attributes,
    Range,
    single_thread,
    single_warp,
    thread_group,
    warp_group,
)
from tilus.frontend.signature import Parameter, kernel_function, parameters
from tilus.frontend.statements import Tracer
from tilus.frontend.values import Inlined

__all__ = [
    "Attributes",
    "Inlined",
    "Parameter",
    "Range",
    "fast_divmod",
    "kernel_function",
    "parameters",
    "single_thread",
    "single_warp",
    "static_assert",
    "thread_group",
    "trace",
    "warp_group",
]


def trace(script: object, arguments: Mapping[str, object]) -> ir.Function:
    """Return the program of ``script``'s ``__call__``; ``arguments`` holds its compile-time values.

    The script itself is not changed. Raises :class:`LanguageError` with the place of what is not
    part of the language.
    """
    assert isinstance(script, Inlined)
    function = kernel_function(script)
    params = {p.name: p.runtime() for p in parameters(function) if not p.constant}
    attrs = Attributes(parameters={name: p.var for name, p in params.items() if not p.pointer})
    instance = object.__new__(type(script))  # a copy, so that the script stays as it is
    vars(instance).update(vars(script), attrs=attrs)
    names = dict(arguments) | {name: p.var for name, p in params.items()}
    return _trace(
        instance, Builder(attrs, (p.var for p in params.values())), names, tuple(params.values())
    )


def _trace(
    script: Inlined, builder: Builder, names: dict[str, object], params: tuple[ir.Param, ...]
) -> ir.Function:
    found = source.find(kernel_function(script))
    this = found.node.args.args[0].arg
    tracer = Tracer(builder, script)
    tracer.frames.append(Frame(found, {this: script, **names}, depth=1))
    tracer.run(found.node.body)
    where, attrs = found.location(found.node), builder.attrs
    if attrs.blocks is None or attrs.warps is None:
        missing = "blocks" if attrs.blocks is None else "warps"
        raise LanguageError(f"self.attrs.{missing} must be set in __call__, got nothing", where)
    return ir.Function(
        name=type(script).__name__,
        params=params,
        blocks=attrs.blocks,
        warps=attrs.warps,
        body=tuple(builder.scopes[0].body),
        location=where,
        cluster=attrs.cluster_blocks,
    )
