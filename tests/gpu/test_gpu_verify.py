# SPDX-License-Identifier: Apache-2.0
"""V3 and cuBLAS before the judge of :mod:`tilus.verify`, on the GPU and at full size."""

import numpy as np
import pytest

from tilus import baseline, runtime, verify
from tilus.product import Operands
from tilus.verify import Case

SIZES = [(8192, 8192, 8192), (4096, 4096, 4096), (1000, 904, 520), (256, 256, 64), (64, 64, 8)]


def judged(kernel, case, gpu):
    operands = Operands.place(case, gpu)
    m, n, k = len(case.a), len(case.b), case.a.shape[1]
    kernel(m, n, k, operands.a, operands.b, operands.c)
    return operands.judge(case)


@pytest.mark.parametrize("kind", ["exact", "bounded"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_v3_is_right(v3, gpu, size, kind):
    verdict = judged(v3, Case.draw(kind, *size), gpu)
    print(f"{size} {kind}: rel_err={verdict.rel_err:.3e} worst={verdict.worst:.3f}")
    assert verdict.right, verdict.faults


def scaled_cases():
    """Yield a case for every K and scale that the judge is held to."""
    for k in (64, 1024, 16384):
        plain = Case.draw("bounded", 512, 512, k, seed=k)
        for factor in (1e-3, 1.0, verify.headroom(plain.a, plain.b)):
            yield Case("bounded", verify.scaled(plain.a, factor), plain.b)


def test_v3_is_right_at_every_scale(v3, gpu):
    for case in scaled_cases():
        verdict = judged(v3, case, gpu)
        assert verdict.right, (case.a.shape, verdict.faults)


def test_cublas_is_right_at_every_scale(gpu):
    seen = 0
    for case in scaled_cases():
        operands = Operands.place(case, gpu)
        for rival in baseline.contenders(operands.a, operands.b, operands.c):
            operands.poison(case)
            rival.launch()
            verdict = operands.judge(case)
            assert verdict.right, (rival.name, case.a.shape, verdict.faults)
            seen += 1
    if not seen:
        pytest.skip("no library with cuBLAS")


def test_float16_overflows_to_the_right_infinity(v3, gpu):
    plain = Case.draw("bounded", 256, 256, 1024, seed=1)
    factor = 8 * verify.headroom(plain.a, plain.b)
    case = Case("bounded", verify.scaled(plain.a, factor), plain.b)
    operands = Operands.place(case, gpu)
    v3(256, 256, 1024, operands.a, operands.b, operands.c)
    assert np.isinf(operands.c.to_numpy()).any()
    assert operands.judge(case).right


def test_twenty_runs_give_the_same_bits(v3, gpu):
    size = (8192, 8192, 8192)
    case = Case.draw("bounded", *size, seed=0)
    operands, first = Operands.place(case, gpu), None
    for _ in range(20):
        operands.poison(case)
        v3(*size, operands.a, operands.b, operands.c)
        bits = operands.memory.to_numpy().view(np.uint16)
        first = bits if first is None else first
        assert np.array_equal(bits, first)


def test_contenders_write_into_the_array_they_are_given(gpu):
    case = Case.draw("exact", 128, 128, 128, seed=0)
    operands = Operands.place(case, gpu)
    rivals = baseline.contenders(operands.a, operands.b, operands.c)
    for rival in rivals:
        operands.poison(case)
        rival.launch()
        runtime.synchronize(gpu.index)
        assert operands.judge(case).right, rival.name
        print(rival.name, rival.library, rival.version, rival.kernel())
    if not rivals:
        pytest.skip("no library with cuBLAS")
