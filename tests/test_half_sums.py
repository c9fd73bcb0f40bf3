# SPDX-License-Identifier: Apache-2.0
"""The bound for sums in float16: it takes what a tensor core may do, and refuses what is wrong."""

import numpy as np
import pytest

from tilus.half_sums import STEP_K, errors
from tilus.verify import normals

M, N = 24, 64
DEPTHS = (64, 1024, 8192)


def inputs(k, factor=1.0):
    rng = np.random.default_rng(k)
    a, b = normals((M, k), rng), normals((N, k), rng)
    return (a.astype(np.float32) * np.float32(factor)).astype(np.float16), b


def half_sums(a, b, step=STEP_K):
    """Sum as a tensor core may: a step's products exactly, then one rounding to float16."""
    c = np.zeros((len(a), len(b)), np.float16)
    for k in range(0, a.shape[1], step):
        part = a[:, k : k + step].astype(np.float64) @ b[:, k : k + step].astype(np.float64).T
        c = (c.astype(np.float64) + part).astype(np.float16)
    return c


def rounded_once(a, b):
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16)


@pytest.mark.parametrize("factor", [1.0, 2.0**5])
@pytest.mark.parametrize("k", DEPTHS)
def test_sums_in_float16_are_within_the_bound_with_room_to_spare(k, factor):
    a, b = inputs(k, factor)
    assert 0.02 < errors(half_sums(a, b), a, b).worst < 0.6


WRONG = {
    "zeros": lambda a, b: np.zeros((M, N), np.float16),
    "a tile of K left out": lambda a, b: half_sums(a[:, 64:], b[:, 64:]),
    "rows shifted": lambda a, b: half_sums(np.roll(a, 1, axis=0), b),
    "columns shifted": lambda a, b: half_sums(a, np.roll(b, 1, axis=0)),
    "half as large again": lambda a, b: half_sums(a, b) * np.float16(1.5),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("k", DEPTHS)
def test_another_result_is_not(k, wrong):
    a, b = inputs(k)
    assert errors(WRONG[wrong](a, b), a, b).worst > 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_element_that_is_no_number_is_seen(value):
    a, b = inputs(64)
    c = half_sums(a, b)
    c[3, 5] = value
    assert errors(c, a, b).worst == np.inf


def test_errors_are_relative_to_the_sum_of_sizes():
    a, b = np.full((1, 64), -2, np.float16), np.full((1, 64), 1, np.float16)
    found = errors(np.array([[-127]], np.float16), a, b)  # -128 is right
    assert (found.largest, found.rms, found.rel_err) == (1 / 128, 1 / 128, 1 / 128)
    assert found.checked == 1


def test_sums_in_float16_lose_what_one_rounding_does_not():
    a, b = inputs(8192)
    narrow, wide = errors(half_sums(a, b), a, b), errors(rounded_once(a, b), a, b)
    assert narrow.rms > 5 * wide.rms and wide.worst < 0.1
