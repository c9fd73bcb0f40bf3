# SPDX-License-Identifier: Apache-2.0
"""Whatever an instruction is given instead of what it takes, it names itself, place and rule."""

import re
from operator import attrgetter

import numpy as np
import pytest

import tilus
from tilus import LanguageError, compiler, loader
from tilus.emitter import emit
from tilus.frontend.suggest import spellings

CALLS = {
    "global_view": "ptr=p, dtype=float16, shape=[n, 64], strides=[64, 1]",
    "shared_tensor": "dtype=float16, shape=[64, 64]",
    "register_tensor": "dtype=float32, shape=[64, 64], init=0.0",
    "load_global": "src=g, offsets=[0, 0], shape=[64, 64], outside=0",
    "store_global": "dst=g, src=t, offsets=[0, 0]",
    "load_shared": "src=s",
    "store_shared": "dst=s, src=t",
    "dot": "a=t, b=t, acc=acc",
    "cast": "x=t, dtype=float32",
    "where": "cond=t > 0, a=t, b=0.0",
    "maximum": "a=t, b=t",
    "minimum": "a=t, b=t",
    **dict.fromkeys(("abs", "square", "exp", "exp2", "log", "sqrt", "rsqrt"), "x=acc"),
    **dict.fromkeys(("sum", "max", "min"), "x=acc, dim=0, keepdim=False"),
    "sync": "",
    "slice": "x=acc, offsets=[0, 0], shape=[64, 64]",
    "annotate_layout": "tensor=s, layout=LAYOUT",
    "free_shared": "tensor=s",
    "reshape_shared": "tensor=s, shape=[2, 32, 64]",
    "assume": "condition=n > 0",
    "printf": "format='%d', values=n",
    "print_tensor": "tensor=t, message='t'",
    "tma.global_to_shared": (
        "src=g, dst=s, offsets=[0, 0], mbarrier=bar, multicast_mask=None, cache_policy=None"
    ),
    "tma.shared_to_global": "src=s, dst=g, offsets=[0, 0]",
    "tma.commit_group": "",
    "tma.wait_group": "n=0, read=True",
    "mbarrier.alloc": "counts=1",
    "mbarrier.arrive": "barrier=bar, count=1",
    "mbarrier.arrive_and_expect_tx": "barrier=bar, transaction_bytes=64",
    "mbarrier.arrive_and_expect_tx_multicast": (
        "barrier=bar, transaction_bytes=64, multicast_mask=1"
    ),
    "mbarrier.arrive_and_expect_tx_remote": "barrier=bar, transaction_bytes=64, rank=0",
    "mbarrier.arrive_remote": "barrier=bar, rank=0, count=1, sem='release'",
    "mbarrier.wait": "barrier=bar, phase=0, sem='acquire', scope='cta'",
    "cluster.map_shared_addr": "x=s, rank=0",
    "cluster.sync": "",
    "fence.proxy_async": "space='shared'",
    "wgmma.fence": "",
    "wgmma.mma": "a=s, b=s.transpose(), acc=acc, scale_d=True",
    "wgmma.commit_group": "",
    "wgmma.wait_group": "n=0",
}
"""A right call of every instruction, with all that it may be given."""
ONE_THREAD = ("tma.", "mbarrier.arrive", "printf")
BLOCK = ("free_shared", "print_tensor")

HEAD = """
import tilus
from tilus import float16, float32, int32
from tilus.layout import SharedLayout, Swizzle
LAYOUT = SharedLayout((64, 64), 2, Swizzle.B128)
"""
KERNEL = """
class {name}(tilus.Script):
    def __init__(self, bad=None):
        self.bad = bad

    def __call__(self, n: int32, p: ~float16):
        self.attrs.blocks, self.attrs.warps, self.attrs.cluster_blocks = 2, 4, 2
        g = self.global_view(p, dtype=float16, shape=[n, 64])
        s = self.shared_tensor(dtype=float16, shape=[64, 64])
        t = self.register_tensor(dtype=float16, shape=[64, 64], init=1.0)
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        bar = self.mbarrier.alloc(1)
        self.cluster.sync()
        {group}self.{call}
        self.cluster.sync()
"""

BAD = [16, 1.5, None, "text", -(2**70), np.int64(8), object(), [None, 1], [1.0, 2]]
RULE = r"must be .*, got |takes .*, got |does not fit in 64 bits|are needed here, got "


def parts(op: str) -> dict[str, str]:
    """Return the arguments of the right call by name, as texts."""
    return dict(re.findall(r"(\w+)=((?:\[[^]]*\]|'[^']*'|[^,])+)", CALLS[op]))


def kernel(op: str, wrong: str = "") -> str:
    """Return the text of a kernel with one call, whose argument ``wrong`` comes from outside."""
    given = {k: "self.bad" if k == wrong else v for k, v in parts(op).items()}
    texts = [v if op == "printf" else f"{k}={v}" for k, v in given.items()]
    group = "with self.warp_group(0, 4): "
    if op.startswith(ONE_THREAD) and op != "mbarrier.alloc":
        group = "with self.single_thread(): "
    if op in BLOCK:
        group = ""
    name = f"{op.replace('.', '_')}__{wrong or 'right'}"
    return KERNEL.format(name=name, group=group, call=f"{op}({', '.join(texts)})")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """All kernels, from one file: the frontend reads their source."""
    file = tmp_path_factory.mktemp("arguments") / "calls.py"
    file.write_text(HEAD + "".join(kernel(op, k) for op in CALLS for k in ("", *parts(op))))
    return loader.load(file)


def compiled(script: tilus.Script) -> None:
    """Take a script as far as CUDA."""
    emit(compiler.lower(script, {}))


def test_every_instruction_is_called():
    found = [full.removeprefix("self.") for full in spellings(tilus.Script.__new__(tilus.Script))]
    assert {op for op in found if isinstance(attrgetter(op)(tilus.Script), type)} == set(CALLS)


@pytest.mark.parametrize("op", CALLS)
def test_what_is_given_is_taken_or_refused_by_name(scripts, op):
    """There is no other end: no exception of Python's, none that hides which call it was."""
    name = op.replace(".", "_")
    compiled(getattr(scripts, f"{name}__right")())
    for wrong in parts(op):
        for bad in BAD:
            try:
                compiled(getattr(scripts, f"{name}__{wrong}")(bad))
            except LanguageError as error:
                first = str(error).splitlines()[0]
                short = rf"'?{op.rpartition('.')[2]}'?"
                assert re.match(rf".*calls\.py:\d+: (?:{short}\b.*)?(?:{RULE})", first), first


@pytest.mark.parametrize(
    ("op", "wrong", "bad", "message"),
    [
        ("load_global", "offsets", 16, "must be a list of integers, .*, got 16; write .* brackets"),
        ("load_global", "shape", 16, "must be a list of compile-time integers, got 16; write it"),
        ("store_global", "offsets", [0, None], r"must be a list of integers, .*, got \(0, None\)"),
        ("global_view", "shape", 16, "must be a list of integers, also run-time ones, got 16; wri"),
        ("global_view", "strides", "text", "must be a list of integers, .* or None, got 'text'"),
        ("register_tensor", "shape", 2**70, f"must be a list of .*, got {2**70}; write it in"),
        ("register_tensor", "init", float("nan"), ""),
        ("slice", "offsets", 1.5, "must be a list of compile-time integers, got 1.5"),
        ("shared_tensor", "shape", [np.int64(8), 8], r"must be .*, got \(np.int64\(8\), 8\); make"),
        ("shared_tensor", "shape", (), "must be of one dimension or more"),
        ("mbarrier.wait", "phase", 1.5, "must be an integer, got 1.5"),
        ("mbarrier.wait", "phase", None, "must be a number"),
        ("mbarrier.arrive_and_expect_tx", "transaction_bytes", 64.0, "must be an integer, got 64."),
        ("wgmma.mma", "scale_d", 0.5, "must be True or False, also at run time, got 0.5"),
        ("sum", "keepdim", "no", "must be True or False, got 'no'"),
    ],
)
def test_the_argument_and_what_to_write_are_named(scripts, op, wrong, bad, message):
    script = getattr(scripts, f"{op.replace('.', '_')}__{wrong}")(bad)
    if not message:
        compiled(script)  # a tile of NaN
        return
    with pytest.raises(LanguageError, match=rf": {op.rpartition('.')[2]}: {wrong} {message}"):
        compiled(script)


@pytest.mark.parametrize("init", [1.5, 2**40, float("nan"), float("inf"), -(2**70)])
def test_a_tile_of_integers_begins_with_one_that_it_holds(init, tmp_path):
    file = tmp_path / "integers.py"
    file.write_text(
        HEAD
        + kernel("register_tensor", "init").replace(
            "e=float32, shape=[64, 64], init=s", "e=int32, shape=[64, 64], init=s"
        )
    )
    with pytest.raises(LanguageError, match=r"init must be a compile-time number of type int32"):
        compiled(loader.load(file).register_tensor__init(init))
