# SPDX-License-Identifier: Apache-2.0
"""What is not part of the language, and names that say nothing, are refused by place."""

# ruff: noqa: B007, E731, F821, F841, F842, SIM105, UP034

import linecache

from tests.frontend.faulty import refusal, refused, underlined

from tilus import float16, float32, int32, int64

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


# The signature and the source


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
