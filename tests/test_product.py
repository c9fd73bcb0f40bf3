# SPDX-License-Identifier: Apache-2.0
"""Several kernels in one process: judged one by one, timed in turn, each with its own source."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.kernels import load_v3
from tests.played import FACTS, H200, Stage, kernel_like, multiply, rivals

from tilus import baseline, bench, product, records, workload
from tilus.errors import TilusError

BURST = {"burst": bench.Burst(rounds=2, launches=3, warmups=1)}


@pytest.fixture
def stage(monkeypatch):
    monkeypatch.setattr(product, "facts", lambda kernel, gpu: dict(FACTS))
    return Stage().play(monkeypatch)


def played(stage, multiplies=None, **paces):
    """Return a product whose versions are NumPy, each with its pace."""
    made = product.Product((64, 48, 32), H200, say=lambda text: None)
    for name, ms in paces.items():
        script = kernel_like(
            load_v3(), stage.pace(name, ms), (multiplies or {}).get(name, multiply)
        )
        made.versions[name] = product.Version.choose(name, script, {}, made)
    return made


def test_versions_take_turns_and_each_has_its_ratio(stage, monkeypatch):
    rivals(monkeypatch, stage, {"cublas": 1.0, "cublaslt": 0.9, "triton": 0.5})
    made = played(stage, v3=2.0, v5=1.25)
    made.check()
    made.find([baseline.contenders])
    del stage.launches[:]
    rows = {row["version"]: row for row in made.measure(BURST)}
    assert list(dict.fromkeys(stage.launches)) == ["v3", "v5", "cublas", "cublaslt", "triton"]
    assert stage.launches[:8] == ["v3"] * 4 + ["v5"] * 4 and stage.launches[20:24] == ["v3"] * 4
    found = {name: row["vs_cublas"] for name, row in rows.items()}
    assert found == pytest.approx(
        {"v3": 0.5, "v5": 0.8, "cublas": 1.0, "cublaslt": 1 / 0.9, "triton": 2.0}
    )
    # Triton is faster than any cuBLAS here, and still not the best of cuBLAS.
    assert {row["best_cublas"] for row in rows.values()} == {"cublaslt"}
    assert rows["v5"]["vs_best_cublas"] == pytest.approx(0.72)


def test_without_cublas_a_rival_gives_no_ratio(stage, monkeypatch):
    rivals(monkeypatch, stage, {"triton": 0.5})
    made = played(stage, v3=2.0)
    made.check()
    made.find([baseline.contenders])
    assert {row["vs_cublas"] for row in made.measure(BURST)} == {None}


def test_every_version_is_judged_though_the_first_is_right(stage):
    def last_row_lost(a, b, c):
        multiply(a, b, c)
        c.array[-1] = 0

    made = played(stage, {"v5": last_row_lost}, v3=2.0, v5=1.0)
    with pytest.raises(TilusError, match=r"v5 at 64x48x32 is wrong \(exact check"):
        made.check()


def test_inputs_that_a_later_version_changes_are_noticed(stage):
    def swapped(a, b, c):
        multiply(a, b, c)
        a.array[0, 0], b.array[1, 1] = 1, 1

    made = played(stage, {"v5": swapped}, v3=2.0, v5=1.0)
    with pytest.raises(TilusError, match="v5 at 64x48x32 is wrong"):
        made.check()


def test_inputs_that_a_later_version_changes_are_noticed_on_the_simulator_too():
    def right(m, n, k, a, b, c):
        c[...] = a.astype(np.float32) @ b.astype(np.float32).T

    def spoils(m, n, k, a, b, c):
        right(m, n, k, a, b, c)
        a[0, 0] += 1

    made = product.Product((16, 24, 8), None, say=lambda text: None)
    for name, kernel in (("v3", right), ("v4", spoils)):
        made.versions[name] = product.Version(name, None, kernel)
    with pytest.raises(
        TilusError, match=r"v4 at 16x24x8 is wrong \(exact check\):\n  A was changed"
    ):
        made.check()


def test_a_version_that_writes_nothing_does_not_inherit_the_result_before(stage):
    made = played(stage, {"v5": lambda a, b, c: None}, v3=2.0, v5=1.0)
    with pytest.raises(TilusError, match="never written"):
        made.check()


def test_other_bits_in_a_later_run_are_wrong(stage):
    count = iter(range(1000))

    def drifts(a, b, c):
        multiply(a, b, c)
        # Both checks take a run each; the fourth after them differs in its last bit.
        if next(count) == 5:
            c.array.view("uint16")[3, 3] += 1

    made = played(stage, {"v3": drifts}, v3=1.0)
    made.check(runs=3)
    count = iter(range(1000))
    with pytest.raises(TilusError, match="run 4 leaves other bits than the first"):
        made.check(runs=20)


def test_each_version_and_a_rival_in_the_repository_have_their_source(stage, monkeypatch):
    file = product.ROOT / "examples" / "hopper_matmul" / "matmul_v1.py"
    rival = baseline.Contender("triton", lambda: None, "triton 3", None, lambda: None, file)
    made = played(stage, v3=2.0, v5=1.0)
    made.rivals["triton"] = rival
    monkeypatch.setattr(
        records,
        "generated",
        lambda cls, schedule, arguments: {"schedule": {}, "arguments": {}, "sha256": "0" * 64},
    )
    tuning = SimpleNamespace(facts=lambda: {"seconds": 3.5})
    object.__setattr__(made.versions["v3"], "tuning", tuning)
    kernels = made.kernels()
    assert set(kernels) == {"v3", "v5", "triton"} and "class" not in kernels["triton"]
    assert kernels["triton"]["file"] == "examples/hopper_matmul/matmul_v1.py"
    assert kernels["v3"]["generated"][0]["facts"] == {**FACTS, "tuning": {"seconds": 3.5}}
    assert kernels["v5"]["generated"][0]["facts"] == FACTS
    launches = [entry["version"] for entry in made.account()["launches"]]
    assert launches == ["v3", "v5", "triton"]


def test_all_sizes_may_take_what_one_was_tuned_for(stage, monkeypatch):
    seen = []

    def choose(name, script, given, at):
        seen.append((name, dict(given), at.size))
        return product.Version(name, script, at.size, tuning="long")

    monkeypatch.setattr(product.Version, "choose", choose)
    request = workload.Request(
        sizes=[(16, 16, 16), (8, 8, 8)], tune_at=(8, 8, 8), given={"v3": {"num_stages": 4}}
    )
    script = load_v3()
    made = list(workload.products({"v3": script, "v5": script}, request, None))
    assert seen == [("v3", {"num_stages": 4}, (8, 8, 8)), ("v5", {}, (8, 8, 8))]
    found = [(p.size, p.versions["v5"].kernel, p.versions["v5"].tuning) for p in made]
    assert found == [((16, 16, 16), (8, 8, 8), None), ((8, 8, 8), (8, 8, 8), "long")]
    seen.clear()
    list(workload.products({"v3": script}, workload.Request(sizes=request.sizes), None))
    assert [size for *_, size in seen] == [(16, 16, 16), (8, 8, 8)]
