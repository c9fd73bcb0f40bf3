# SPDX-License-Identifier: Apache-2.0
"""The kernels behind tilus.kernels.matmul: every kind is exact, proved, and sound machine code."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests import sass

from tilus import compiler, float16, loader, simulator
from tilus.kernels import pairs, product, table
from tilus.kernels.pairs import Pairs, PairsBfloat16
from tilus.kernels.plain import Plain
from tilus.kernels.product import Product, ProductBfloat16, Sums, SumsBfloat16

SMALL = {"num_stages": 2, "num_blocks": 2, "group_m": 2, "block_k": 16}
KINDS = {
    "shared": {"block_m": 128, "block_n": 8},
    "three": {"block_m": 192, "block_n": 8, "consumers": 3},
    "alone": {"block_m": 64, "block_n": 16, "consumers": 1},
    "turns": {"block_m": 64, "block_n": 8, "turns": True},
    "swapped": {"block_m": 128, "block_n": 8, "swapped": True},
    "split": {"block_m": 128, "block_n": 8, "split_k": 2},
    "swapped split": {"block_m": 128, "block_n": 16, "swapped": True, "split_k": 3},
    "direct": {"block_m": 128, "block_n": 16, "direct": True},
    "swapped direct": {"block_m": 128, "block_n": 16, "swapped": True, "direct": True},
    "rows": {"block_m": 128, "block_n": 64, "a_mn": True, "b_mn": True, "block_k": 32},
    "swapped rows": {"block_m": 128, "block_n": 64, "swapped": True, "b_mn": True, "block_k": 32},
    "turns rows": {"block_m": 64, "block_n": 64, "turns": True, "a_mn": True, "block_k": 32},
    "pairs": {"block_m": 128, "block_n": 8, "cluster": 2},
    "pairs direct": {"block_m": 128, "block_n": 8, "cluster": 2, "direct": True},
    "pairs rows": {
        **{"block_m": 128, "block_n": 64, "cluster": 2},
        **{"a_mn": True, "b_mn": True, "block_k": 32},
    },
}
LARGE = {
    "shared": {"block_m": 256, "block_n": 200, "num_stages": 3},
    "three": {"block_m": 192, "block_n": 192, "num_stages": 3, "consumers": 3},
    "turns": {"block_m": 128, "block_n": 200, "num_stages": 4, "turns": True},
    "swapped": {"block_m": 256, "block_n": 16, "num_stages": 6, "swapped": True},
    "swapped split": {
        "block_m": 256,
        "block_n": 64,
        "num_stages": 5,
        "swapped": True,
        "split_k": 4,
    },
    "split": {"block_m": 256, "block_n": 192, "num_stages": 4, "split_k": 3},
    "direct": {"block_m": 256, "block_n": 176, "num_stages": 3, "direct": True},
    "rows": {"block_m": 128, "block_n": 256, "num_stages": 3, "b_mn": True},
    "pairs": {"block_m": 256, "block_n": 160, "num_stages": 3, "cluster": 2},
}


def arguments(m, n, k, kind, dtype=np.float16):
    """Return what the kernel takes, C and the workspace made of NaN, and the exact product."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-1, 2, shape).astype(dtype) for shape in ((m, k), (n, k)))
    lying = [x.T.copy() if kind.get(f"{name}_mn") else x for name, x in (("a", a), ("b", b))]
    c = np.full((m, n + 8), np.nan, dtype)  # columns behind C that nobody may touch
    w = np.full((kind.get("split_k", 1), m, n), np.nan, np.float32)
    pitches = {"a_pitch": lying[0].shape[1], "b_pitch": lying[1].shape[1], "c_pitch": n + 8}
    pointers = dict(zip(("a_ptr", "b_ptr", "c_ptr", "w_ptr"), (*lying, c, w), strict=True))
    sizes = {"m_size": m, "n_size": n, "k_size": k}
    return sizes | pitches | pointers, a.astype(np.int64) @ b.astype(np.int64).T


def chosen(kind):
    """Return the kernel that a kind is one of."""
    return Pairs if "cluster" in kind else Product


def execute(m, n, k, kind, script=None, sums=Sums, **options):
    """Run a product on integers and require the exact result, and nothing else, in C."""
    script = script or chosen(kind)
    taken, want = arguments(m, n, k, kind, np.dtype(script.dtype.numpy))
    flat = {name: x.reshape(-1) if name.endswith("ptr") else x for name, x in taken.items()}
    simulator.run(compiler.lower(script(**SMALL | kind), {}), flat, **options)
    if kind.get("split_k", 1) > 1:
        taking = {name: flat[name] for name in ("m_size", "n_size", "c_pitch", "w_ptr", "c_ptr")}
        simulator.run(compiler.lower(sums(kind["split_k"], 4, 32), {}), taking, **options)
    c = taken["c_ptr"].astype(float)
    np.testing.assert_array_equal(c[:, :n], want)
    assert np.isnan(c[:, n:]).all()


@pytest.mark.parametrize("schedule", list(simulator.SCHEDULES))
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_exact_at_edges_for_every_kind(kind, schedule):
    x, y = kind["block_m"] + 8, 2 * kind["block_n"] + 8
    m, n = (y, x) if kind.get("swapped") else (x, y)
    execute(m, n, 3 * kind.get("block_k", 16) - 8, kind, schedule=schedule)


@pytest.mark.parametrize("kind", ["shared", "turns", "swapped split"])
def test_bfloat16(kind):
    execute(136, 24, 40, KINDS[kind], ProductBfloat16, SumsBfloat16)


def test_bfloat16_in_pairs():
    execute(136, 24, 40, KINDS["pairs"], PairsBfloat16)


@pytest.mark.parametrize("size", [(128, 8, 16), (1, 8, 8), (260, 40, 24), (384, 16, 40)], ids=str)
@pytest.mark.parametrize("blocks", [2, 4])
def test_pairs_of_any_number(size, blocks):
    """One tile, and as many pairs as blocks have, or more; some have a tile beyond the edge."""
    execute(*size, KINDS["pairs"] | {"num_blocks": blocks}, schedule="random")


@pytest.mark.parametrize("tiles", [1, 2, 3, 5])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_groups_take_turns_with_any_number_of_tiles_and_steps(tiles, steps):
    for stages in (2, 3):
        kind = KINDS["turns"] | {"num_stages": stages, "num_blocks": 1}
        execute(64 * tiles, 8, 16 * steps, kind, schedule="random", seed=tiles)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_no_order_of_moves_has_a_verdict(kind):
    """Two tiles by one block, two steps of K for each part."""
    found = judged(chosen(kind), kind)
    assert found.proved, found.message


def judged(script, kind):
    """Judge a product of two tiles by each of as few blocks as can be, two steps of K for each."""
    blocks = kind.get("cluster", 1)
    script = script(**SMALL | kind | {"num_blocks": blocks})
    x, y = 2 * script.block_m, blocks * script.block_n
    m, n = (y, x) if script.swapped else (x, y)
    taken, _ = arguments(m, n, 2 * script.block_k * script.split_k, kind)
    flat = {name: x.reshape(-1) if name.endswith("ptr") else x for name, x in taken.items()}
    return simulator.judge(compiler.lower(script, {}), flat)


def test_a_group_that_does_not_await_its_turn_is_found_out(tmp_path):
    """The barrier of turns orders more than speed: without it a stage is read too early."""
    wait = "                self.mbarrier.wait(ring.turn[turn], phase=phase)\n"
    mutate(tmp_path / "mutant.py", product, {wait: ""})
    found = judged(loader.find(tmp_path / "mutant.py", object, "Product"), KINDS["turns"])
    assert found.verdict == "race"


def mutate(path, module, changes):
    """Write the source of a module with changes, each to what stands there once."""
    source = Path(module.__file__).read_text()
    for old, new in changes.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    path.write_text(source)


OWN = {"for block in (0, 1):": "for block in (self.cluster.blockRank,):"}
DRAIN = {
    "        for _ in self.range(self.num_stages):\n"
    "            ring.producer_acquire()\n"
    "            ring.producer_advance()\n": ""
}
BYTES = {"sx[stage].nbytes + sy": "sx[stage].nbytes // 2 + sy"}
MISTAKES = {  # what changes in the pairs' module, and in the one below it: verdict, what it says
    "releases only its own": (OWN, {}, "deadlock", "2 of 4"),
    "waits only for its own": (
        *(OWN | {"PairRing(self.num_stages, 4, 0)": "PairRing(self.num_stages, 2, 0)"}, {}),
        *("race", "product"),
    ),
    "leaves early": ({}, DRAIN, "race", "may end while"),
    "expects only its own bytes": ({}, BYTES, "protocol", "bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_pairs_gets_its_verdict(mistake, tmp_path, monkeypatch):
    own, below, verdict, words = MISTAKES[mistake]
    name = f"below_{list(MISTAKES).index(mistake)}"
    mutate(tmp_path / f"{name}.py", product, below)
    changes = {"from tilus.kernels.product import": f"from {name} import"}
    mutate(tmp_path / "mutant.py", pairs, changes | own)
    mutant = loader.find(tmp_path / "mutant.py", object, "Pairs")
    monkeypatch.delitem(sys.modules, name)
    found = judged(mutant, KINDS["pairs"])
    assert found.verdict == verdict and words in found.message, found.message


@pytest.mark.parametrize("kind", LARGE.values(), ids=list(LARGE))
def test_machine_code_is_sound(kind):
    script = chosen(kind)(**kind)
    code = compiler.build(compiler.lower(script, {})).cubin.code
    assert sass.complaints(code) == []
    counts, loop = sass.opcodes(code), sass.loop(code, "HGMMA")
    assert not any(slow in loop for slow in ("MEMBAR", "CCTL", "ERRBAR"))
    assert loop.count(";") <= 80
    rows, steps = script.own_m // 64, script.block_k // 16
    assert counts["HGMMA"] == rows * steps  # all groups share one code
    assert counts["UTMALDG"] == 1 + (script.block_n // 64 if script.y_mn else 1)


def test_the_other_kernels_have_no_local_memory():
    for script in (Plain(), Sums(2), Sums(8)):
        code = compiler.build(compiler.lower(script, {})).cubin.code
        counts = sass.opcodes(code)
        assert not counts["LDL"] and not counts["STL"] and not sass.stack(code)
    assert Plain.dtype == float16 and ProductBfloat16.dtype.numpy == ml_dtypes.bfloat16


def test_the_table_was_measured_with_this_kernel():
    changed = table.measured().changed()
    assert not changed, f"scripts/gpu suite-tune measures schedules.json anew: {changed} changed"
