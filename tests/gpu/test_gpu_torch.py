# SPDX-License-Identifier: Apache-2.0
"""The question that PyTorch answers for us: whether tensors have the form of others.

It takes a PyTorch and no GPU; machines with one have both.
"""

import copy
import gc
import weakref

import pytest

from tilus.launch.known import forms, like

torch = pytest.importorskip("torch")


def tensor():
    return torch.zeros(8, 16, dtype=torch.float16)


OTHERS = {
    "the shape": lambda: torch.zeros(8, 8, dtype=torch.float16),
    "the number of dimensions": lambda: torch.zeros(8, dtype=torch.float16),
    "the strides": lambda: torch.zeros(16, 8, dtype=torch.float16).T,
    "the pitch": lambda: torch.zeros(8, 32, dtype=torch.float16)[:, :16],
    "the type": lambda: tensor().view(torch.int16),
    "the type of as many bits": lambda: tensor().view(torch.bfloat16),
    "the device": lambda: torch.zeros(8, 16, dtype=torch.float16, device="meta"),
    "that a gradient is wanted": lambda: tensor().requires_grad_(),
    "the sign": lambda: torch._neg_view(tensor()),
    "the class": lambda: torch.nn.Parameter(tensor(), requires_grad=False),
}


def test_pytorch_is_asked_itself():
    guards = torch._C._dynamo.guards.TensorGuards
    assert isinstance(like([tensor()]).__self__, guards)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("place", [0, 1])
def test_what_makes_a_tensor_another_one(other, place):
    same, pair = like([tensor(), tensor()]), [tensor(), tensor()]
    assert same(*pair)
    assert forms(pair) == forms([tensor(), tensor()])
    pair[place] = other()
    assert not same(*pair)
    assert forms(pair) != forms([tensor(), tensor()])


def test_a_tensor_that_is_there_twice():
    """PyTorch's own question says no to it, even of itself."""
    x, y = tensor(), tensor()
    same = like([x, x])
    assert same(x, x) and same(x, y) and not same(x, y[:4])


def test_a_tensor_that_changes_in_place():
    x = tensor()
    same = like([x])
    assert same(x)
    for change in (
        lambda: x.resize_(4, 32),
        lambda: x.t_(),
        lambda: x.set_(torch.zeros(8, 8, dtype=torch.float16)),
        lambda: setattr(x, "data", torch.zeros(8, 16)),
    ):
        change()
        assert not same(x)
        x.data = tensor()
        assert same(x)


def test_a_gradient_matters_where_it_is_recorded():
    """Evaluation comes before training: what was known then is another call now."""
    x = tensor().requires_grad_()
    with torch.no_grad():
        same = like([x])
        assert same(x) and forms([x]) == forms([tensor()])
    assert not same(x)


def test_modes_are_told_apart():
    same, x = like([tensor()]), tensor()
    with torch.inference_mode():
        assert not same(x) and like([x])(x)
    assert same(x)


def test_other_numbers_are_the_same_form():
    same, x = like([tensor()]), tensor()
    x.fill_(7)
    assert same(x) and same(copy.deepcopy(x))


def test_tensors_are_not_held():
    x = tensor()
    same, gone = like([x]), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None and same(tensor())


def test_what_is_no_tensor_is_not_the_same():
    assert not like([tensor()])(object())
