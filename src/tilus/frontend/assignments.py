# SPDX-License-Identifier: Apache-2.0
"""Assignment: to names, attributes and elements, plain, declared and augmented."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError, Location
from tilus.frontend.builder import Scope, require_fit
from tilus.frontend.calls import Calls
from tilus.frontend.expressions import refuse
from tilus.frontend.scopes import Attributes
from tilus.frontend.values import scalar
from tilus.ir import describe


class Assignments(Calls):
    """Adds assignment to :class:`~tilus.frontend.calls.Calls`."""

    def named(self, node: ast.expr, target: ast.expr) -> Any:
        """Evaluate ``node`` for ``target``, which names what an instruction allocates."""
        match target:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.naming = (node, name)
        return self.evaluate(node)

    def assignment(self, targets: Sequence[ast.expr], node: ast.expr) -> None:
        value = self.named(node, targets[0])
        for target in targets:
            self.store(target, value)

    def store(self, target: ast.expr, value: Any) -> None:
        """Carry out ``target = value``."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                # Python has all values before it assigns the first: a, b = b, a.
                pairs = self.distribute(targets, value)
                values = [self.builder.keep(v, "value", self.at(target)) for _, v in pairs]
                for (t, _), v in zip(pairs, values, strict=True):
                    self.store(t, v)
            case ast.Name(id=name):
                self.builder.bind(self.frame.names, name, value, self.at(target))
            case ast.Attribute(value=owner, attr=name):
                self.store_attribute(self.evaluate(owner), name, value, target)
            case ast.Subscript(value=container, slice=index):
                box, i = self.operands([container, index])
                self.store_element(box, i, value, target)
            case _:
                raise refuse(target)

    def store_attribute(self, owner: Any, name: str, value: Any, target: ast.expr) -> None:
        if isinstance(owner, Attributes):
            if self.under_control_flow():
                raise LanguageError(
                    f"self.attrs.{name} must be set outside of run-time control flow"
                )
            owner.assign(name, value)
            return
        if not any(owner is x for x in self.made):
            raise LanguageError(
                f"a kernel changes only objects it has made itself, got {describe(owner)}"
            )
        names, where = vars(owner), self.at(target)
        if self.builder.bound_outside_loop(names, name) and not self.builder.variable(names, name):
            raise LanguageError(
                f"'{name}' is a compile-time value from before this run-time loop; "
                f"where it gets its first value, declare a variable: `self.{name}: int32 = ...`",
                where,
            )
        self.builder.bind(names, name, value, where)

    def store_element(self, container: Any, index: Any, value: Any, target: ast.expr) -> None:
        where = self.at(target)
        if isinstance(container, ir.RegisterTensor):
            element = container[index]  # checks the index
            x = container.element_value(value)
            stmt = ir.SetElement(location=where, tensor=container, index=element.index, value=x)
            self.builder.emit(stmt)
            self.builder.wrote(container, where)
        elif type(container) in (list, dict) and not self.under_control_flow():
            container[index] = self.builder.keep(value, "element", where)
        else:
            what = describe(container)
            raise LanguageError(
                f"elements of {what} cannot be assigned here; only small register tensors have them"
            )

    def declaration(self, node: ast.AnnAssign) -> None:
        """``x: int32 = 0`` declares a variable; annotations that are no tilus type are remarks."""
        kind = self.evaluate(node.annotation)
        if node.value is None:
            raise LanguageError("a declaration needs a first value, as in `x: int32 = 0`")
        if not isinstance(kind, DType):
            self.assignment([node.target], node.value)
            return
        value, where = self.named(node.value, node.target), self.at(node)
        match node.target:
            case ast.Name(id=name):
                unrolled = any(not isinstance(loop, Scope) for loop in self.frame.loops)
                once = self.frame.writes.get(name) == 1 and not unrolled
                self.declare(self.frame.names, name, kind, value, where, once)
            case ast.Attribute(value=owner, attr=name):
                self.declare(vars(self.evaluate(owner)), name, kind, value, where)
            case _:
                raise refuse(node.target)

    def declare(
        self,
        names: dict[str, Any],
        name: str,
        kind: DType,
        value: Any,
        where: Location,
        once: bool = False,
    ) -> None:
        """Carry out ``name: kind = value``; the same again in the same threads is an assignment."""
        if not scalar(value):
            raise LanguageError(f"'{name}: {kind}' must be given a number, got {describe(value)}")
        x = ir.as_expr(value, kind)
        require_fit(name, kind, x, where)
        found = x.dtype
        if found.is_float and not kind.is_float:
            raise LanguageError(f"'{name}: {kind}' must be given an integer, got {found}")
        old = self.builder.variable(names, name)
        same = old and not self.builder.since(old.scope, "group")
        if same and names[name].dtype == kind:
            self.builder.bind(names, name, value, where)
        else:
            self.builder.declare(names, name, kind, value, where, typed=True, once=once)

    def augmented(self, node: ast.AugAssign) -> None:
        """``target op= value``: containers and indices are evaluated once.

        A name gets a new value, a tile too: what shares the old one keeps it. Elements and
        attributes that run-time control flow assigns can only change in place.
        """
        match node.target:
            case ast.Subscript(value=container, slice=index):
                box, i = self.operands([container, index])
                old = self.subscript(box, i, node.target)
                new = self.operate(old, node)
                if new is not old:
                    self.store_element(box, i, new, node.target)
            case ast.Attribute(value=owner, attr=name):
                instance = self.evaluate(owner)
                old = self.readable(getattr(instance, name), node.target)
                new = self.operate(old, node)
                if new is not old:
                    self.store_attribute(instance, name, new, node.target)
            case ast.Name(id=name):
                old = self.readable(self.frame.lookup(name), node.target)
                self.store(node.target, self.operate(old, node, in_place=False))

    def operate(self, old: Any, node: ast.AugAssign, in_place: bool = True) -> Any:
        """Return ``old op value``; evaluating the value may change what ``old`` was read from."""
        mark = len(self.builder.scope.body)
        value = self.evaluate(node.value)
        [old] = self.builder.freeze_before(mark, [old], self.at(node))
        new = self.operation(node.op, [old, value], node)
        if isinstance(old, ir.RegisterTensor) and in_place and self.under_control_flow():
            self.copy_tile(old, new, node)
            return old
        return new
