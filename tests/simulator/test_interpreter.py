# SPDX-License-Identifier: Apache-2.0
"""Statements, and groups of threads that fork and join."""

import pytest
from small import BLOCK, assign, do, group, kernel, loop, note, place, run, variable, when

from tilus import ir, simulator
from tilus.dtypes import int32, uint32
from tilus.errors import SimulationError

HERE = place()


def test_loops_and_conditions():
    log, i, x = [], variable("i"), variable()
    run(
        assign(x, 0),
        loop(
            i, 10,
            when(i.__eq__(7), ir.Break(location=HERE)),
            when(i % 2 > 0, ir.Continue(location=HERE)),
            assign(x, x + i), note(log, x),
        ),
        note(log, i),
    )  # fmt: skip
    assert log == [0, 2, 6, 12, 7]


def test_while_runs_until_its_condition_fails():
    log, x = [], variable()
    body = (assign(x, x * 2), note(log, x))
    run(assign(x, 3), ir.While(location=HERE, cond=x < 20, body=body))
    assert log == [6, 12, 24]


def test_assignments_wrap_to_the_variable():
    log, x = [], variable()
    run(assign(x, 2**31 - 1), assign(x, ir.cast(x, uint32) + 1), note(log, x))
    assert log == [-(2**31)]


def test_else_branch():
    log, x = [], variable()
    then, orelse = (note(log, 1),), (note(log, 2),)
    run(assign(x, 0), ir.If(location=HERE, cond=x > 0, then=then, orelse=orelse))
    assert log == [2]


def test_return_leaves_the_kernel_from_inside_a_loop():
    log = []
    run(loop(variable(), 3, note(log, 1), ir.Return(location=HERE)), note(log, 2))
    assert log == [1]


def test_groups_run_concurrently_and_are_joined_before_what_they_take_part_in():
    """The first group waits for the second; a block-wide instruction waits for both."""
    state, log = [], []

    def wait(m):
        return ir.Wait(lambda: bool(state), lambda: "the flag")

    run(
        group(0, 128, do(wait), do(lambda m: log.append("first"))),
        group(128, 32, do(lambda m: state.append(1)), do(lambda m: log.append("second"))),
        do(lambda m: log.append("block")),
    )
    assert log[-1] == "block" and sorted(log[:2]) == ["first", "second"]


def test_a_group_joins_only_groups_that_overlap_it():
    log, state = [], []

    def wait(m):
        return ir.Wait(lambda: bool(state), lambda: "the flag")

    run(
        group(0, 128, do(wait)),
        group(128, 32, do(lambda m: log.append("a"))),
        group(128, 32, do(lambda m: log.append("b")), do(lambda m: state.append(1))),
        group(0, 160, do(lambda m: log.append("all"))),
    )
    assert log == ["a", "b", "all"]


def test_nested_groups_have_their_own_threads_and_order():
    log = []
    inner = group(128, 1, do(lambda m: log.append(m.threads)))
    run(group(128, 32, inner, do(lambda m: log.append(m.threads))))
    assert log == [ir.Threads(128, 1), ir.Threads(128, 32)]


def test_a_thread_stays_in_the_lane_of_its_group():
    inner = group(128, 1, note([], 1)), group(0, 32, note([], 1))
    events = run(group(128, 32, inner[0]), group(0, 128, inner[1]), trace=True).events
    assert sorted(e.lane for e in events) == ["warp 0", "warp 4"]


def test_a_group_has_a_copy_of_the_variables():
    log, x = [], variable()
    run(
        assign(x, 1),
        group(0, 128, assign(x, 5), note(log, x)),
        group(128, 32, note(log, x)),
        note(log, x),
    )
    assert sorted(log) == [1, 1, 5] and log[-1] == 1


def test_a_group_has_a_copy_of_replicated_registers():
    log = []
    phases = ir.RegisterTensor("phases", uint32, (2,), BLOCK, replicated=True)
    one = ir.as_expr(1)
    change = ir.SetElement(location=HERE, tensor=phases, index=one, value=one)
    run(
        do(lambda m: m.define(phases, [0, 0])),
        group(0, 128, change, note(log, phases[1])),
        note(log, phases[1]),
    )  # fmt: skip
    assert log == [1, 0]


def test_element_index_out_of_range():
    phases = ir.RegisterTensor("phases", uint32, (2,), BLOCK, replicated=True)
    x = variable()
    with pytest.raises(SimulationError, match=r"index of phases must be in 0\.\.1, got -1"):
        run(assign(x, -1), note([], phases[x]))


def test_instruction_after_some_threads_have_returned_is_not_modelled():
    gone = group(0, 128, ir.Return(location=HERE))
    log = []
    run(gone, group(128, 32, note(log, 1)))
    assert log == [1]
    with pytest.raises(SimulationError, match=r"not modelled.*warps 0-3 returned"):
        run(gone, note([], 1))


@pytest.mark.parametrize("body", [(), (note([], 1),)])
def test_endless_loop_ends_with_a_verdict(body):
    endless = ir.While(location=place(), cond=ir.as_expr(True), body=body)
    with pytest.raises(SimulationError) as info:
        run(group(128, 32, endless), max_steps=1000)
    assert info.value.verdict == "deadlock" and "no end after 1000" in str(info.value)
    assert info.value.facts["role"] == "warp 4"


def test_unknown_value_is_not_modelled():
    with pytest.raises(SimulationError, match=r"not modelled.*the value of y"):
        run(note([], variable("y")))


def test_deadlock_names_the_leaf_and_not_the_group_around_it():
    stuck = do(lambda m: ir.Wait(lambda: False, lambda: "nothing"), ir.Threads(128, 1))
    with pytest.raises(SimulationError) as info:
        run(group(128, 32, group(128, 1, stuck), do(lambda m: None)), do(lambda m: None))
    (wait,) = info.value.facts["waits"]
    assert (wait["role"], wait["line"]) == ("thread 128", stuck.location.line)


def test_builtins():
    log = []
    names = ["blockIdx.x", "blockIdx.y", "gridDim.x", "gridDim.z"]
    body = [note(log, ir.Builtin(name)) for name in names]
    simulator.run(kernel(*body, blocks=(2, 3, 1)), {}, blocks=[(1, 2, 0)])
    assert log == [1, 2, 2, 1]


def test_sync_of_the_block_passes_once_all_have_come():
    log = []
    sync = do(lambda m: m.wait_threads(m.threads))
    run(group(0, 128, note(log, 1)), group(128, 32, note(log, 1)), sync, note(log, 2))
    assert log == [1, 1, 2]


def test_loop_variable_keeps_its_last_value_as_int32():
    log, i = [], ir.Var("i", int32)
    run(loop(i, 3), note(log, i))
    assert log == [2]
