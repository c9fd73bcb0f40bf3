# SPDX-License-Identifier: Apache-2.0
"""Run-time values where Python needs compile-time ones, and the reverse, are refused by place."""

# ruff: noqa: F841

import math

import pytest
from tests.frontend.faulty import refused

import tilus
from tilus import float16, float32, int32, int64, loader
from tilus.errors import LanguageError


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
