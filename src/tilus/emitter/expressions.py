# SPDX-License-Identifier: Apache-2.0
"""What things are called in a kernel's text: names, places in memory, and expressions."""

from __future__ import annotations

from tilus.dtypes import uint32
from tilus.emitter.device import CLUSTER, FLOOR, special
from tilus.emitter.spelling import identifier, literal
from tilus.ir import (
    OPERATORS,
    Barrier,
    Builtin,
    Cast,
    Const,
    Element,
    Expr,
    ExprLike,
    GlobalTensor,
    Kernel,
    Operation,
    RegisterTensor,
    Select,
    SharedTensor,
    TensorMap,
    Var,
    as_expr,
    nonnegative,
)
from tilus.layout import RegisterLayout, SharedLayout


class Expressions:
    """What the values of one kernel are called; device functions that they need are noted."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.function, self.plan = kernel, kernel.function, kernel.plan
        self._helpers: dict[str, None] = {}
        self._names: dict[object, str] = {}
        self._taken: set[str] = set()

    def helper(self, text: str) -> None:
        self._helpers.setdefault(text)

    def fresh(self, stem: str) -> str:
        stem = name = identifier(stem)
        count = 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def name(self, thing: Var | RegisterTensor | TensorMap) -> str:
        """Return the C identifier of a variable, register tensor or tensor map."""
        if thing not in self._names:
            self._names[thing] = self.fresh(thing.name)
        return self._names[thing]

    def registers(self, tensor: RegisterTensor) -> str:
        return self.name(tensor)

    def register_layout(self, tensor: RegisterTensor) -> RegisterLayout:
        return self.plan.registers[tensor]

    def shared_layout(self, tensor: SharedTensor) -> SharedLayout:
        return self.plan.shared[tensor.buffer]

    def shared(self, tensor: SharedTensor, extra: int = 0) -> str:
        place = as_expr(self.plan.places[tensor.buffer] + extra)
        return f"smem + {self.expr(tensor.offset * tensor.dtype.nbytes + place)}"

    def barrier(self, barrier: Barrier) -> str:
        place = self.plan.places[barrier.array]
        return f"smem + {self.expr(barrier.index * 8 + place)}"

    def pointer(self, view: GlobalTensor) -> str:
        name = self.name(view.pointer)
        same = any(p.var is view.pointer and p.dtype == view.dtype for p in self.function.params)
        return name if same else f"(({view.dtype.cpp} *){name})"

    def tensor_map(self, view: GlobalTensor, tile: SharedTensor) -> str:
        box = self.shared_layout(tile).box(len(view.shape), tile.tiles)
        maps = self.plan.tensor_maps
        return "&" + self.name(next(m for m in maps if m.view is view and m.box == box))

    def expr(self, x: ExprLike) -> str:
        x = as_expr(x)
        match x:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Var():
                return self.name(x)
            case Builtin(name=name):
                return self._builtin(name)
            case Cast(x=inner, dtype=dtype):
                return f"({dtype.cpp}){self.expr(inner)}"
            case Select(cond=cond, a=a, b=b):
                return f"({self.expr(cond)} ? {self.expr(a)} : {self.expr(b)})"
            case Element(tensor=tensor, index=index):
                return self._element(tensor, index)
            case Operation(op=op, args=args, dtype=dtype):
                text = self._operation(op, args)
                # C computes narrow integers as int, and would keep what does not fit.
                return f"({dtype.cpp}){text}" if dtype.is_integer and dtype.bits < 32 else text
        raise AssertionError(f"unknown expression {x!r}")

    def _builtin(self, name: str) -> str:
        """Return what C calls a value that the hardware provides."""
        stem, _, axis = name.partition(".")
        if stem == "clusterDim":
            return str(self.function.cluster["xyz".index(axis)])
        if stem not in CLUSTER:
            return f"(int){name}"
        register = CLUSTER[stem] + (f".{axis}" if axis else "")
        call = register.replace(".", "_")
        self.helper(special(call, register))
        return f"(int){call}()"

    def signed(self, x: ExprLike) -> bool:
        return not nonnegative(as_expr(x), self.plan.nonnegative)

    def _operation(self, op: str, args: tuple[Expr, ...]) -> str:
        row, texts = OPERATORS[op], [self.expr(a) for a in args]
        if row.floor and any(map(self.signed, args)):
            self.helper(FLOOR)
            return row.floor.format(*texts)
        return row.cuda.format(*texts)

    def _element(self, tensor: RegisterTensor, index: Expr) -> str:
        """Read an element: a bit of the word, or a chain of selects, since registers have no
        address."""
        name, i = self.name(tensor), self.expr(index)
        if tensor in self.plan.bits:
            bit = f"({name} >> {i} & 1)"
            return bit if tensor.dtype == uint32 else f"({tensor.dtype.cpp}){bit}"
        if isinstance(index, Const):
            return f"{name}[{i}]"
        chain = f"{name}[{tensor.shape[0] - 1}]"
        for e in reversed(range(tensor.shape[0] - 1)):
            chain = f"{i} == {e} ? {name}[{e}] : {chain}"
        return f"({chain})"
