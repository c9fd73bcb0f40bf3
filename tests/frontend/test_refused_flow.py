# SPDX-License-Identifier: Apache-2.0
"""Control flow, groups of threads, instructions and methods that cannot be are refused by place."""

# ruff: noqa: B007, F841

from tests.frontend.faulty import Kernel, refusal, refused, start, underlined

import tilus
from tilus import int32, uint32

# Control flow


@refused("a run-time 'break' cannot leave a loop over a Python sequence", "self.range(...)")
def run_time_break_of_unrolled_loop(self, n: int32):
    self.start()
    for i in (1, 2, 3):
        if n == i:
            break  # break


@refused("'break' must not leave a thread group")
def break_out_of_a_group(self, n: int32):
    self.start()
    for i in range(n):
        with self.single_thread():
            break  # break


def early(self, x):
    for i in range(x):
        if i > 3:
            return 1  # return 1
    return 2


@refused("a kernel returns nothing")
def kernel_returns_a_value(self):
    self.start()
    return 1  # return 1


@refused("'with' takes a group", "got a SharedTensor")
def with_something_else(self):
    self.start()
    with self.make():  # w
        self.use(1)


# Threads


@refused("num_threads must be a multiple of 32, or 1, got 48")
def odd_group(self):
    self.start()
    with self.thread_group(0, num_threads=48):  # self.thread_group(0, num_threads=48)
        self.use(1)


@refused("the thread group must be among the 128 threads", "got threads 96 to 159")
def group_outside_of_the_block(self):
    self.start()
    with self.thread_group(96, 64):  # self.thread_group(96, 64)
        self.use(1)


@refused("thread_begin must be a multiple of 32, got 16")
def misaligned_group(self):
    self.start()
    with self.thread_group(16, 32):  # self.thread_group(16, 32)
        self.use(1)


@refused("registers must be a multiple of 8 from 24 to 256, got 100")
def register_budget(self):
    self.start()
    with self.thread_group(0, 128, registers=100):  # self.thread_group(0, 128, registers=100)
        self.use(1)


@refused("must be whole warp groups", "got warps 0-1")
def register_budget_of_two_warps(self):
    self.start()
    with self.warp_group(0, 2, registers=40):  # self.warp_group(0, 2, registers=40)
        self.use(1)


@refused("self.attrs.warps must be set before this")
def no_warps_yet(self):
    self.use(1)  # self.use(1)


@refused(
    "'x' differs between the threads that read it here (warps 0-3)", "only the group of warp 1"
)
def variable_differs_after_a_group(self):
    self.start()
    x: int32 = 0
    with self.single_warp(1):
        x += 1
    self.use(x)  # x


@refused("'x' differs", "only the group of one thread of warps 0-3 assigned it")
def variable_differs_in_the_next_turn(self, n: int32):
    self.start()
    x: int32 = 0
    for _ in range(n):
        self.use(x)  # x
        with self.single_thread():
            x += 1


@refused("'x' differs between the threads that read it here (warp 0)", "line")
def group_is_over(self):
    self.start()
    x: int32 = 0
    with self.single_warp(0):
        x += 1
    with self.single_warp(1):
        self.use(x)
    with self.single_warp(0):
        self.use(x)  # x


@refused("'x' differs")
def group_is_another_one_in_the_next_turn(self, n: int32):
    self.start()
    x: int32 = 0
    for _ in range(n):
        with self.single_thread():
            x += 1  # x


@refused("'phases' differs")
def register_elements_differ(self):
    self.start()
    phases = self.register_tensor(dtype=uint32, shape=[2], init=0)
    with self.single_warp(2):
        phases[0] ^= 1
    self.use(phases[0])  # phases[0]


@refused("'y' has no known value here", "only the threads of a group know its value")
def name_of_a_group(self):
    self.start()
    with self.single_warp():
        y = 1
    self.use(y)  # y


# Instructions and the launch


@refused("_make: argument 'cols' is unknown; it takes rows")
def unknown_argument(self):
    self.start()
    self.make(cols=3)  # self.make(cols=3)


@refused("_use: argument 'x' is missing")
def missing_argument(self):
    self.start()
    self.use()  # self.use()


@refused("_use: takes at most 1 arguments, got 2")
def too_many_arguments(self):
    self.start()
    self.use(1, 2)  # self.use(1, 2)


@refused("_make: rows must be a multiple of 8, got 7")
def rule_of_an_instruction(self):
    self.start()
    t = self.make(7)  # self.make(7)


@refused("index must be in 0..3, got 4")
def index_out_of_range(self):
    self.start()
    t = self.make()
    self.use(t[4].nbytes)  # t[4]


@refused("blocks must be made from compile-time values and kernel parameters")
def grid_from_a_variable(self, n: int32):
    x: int32 = n
    self.attrs.blocks = x  # self.attrs.blocks = x


@refused("an attribute of self.attrs must be blocks, warps or cluster_blocks, got blocs")
def misspelt_attribute(self):
    self.attrs.blocs = 1  # self.attrs.blocs = 1


@refused("must be set outside of run-time control flow")
def launch_attribute_under_a_condition(self, n: int32):
    self.start()
    if n > 3:
        self.attrs.blocks = 2  # self.attrs.blocks = 2


@refused("the bounds of a range must be integers (write a // b, or int(x)), got 0.5")
def range_of_a_compile_time_float(self):
    self.start()
    for i in range(0.5):  # range(0.5)
        self.use(i)


@refused("the bounds of a range must be integers (write a // b, or int(x)), got 1.5")
def float_range(self):
    self.start()
    for i in self.range(0, 1.5):  # self.range(0, 1.5)
        self.use(i)


@refused('unroll must be a positive compile-time integer or "all", got 0')
def unroll(self):
    self.start()
    for i in self.range(3, unroll=0):  # self.range(3, unroll=0)
        self.use(i)


@refused("a kernel changes only objects it has made itself")
def foreign_object(self):
    self.start()
    start.remark = 1  # start.remark = 1


# Methods


def test_methods_say_who_called_them():
    class Caller(Kernel):
        early = early

        def __call__(self, n: int32):
            self.start()
            self.use(self.early(n))

    error = refusal(Caller())
    assert underlined(error) == "return 1" and "return it at the end" in error.message
    assert error.__notes__[0].splitlines()[1].strip() == "self.use(self.early(n))"


def test_both_returns_must_give_the_same_kind_of_thing():
    class Caller(Kernel):
        def either(self, x):
            if x > 3:  # x > 3
                return 1
            return self.make()

        def __call__(self, n: int32):
            self.start()
            self.either(n)

    error = refusal(Caller())
    assert underlined(error) == "x > 3" and "got 1 and a SharedTensor; assign" in error.message


def test_recursion_ends():
    class Endless(Kernel):
        def again(self, n):
            return self.again(n)

        def __call__(self, n: int32):
            self.start()
            self.again(n)

    assert "calls itself" in refusal(Endless()).message


def test_attribute_that_a_loop_changes_must_be_declared():
    class Counter(tilus.Class):
        def __init__(self):
            self.count = 0

        def step(self):
            self.count += 1

    class Counting(Kernel):
        def __call__(self, n: int32):
            self.start()
            counter = Counter()
            for _ in range(n):
                counter.step()

    assert "`self.count: int32 = ...`" in refusal(Counting()).message
