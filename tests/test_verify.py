# SPDX-License-Identifier: Apache-2.0
"""The judge on trial: what must be refused is refused, an honest result passes.

The product by NumPy in float32, rounded once, stands for cuBLAS, whose own result tests/gpu judges.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilus import verify
from tilus.errors import ArgumentError, TilusError
from tilus.verify import GUARD, Case, Output

TILE, ROWS = 64, 192
K_SIZES = (64, 1024, 16384)
SCALES = ("1e-3", "1", "headroom")


@dataclass(frozen=True)
class Product:
    """Inputs of one (K, scale) and the honest result."""

    a: np.ndarray
    b: np.ndarray

    @property
    def honest(self) -> np.ndarray:
        return (self.a.astype(np.float32) @ self.b.astype(np.float32).T).astype(np.float16)


@pytest.fixture(scope="module", params=[(k, s) for k in K_SIZES for s in SCALES], ids=str)
def product(request) -> Product:
    k, scale = request.param
    rng = np.random.default_rng(k)
    a, b = verify.normals((ROWS, k), rng), verify.normals((ROWS, k), rng)
    factor = verify.headroom(a, b) if scale == "headroom" else float(scale)
    return Product(verify.scaled(a, factor), b)


def zeros(p: Product) -> np.ndarray:
    return np.zeros_like(p.honest)


def transposed(p: Product) -> np.ndarray:
    return np.ascontiguousarray(p.honest.T)


def a_and_b_swapped(p: Product) -> np.ndarray:
    return Product(p.b, p.a).honest


def one_tile_missing(p: Product) -> np.ndarray:
    c = p.honest
    c[TILE : 2 * TILE, :TILE] = 0
    return c


def last_k_tile_skipped(p: Product) -> np.ndarray:
    return Product(p.a[:, :-16], p.b[:, :-16]).honest


def one_row_shifted(p: Product) -> np.ndarray:
    c = p.honest
    c[100] = np.roll(c[100], 1)
    return c


def one_nan(p: Product) -> np.ndarray:
    c = p.honest
    c[101, 37] = np.nan
    return c


def one_inf(p: Product) -> np.ndarray:
    c = p.honest
    c[101, 37] = np.copysign(np.inf, c[101, 37])
    return c


def float16_accumulation(p: Product) -> np.ndarray:
    """Sum as a tensor core that keeps float16: exact in steps of 16 along K, rounded after each."""
    c = np.zeros((ROWS, ROWS), np.float16)
    for k in range(0, p.a.shape[1], 16):
        step = Product(p.a[:, k : k + 16], p.b[:, k : k + 16])
        c = (c + step.a.astype(np.float32) @ step.b.astype(np.float32).T).astype(np.float16)
    return c


WRONG = [
    zeros,
    transposed,
    a_and_b_swapped,
    one_tile_missing,
    last_k_tile_skipped,
    one_row_shifted,
    one_nan,
    one_inf,
    float16_accumulation,
]


@pytest.mark.parametrize("mistake", WRONG, ids=lambda f: f.__name__)
def test_wrong_results_are_refused(product, mistake):
    wrong = mistake(product)
    for sample in (False, True):
        verdict = verify.bounded(wrong, product.a, product.b, sample=sample)
        assert not verdict.right, sample
        # A sample's lines may not cross a NaN.
        assert verdict.worst > 1 or mistake is one_nan, sample


@pytest.mark.parametrize("sample", [False, True], ids=["whole", "sample"])
def test_an_honest_result_passes(product, sample):
    verdict = verify.bounded(product.honest, product.a, product.b, sample=sample)
    assert verdict.right, verdict.faults
    # One rounding to float16 has a relative error of about 2^-12.
    assert 1e-4 < verdict.rel_err < 3e-4
    assert 0 < verdict.worst <= 1
    assert verdict.total == ROWS * ROWS


def test_serial_float32_sums_pass(product):
    """Sums in the order of a kernel's K loop lose more than NumPy's, and are still honest."""
    c = np.zeros((ROWS, ROWS), np.float32)
    for k in range(0, product.a.shape[1], 16):
        c += product.a[:, k : k + 16].astype(np.float32) @ product.b[:, k : k + 16].T.astype(
            np.float32
        )
    assert verify.bounded(c.astype(np.float16), product.a, product.b).right


@pytest.fixture
def small() -> Product:
    rng = np.random.default_rng(7)
    return Product(verify.normals((96, 32), rng), verify.normals((80, 32), rng))


def test_rel_err_is_relative_to_the_float64_product(small):
    c = (small.honest.astype(np.float64) * 1.5).astype(np.float16)
    assert verify.bounded(c, small.a, small.b).rel_err == pytest.approx(0.5, rel=1e-2)


def test_blocks_add_up(small, monkeypatch):
    c = (small.honest.astype(np.float32) * 1.01).astype(np.float16)
    whole = verify.bounded(c, small.a, small.b)
    monkeypatch.setattr(verify, "STEP", 7)
    blocks = verify.bounded(c, small.a, small.b)
    assert blocks.rel_err == pytest.approx(whole.rel_err) and blocks.worst == whole.worst
    assert blocks.faults[0].split(",")[0] == whole.faults[0].split(",")[0]


def test_a_wrong_shape_or_type_is_a_fault(small):
    assert "shape" in verify.bounded(small.honest.T, small.a, small.b).faults[0]
    assert (
        "float32"
        in verify.exact(np.zeros((96, 80), np.float32), small.a * 0, small.b * 0).faults[0]
    )


def test_faults_name_the_place(small):
    c = small.honest
    c[5, 7] += 1
    (fault,) = verify.bounded(c, small.a, small.b).faults
    assert "1 of 7680" in fault and "[5, 7]" in fault


def test_one_unit_in_the_last_place_too_much_is_refused():
    a, b = np.array([[1.25], [2.0**-20]], np.float16), np.array([[1.0], [2.0**-5]], np.float16)
    c = Product(a, b).honest
    assert c[1, 1] == 0 and verify.bounded(c, a, b).right  # 2^-25, a tie, rounds to zero
    for place in np.ndindex(c.shape):
        off = c.copy()
        off[place] = np.nextafter(c[place], np.float16(-1))
        assert not verify.bounded(off, a, b).right


def test_inf_is_right_only_where_float16_overflows():
    a = np.array([[60000.0, 60000.0], [-60000.0, -60000.0]], np.float16)
    b = np.ones((1, 2), np.float16)
    right = np.array([[np.inf], [-np.inf]], np.float16)
    for sample in (False, True):
        assert verify.bounded(right, a, b, sample=sample).right
        assert not verify.bounded(-right, a, b, sample=sample).right
        largest = np.array([[65504.0], [-65504.0]], np.float16)
        assert not verify.bounded(largest, a, b, sample=sample).right


def test_an_empty_k_makes_zeros():
    nothing = np.zeros((4, 0), np.float16)
    assert verify.bounded(np.zeros((4, 4), np.float16), nothing, nothing).right
    assert not verify.bounded(np.ones((4, 4), np.float16), nothing, nothing).right


def test_inputs_that_prove_nothing_are_refused(small):
    with pytest.raises(ArgumentError, match="a must be made of -1, 0 and 1"):
        verify.exact(small.honest, small.a, small.b)
    broken = small.a.copy()
    broken[0, 0] = np.nan
    with pytest.raises(ArgumentError, match="a must be finite"):
        verify.bounded(small.honest, broken, small.b)


# ---- exact --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 90), seed=st.integers(0, 99))
def test_exact_takes_the_integer_product_and_nothing_else(m, n, k, seed):
    rng = np.random.default_rng(seed)
    a, b = verify.integers((m, k), rng), verify.integers((n, k), rng)
    product = a.astype(np.int64) @ b.astype(np.int64).T
    assert verify.exact(product.astype(np.float16), a, b).right
    i, j = rng.integers(m), rng.integers(n)
    product[i, j] += rng.choice([-1, 1])
    verdict = verify.exact(product.astype(np.float16), a, b)
    assert not verdict.right and f"[{i}, {j}]" in verdict.faults[0]


def test_exact_looks_at_the_bits():
    zero = np.zeros((1, 1), np.float16)
    assert verify.exact(zero, zero, zero).right
    assert not verify.exact(-zero, zero, zero).right
    minus = np.full((1, 1), -1, np.float16)
    assert verify.exact(zero, minus, zero).right  # the integer 0 has no sign


def test_exact_judges_blocks_beyond_the_first():
    case = Case.draw("exact", verify.STEP + 8, 8, 16, seed=1)
    c = Product(case.a, case.b).honest
    assert verify.exact(c, case.a, case.b).right
    c[-1, -1] += 1
    assert f"[{verify.STEP + 7}, 7]" in verify.exact(c, case.a, case.b).faults[0]


# ---- samples ------------------------------------------------------------------------------------


@given(extent=st.integers(1, 1000), seed=st.integers(0, 99))
def test_every_band_has_a_line(extent, seed):
    drawn = verify.lines(extent, np.random.default_rng(seed))
    assert (drawn // 64 == np.arange(-(-extent // 64))).all() and drawn.max() < extent


def test_samples_are_full_lines_chosen_anew(small):
    verdict = verify.bounded(small.honest, small.a, small.b, sample=True)
    assert verdict.checked == 2 * 80 + 2 * 96


def test_samples_are_drawn_anew_each_time():
    a = np.ones((256, 1), np.float16)
    c = np.ones((256, 256), np.float16)
    c[100, 100] = 2
    verdicts = [verify.bounded(c, a, a, sample=True).right for _ in range(600)]
    assert any(verdicts) and not all(verdicts)


def test_large_products_are_sampled():
    a = np.zeros((2048, 1040), np.float16)
    c = np.zeros((2048, 2048), np.float16)
    assert verify.bounded(c, a, a).checked == 2 * 32 * 2048
    assert verify.bounded(c[:256, :256], a[:256], a[:256]).checked == 256 * 256


# ---- memory -------------------------------------------------------------------------------------


def run(case: Case, spoil=lambda raw, a, b: None) -> verify.Verdict:
    """Play the kernel: write C honestly, then spoil something."""
    raw, a, b = case.output.fresh(), case.a.copy(), case.b.copy()
    case.output.matrix(raw)[:] = Product(a, b).honest
    spoil(raw, a, b)
    return case.judge(raw, a, b)


def overwrite(index):
    def spoil(raw, a, b):
        raw[index] = 1.0

    return spoil


def unwritten(raw, a, b):
    raw.view(np.uint16)[GUARD + 3] = verify.POISON


def change_a(raw, a, b):
    a[0, 0] = -a[0, 0] if a[0, 0] else 1


def change_b(raw, a, b):
    b[-1, -1] = -b[-1, -1] if b[-1, -1] else 1


@pytest.mark.parametrize("kind", ["exact", "bounded"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (overwrite(0), "128 bytes before C"),
        (overwrite(GUARD - 1), "128 bytes before C"),
        (overwrite(-1), "128 bytes after C"),
        (overwrite(-GUARD), "128 bytes after C"),
        (overwrite(GUARD + 24), "beyond C's columns was changed, first at [0, 24]"),
        (unwritten, "1 elements were never written, first at [0, 3]"),
        (change_a, "A was changed"),
        (change_b, "B was changed"),
    ],
)
def test_the_memory_around_c_is_watched(kind, spoil, said):
    case = Case.draw(kind, 16, 24, 32, seed=3, pitch=32)
    assert run(case).right
    assert said in "; ".join(run(case, spoil).faults)


def test_a_kernel_that_writes_nothing_is_refused():
    case = Case.draw("bounded", 8, 8, 8, seed=0)
    faults = case.judge(case.output.fresh(), case.a, case.b).faults
    assert (
        faults[0]
        == "64 elements were never written, first at [0, 0], all within rows 0-7, columns 0-7"
    )


def test_poison_is_a_nan_and_guards_are_128_bytes():
    output = Output(2, 3, 5)
    raw = output.fresh()
    assert np.isnan(output.matrix(raw)).all() and np.isfinite(raw).sum() == raw.size - 6
    assert raw.nbytes == 2 * 2 * 5 + 2 * 128


def test_demand_raises_with_every_fault():
    verdict = run(Case.draw("exact", 8, 8, 8, seed=0), change_a)
    with pytest.raises(
        TilusError, match="v3 at 8x8x8 is wrong \\(exact check\\):\n  A was changed"
    ):
        verdict.demand("v3 at 8x8x8")


@pytest.mark.parametrize("largest", [8.0, 10.0, 0.3])
def test_headroom_is_the_largest_power_of_two(largest):
    a, b = np.array([[largest]], np.float16), np.array([[1.0]], np.float16)
    factor = verify.headroom(a, b)
    assert float(a[0, 0]) * factor < 32768 <= 2 * float(a[0, 0]) * factor
