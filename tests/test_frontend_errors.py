# SPDX-License-Identifier: Apache-2.0
"""What is not part of the language is refused with file, line, caret and what to write instead.

In each kernel the faulty line ends in a comment ``# <underlined text>``; ``@refused`` holds words
of the message.
"""

# ruff: noqa: B007, E731, F821, F841, F842, SIM105, UP034

import inspect
import linecache
import math
import re

import pytest
from tests.kernels import Probe, script

import tilus
from tilus import float16, float32, frontend, int32, int64, loader, uint32
from tilus.errors import LanguageError


def refusal(function, **constants) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        frontend.trace(script(function) if not isinstance(function, Probe) else function, constants)
    return caught.value


def underlined(error: LanguageError) -> str:
    """Return what the carets of a message point at."""
    source, carets = str(error).splitlines()[-2:]
    assert set(carets.strip()) == {"^"}
    return source[carets.index("^") : carets.rindex("^") + 1]


def faulty_line(function) -> tuple[int, str]:
    """Return the number of the line with the comment, and the comment."""
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, first):
        if found := re.search(r"  # (.*)$", line):
            return number, found[1]
    raise AssertionError("no marked line")


def start(self):
    self.attrs.blocks, self.attrs.warps = 1, 4


class Kernel(Probe):
    """What the kernels below share."""

    start = start


def refused(*fragments: str):
    """Make a test of a kernel that must be refused with these words."""

    def decorate(function):
        def test():
            line, marked = faulty_line(function)
            error = refusal(type("Faulty", (Kernel,), {"__call__": function})())
            assert error.location.line == line, error
            assert error.location.file == __file__
            assert underlined(error) == marked, error
            for fragment in fragments:
                assert fragment in error.message
            assert str(error).startswith(f"{__file__}:{line}: ")

        test.__name__, test.__doc__ = f"test_{function.__name__}", " / ".join(fragments)
        return test

    return decorate


# Syntax


@refused("'lambda: 1' is not part of the kernel language", "write a method of the script")
def lambdas(self):
    self.start()
    f = lambda: 1  # lambda: 1
    self.use(f())


@refused("'def inner():' is not part", "it is inlined")
def inner_functions(self):
    self.start()

    def inner():  # d
        return 1


@refused("is not part of the kernel language", "check before")
def exceptions(self):
    self.start()
    try:  # t
        self.use(1)
    except ValueError:
        pass


@refused("'else' of a loop", "set a flag")
def else_of_a_loop(self, n: int32):
    self.start()
    for i in range(n):  # f
        self.use(i)
    else:
        self.use(0)


@refused("assign on a line of its own")
def walrus(self):
    self.start()
    self.use((x := 3))  # x := 3


@refused("at least 2 values are needed here, got 1")
def too_few_values(self):
    self.start()
    a, *rest, b = (1,)  # a, *rest, b = (1,)


# Names


@refused("'missing' is not defined")
def unknown_name(self):
    self.start()
    self.use(missing + 1)  # missing


@refused("'missing' is not defined")
def columns_count_characters(self):
    self.start()
    self.use(("äöü", missing))  # missing


@refused("'i' is not defined")
def variable_of_a_comprehension(self):
    self.start()
    self.use(len([i for i in range(3)]))
    self.use(i)  # i


@refused("'x' is read before it is assigned")
def unassigned(self):
    self.start()
    self.use(x)  # x
    x = 1


@refused("'unassigned_after' has no known value", "give it a number before")
def assigned_in_one_branch(self, n: int32):
    self.start()
    if n > 3:
        unassigned_after = 1
    self.use(unassigned_after)  # unassigned_after


@refused("'y' has no known value", "may not have run", "before the loop")
def assigned_in_a_loop(self, n: int32):
    self.start()
    for i in range(n):
        y = i
    self.use(y)  # y


@refused("'i' has no known value", "a run-time loop assigned it")
def counter_after_the_loop(self, n: int32):
    self.start()
    for i in range(n):
        self.use(i)
    self.use(i)  # i


@refused("'t' holds a SharedTensor from before the loop", "carries only numbers")
def tensor_carried_by_a_loop(self, n: int32):
    self.start()
    t = self.make()
    for i in range(n):
        self.use(t.nbytes)  # t
        t = self.make()


@refused("'t' has no 'nbites'; did you mean 'nbytes'?")
def unknown_attribute(self):
    self.start()
    t = self.make()
    self.use(t.nbites)  # t.nbites


@refused("'self.tma' has no 'global_to_shred'; did you mean 'global_to_shared'?")
def misspelt_instruction(self):
    self.start()
    self.tma.global_to_shred(1)  # self.tma.global_to_shred


@refused("'self' has no 'alloc'; did you mean 'self.mbarrier.alloc'?")
def instruction_without_its_unit(self):
    self.start()
    self.alloc([1])  # self.alloc


@refused("did you mean 'self.tma.commit_group' or 'self.wgmma.commit_group'?")
def instruction_of_two_units(self):
    self.start()
    self.commit_group()  # self.commit_group


@refused("'fence' is a unit, not an instruction; call self.fence.proxy_async or self.wgmma.fence")
def unit_that_is_called(self):
    self.start()
    self.fence()  # self.fence()


@refused("'self' has no 'softmax'; docs/reference/instructions.rst")
def no_instruction_at_all(self):
    self.start()
    self.softmax(1)  # self.softmax


@refused("'self' has no 'tanh'; docs/reference/instructions.rst")
def no_function_of_that_name(self):
    self.start()
    self.tanh(1)  # self.tanh


@refused("'x' is int32", "cannot hold int64", "declare it as `x: int64 = ...`")
def variable_too_narrow(self, n: int64):
    self.start()
    x = 0
    for i in range(n):
        x = x + i  # x


@refused("'x' is int32 (declared int32) and cannot hold float32")
def float_into_integer(self, f: float32):
    self.start()
    x: int32 = 0
    x = x * f  # x


@refused("'x: int32' must be given an integer, got float32")
def float_into_declaration(self, f: float32):
    self.start()
    x: int32 = f  # x: int32 = f


@refused("'x: int32' must be given a value that fits, got 2147483648")
def number_too_large_for_declaration(self):
    self.start()
    x: int32 = 2**31  # x: int32 = 2**31


@refused("must be given a number, got a SharedTensor")
def tensor_into_declaration(self):
    self.start()
    x: int32 = self.make()  # x: int32 = self.make()


@refused("needs a first value")
def declaration_without_value(self):
    self.start()
    x: int32  # x: int32


# Run-time values where Python needs compile-time ones


@refused("index of a Python list must be a compile-time integer", "a register tensor")
def list_by_run_time_index(self, n: int32):
    self.start()
    sizes = [1, 2, 3]
    self.use(sizes[n])  # sizes[n]


@refused("an f-string is made while the kernel is built", "a run-time value (int32)")
def f_string(self, n: int32):
    self.start()
    print(f"n is {n}")  # f"n is {n}"


@refused("has no truth value while the kernel is being built")
def truth_in_plain_python(self, n: int32):
    self.start()
    self.use([n, 1].count(1))  # [n, 1].count(1)


@refused("'sorted' runs while the kernel is built", "write min and max")
def sorting(self, n: int32):
    self.start()
    self.use(sorted([n, 1])[0])  # sorted([n, 1])


@refused("'print' runs while the kernel is built", "write self.printf")
def printing(self, n: int32):
    self.start()
    print("n", n)  # print("n", n)


@refused("'sqrt' runs while the kernel is built", "use the operators of the language")
def a_function_of_math(self, f: float32):
    self.start()
    self.use(math.sqrt(f))  # math.sqrt(f)


@refused("exponent of a run-time value must be a compile-time integer", "got -1")
def negative_power(self, n: int32):
    self.start()
    self.use(n**-1)  # n**-1


@refused("the exponent in 2 ** n must be a compile-time integer", "write 1 << n")
def run_time_power(self, n: int32):
    self.start()
    self.use(2**n)  # 2**n


@refused("b must be an int32, got a run-time value (int64)")
def fast_divmod_of_int64(self, n: int32, m: int64):
    self.start()
    pair = self.fast_divmod(n, m)  # self.fast_divmod(n, m)


@refused("the operands must be a >= 0 and b > 0, got -1 and 3")
def fast_divmod_of_negative_numbers(self):
    self.start()
    pair = self.fast_divmod(-1, 3)  # self.fast_divmod(-1, 3)


@refused("the operand of int32(...) must be a number, got a SharedTensor", "write self.cast")
def conversion_of_a_tensor(self):
    self.start()
    self.use(int32(self.make()))  # int32(self.make())


@refused("must be a compile-time value (self.assume takes run-time ones)", "run-time value")
def static_assert_at_run_time(self, n: int32):
    self.start()
    self.static_assert(n > 3)  # self.static_assert(n > 3)


@refused("block_k must be even")
def static_assert_fails(self):
    self.start()
    even = self.static_assert
    even(len("abc") == 2, "block_k must be even")  # even(len("abc") == 2, "block_k must be even")


@refused("assume: the condition must be true, got False")
def assume_fails(self):
    self.start()
    self.assume(False)  # self.assume(False)


@refused("shared_tensor: dtype must be a type such as float16, got the type int")
def type_of_python(self):
    self.start()
    t = self.shared_tensor(int, [8, 8])  # self.shared_tensor(int, [8, 8])


@refused("shape must be a list of compile-time integers", "got (a run-time value (int32), 8)")
def run_time_shape(self, n: int32):
    self.start()
    t = self.shared_tensor(float16, [n, 8])  # self.shared_tensor(float16, [n, 8])


@refused("'+' takes register tiles and numbers, got None")
def nothing_beside_a_tile(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = t + None  # t + None


@refused("blocks must be integers (write a // b, or int(x)), got 1.5")
def blocks_that_are_no_integer(self):
    self.attrs.blocks = 1.5  # self.attrs.blocks = 1.5


@refused("a range that is known must be over at most 65536 numbers", "got range(0, 1180591620717")
def turns_without_end(self):
    self.start()
    for _ in range(2**70):  # range(2**70)
        pass


@refused("load_shared: src must be a tensor in shared memory, got ")
def register_tile_for_a_shared_one(self):
    self.attrs.blocks = 1
    self.attrs.warps = 4
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    self.load_shared(t)  # self.load_shared(t)


@refused("load_shared: src must be a tensor in shared memory, got 3")
def number_for_a_tensor(self):
    self.start()
    t = self.load_shared(3)  # self.load_shared(3)


@refused("wait: barrier must be one mbarrier, got a BarrierArray")
def all_barriers_at_once(self):
    self.start()
    b = self.mbarrier.alloc([1, 1])
    self.mbarrier.wait(b, phase=0)  # self.mbarrier.wait(b, phase=0)


@refused("a view of device memory has no elements", "write self.load_global(")
def element_of_a_view(self, n: int32, p: ~float16):
    self.start()
    g = self.global_view(p, dtype=float16, shape=[n])
    self.use(g[0])  # g[0]


@refused("a run-time value (int32) is one number and has no elements")
def element_of_a_number(self, n: int32):
    self.start()
    self.use(n[0])  # n[0]


@refused("'len' runs while the kernel is built and cannot take a run-time value")
def length_of_a_number(self, n: int32):
    self.start()
    self.use(len(n))  # len(n)


@refused("a run-time value needs a number beside it, got 'x'")
def number_and_text(self, n: int32):
    self.start()
    self.use(n + "x")  # n + "x"


@refused("unroll must be a positive compile-time integer", "got a run-time value (int32)")
def run_time_unroll(self, n: int32):
    self.start()
    for _ in self.range(3, unroll=n):  # self.range(3, unroll=n)
        self.use(n)


@refused("a shift of int32 must be by 0 to 31, got 40")
def shift_beyond_the_width(self, n: int32):
    self.start()
    self.use(n << 40)  # n << 40


@refused("the right side of '%' must not be 0")
def remainder_of_zero(self, n: int32):
    self.start()
    self.use(n % 0)  # n % 0


@refused("'x: int32' must be given a value that fits, got 1099511627776")
def number_too_large_for_assignment(self, n: int32):
    self.start()
    x: int32 = n
    x = 2**40  # x


@refused("a number cannot be float16 at run time; take float32, or a register tile")
def number_as_half(self, n: int32):
    self.start()
    self.use(self.cast(n, dtype=float16))  # self.cast(n, dtype=float16)


@refused("int32(...) must be given one number, got 2")
def conversion_of_two(self, n: int32):
    self.start()
    self.use(int32(n, 3))  # int32(n, 3)


@refused("printf: the values must be as many as conversions in the format (2), got 1")
def printf_lacks_a_value(self, n: int32):
    self.start()
    self.printf("%d %d", n)  # self.printf("%d %d", n)


@refused("printf: the value of %f must be a float, got int32")
def printf_of_the_wrong_kind(self, n: int32):
    self.start()
    self.printf("%f", n)  # self.printf("%f", n)


@refused("printf: a conversion must be one of %d", "got %s")
def printf_of_a_string(self):
    self.start()
    self.printf("%s", 3)  # self.printf("%s", 3)


@refused("print_tensor: tensor must be a tensor, and the message behind it, got a str")
def print_tensor_turned_round(self):
    self.start()
    self.print_tensor("t", self.make())  # self.print_tensor("t", self.make())


@refused("the condition of assert must be a compile-time value")
def assertion_on_run_time_value(self, n: int32):
    self.start()
    assert n > 3  # assert n > 3


@refused("a compile-time sequence or a range is needed here, got a run-time value (int32)")
def loop_over_a_number(self, n: int32):
    self.start()
    for i in n:  # f
        self.use(i)


@refused("a Python list cannot change under run-time control flow")
def list_grows_in_a_loop(self, n: int32):
    self.start()
    found = []
    for i in range(n):
        found.append(i)  # found.append(i)


@refused("'/' on integers makes a float in Python; write '//'")
def true_division(self, n: int32):
    self.start()
    self.use(n / 2)  # n / 2


@refused("warps must be a compile-time integer, got a run-time value (int32)")
def run_time_warps(self, n: int32):
    self.attrs.warps = n  # self.attrs.warps = n


@refused("integer division or modulo by zero")
def division_by_zero(self):
    self.start()
    self.use(1 // 0)  # 1 // 0


@refused("tile too large: 512")
def assertion(self):
    self.start()
    size = 512
    assert size < 256, f"tile too large: {size}"  # assert size < 256, f"tile too large: {size}"


@refused("one side of a run-time conditional expression cannot run instructions", "an if statement")
def instruction_in_a_conditional(self, n: int32):
    self.start()
    self.use(self.make().nbytes if n else 0)  # self.make().nbytes


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


tests = {name: f for name, f in globals().items() if getattr(f, "__name__", "").startswith("test_")}
globals().update({f.__name__: f for f in tests.values()})


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


def test_parameters_need_annotations():
    def kernel(self, n: "int32", t: float16):
        pass

    def wrong(self, n: str):
        pass

    error = refusal(wrong)
    assert "parameter 'n' must be annotated" in error.message and underlined(error) == "n: str"
    assert "self.attrs.blocks must be set" in refusal(kernel).message


def test_source_must_be_readable():
    names = {"int32": int32}
    exec("def kernel(self):\n    self.attrs.warps = 1", names)
    linecache.checkcache()
    assert "write the kernel to a file" in refusal(names["kernel"]).message


FRACTIONS = {
    "offset of a load": "self.load_global(g, offsets=[at, 0], shape=[4, 64])",
    "offset of a store": "self.store_global(g, x, offsets=[0, at])",
    "offset of a copy": "self.tma.global_to_shared(g, s[0], [at, 0], b[0])",
    "stage": "self.store_shared(s[at], x)",
    "barrier": "self.mbarrier.arrive(b[at])",
    "element": "r[at] = 1",
    "size of a view": "self.global_view(x_ptr, dtype=float32, shape=[at, 64])",
    "stride of a view": "self.global_view(x_ptr, dtype=float32, shape=[4, 64], strides=[at, 1])",
}

PLACES = """\
import tilus
from tilus import float32, int32

class Places(tilus.Script):
    def __call__(self, f: float32, x_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        at = {at}
        g = self.global_view(x_ptr, dtype=float32, shape=[4, 64])
        s = self.shared_tensor(dtype=float32, shape=[2, 4, 64])
        x = self.register_tensor(dtype=float32, shape=[4, 64], init=0.0)
        r = self.register_tensor(dtype=int32, shape=[4], init=0)
        b = self.mbarrier.alloc([1, 1])
        {line}
"""


@pytest.mark.parametrize("at", ["1.0", "f"])
@pytest.mark.parametrize("line", FRACTIONS.values(), ids=FRACTIONS.keys())
def test_places_and_sizes_are_integers(tmp_path, line, at):
    file = tmp_path / "places.py"
    file.write_text(PLACES.format(line=line, at=at))
    with pytest.raises(LanguageError, match=r"must be an integer, got .*; cast with int32") as info:
        loader.find(file, tilus.Script)().lower()
    assert info.value.location.line == 13
