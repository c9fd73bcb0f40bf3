# SPDX-License-Identifier: Apache-2.0
"""What parts of K go through: nobody else's product comes in between, on whatever stream."""

import importlib
import threading
from functools import partial

import pytest
from tests.runtime.threads import together

from tilus.kernels import arrays
from tilus.kernels.matmul import Calls, Plan, Ran, Step
from tilus.runtime import PER_THREAD

matmul = importlib.import_module(
    "tilus.kernels.matmul"
)  # tilus.kernels has its object of that name


def elsewhere(*asked):
    """Return what each question is answered in a thread of its own, all of them alive by then."""
    ready, found = threading.Barrier(len(asked)), [None] * len(asked)

    def answer(place):
        ready.wait(10)
        found[place] = asked[place]()
        ready.wait(10)

    together(*(partial(answer, place) for place in range(len(asked))))
    return found


@pytest.fixture
def workspace(fake):
    """Return the address of the workspace that a handle of a stream has."""
    yield lambda handle, elements=64: arrays.workspace("cuda:0", handle, elements).address
    arrays._workspace.cache_clear()


def test_a_stream_has_one_workspace_whoever_asks(workspace):
    here = workspace(7)
    assert elsewhere(lambda: workspace(7), lambda: workspace(7)) == [here, here]
    assert workspace(8) != here


def test_threads_have_a_workspace_each_where_each_has_a_stream_of_its_own(workspace):
    one, other = elsewhere(lambda: workspace(PER_THREAD), lambda: workspace(PER_THREAD))
    assert workspace(PER_THREAD) == workspace(PER_THREAD)
    assert len({one, other, workspace(PER_THREAD)}) == 3


@pytest.mark.parametrize(("handle", "steps", "made"), [(2, 2, 2), (2, 1, 1), (7, 2, 1)])
def test_a_plan_is_kept_for_a_handle_unless_its_workspace_is_one_threads(
    monkeypatch, handle, steps, made
):
    plans = [Plan(Ran("cuda:0", "product"), (Step(print, None),) * steps) for _ in range(2)]
    monkeypatch.setattr(matmul, "plan", lambda *_: plans[0] if not calls.plans else plans[1])
    calls = Calls((None,) * 3, "cuda:0", lambda: handle)
    first = calls.plans.get(handle) or calls.plan(handle)
    assert first is plans[0] and (calls.plans.get(handle) is first) is (made == 1)


def test_parts_are_added_up_before_another_threads_product_begins():
    queued, other = [], threading.Event()

    def first(who):
        queued.append((who, "parts"))
        other.wait(0.2)  # as long as the other thread would need
        other.set()

    def product(who):
        steps = (
            Step(lambda _: first(who), None),
            Step(lambda _: queued.append((who, "sum")), None),
        )
        return lambda: Plan(Ran("cuda:0", "product"), steps).run(7)

    elsewhere(product("a"), product("b"))
    assert [what for _, what in queued] == ["parts", "sum"] * 2
    assert queued[0][0] == queued[1][0]
