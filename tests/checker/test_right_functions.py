"""Functions that are right: no accusation, a bill that says what was tried, and nothing of the user's is changed."""

import random

import numpy as np
import pytest
import right_functions as right
import torch

import torchsleuth
from torchsleuth.checker import check_trial
from torchsleuth.checker.report import report_of
from torchsleuth.checker.trial import Trial
from torchsleuth.model import from_plain, to_plain

NAMES = [name for name in right.INPUTS if name not in right.DELIBERATE]


@pytest.mark.parametrize("name", NAMES)
def test_right_function_gets_a_clean_bill(name):
    report = torchsleuth.check(getattr(right, name), *right.INPUTS[name]())
    assert report.ok and not report.diagnoses, str(report)
    bill = "\n".join(report.notes)
    assert "right" in bill and "tolerance" in bill and "non-contiguous" in bill and "float64" in bill
    assert "size 0" in bill or "autograd" in bill


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_other_seeds_and_types_do_not_matter(name, seed):
    inputs = [v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in right.INPUTS[name]()]
    inputs = [v.requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
    report = torchsleuth.check(getattr(right, name), *inputs, seed=seed)
    assert report.ok and not report.diagnoses, str(report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["Softmax", "Linear", "Gelu", "Matmul", "Clamp", "AddBias"])
def test_half_precision_inputs(name, dtype):
    inputs = [v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in right.INPUTS[name]()]
    report = torchsleuth.check(getattr(right, name), *inputs)
    assert report.ok and not report.diagnoses, str(report)


@pytest.mark.parametrize("shape", [(1, 32, 100), (4, 4), (7,), (1, 1), (2, 3, 3, 2)], ids=str)
@pytest.mark.parametrize("name", ["Exp", "Relu", "Abs", "Gelu", "Tanh", "Softmax"])
def test_shapes_instead_of_tensors(name, shape):
    report = torchsleuth.check(getattr(right, name), shape)
    assert report.ok and not report.diagnoses, str(report)


@pytest.mark.parametrize("name", ["Relu", "Abs", "MaxOver", "MinMax", "Clamp"])
def test_points_on_a_kink_are_not_held_against_it(name):
    x = torch.tensor([[0.0, 0.0, 1.0, -1.0], [2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    rest = (-1.0, 2.0) if name == "Clamp" else ()
    report = torchsleuth.check(getattr(right, name), x, *rest)
    assert report.ok, str(report)


class OtherSubgradient(torch.autograd.Function):
    """ReLU with slope 0.25 at zero: as good a choice as any."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x > 0) + 0.25 * (x == 0))


def test_another_subgradient_at_the_kink():
    report = torchsleuth.check(OtherSubgradient, torch.tensor([0.0, 1.0, -1.0, 0.0]))
    assert report.ok, str(report)
    assert "kink" in "\n".join(report.notes)


@pytest.mark.parametrize("name", right.DELIBERATE)
def test_deliberate_ones_are_named_and_can_be_accepted(name):
    function, inputs = getattr(right, name), right.INPUTS[name]()
    report = torchsleuth.check(function, *inputs, accept_surrogate=False)
    assert [d.rule for d in report.diagnoses] == ["backward-not-derivative"]
    assert "not the derivative of forward" in report.diagnoses[0].title
    for accepted in (torchsleuth.check(function, *inputs), torchsleuth.check(function, *inputs, strict=True, accept_surrogate=True)):
        assert accepted.ok and not accepted.diagnoses
        assert "on purpose" in "\n".join(accepted.notes)


class Noisy(torch.autograd.Function):
    """Draws from every global generator, writes nothing."""

    @staticmethod
    def forward(ctx, x):
        scale = torch.rand(1).item() + random.random() + np.random.rand()
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.scale


def test_nothing_of_the_users_changes():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).double().train()
    model(torch.randn(5, 4, dtype=torch.float64)).sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    buffers = [b.clone() for b in model.buffers()]
    x = torch.randn(5, 4, requires_grad=True)
    x.grad = torch.ones_like(x)
    before = x.detach().clone()
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    for function, inputs in ((Noisy, (x,)), (right.InPlaceDouble, (x,)), (right.Dropout, (x, 0.5)), (right.Recompute, (model, x)), (right.Sum, ((2, 3),))):
        torchsleuth.check(function, *inputs)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert torch.equal(x, before) and torch.equal(x.grad, torch.ones_like(x)) and x.requires_grad and x._version == 0
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert all(torch.equal(b, c) for b, c in zip(model.buffers(), buffers, strict=True)) and model.training
    assert torch.is_grad_enabled()


def test_the_trial_survives_json_and_is_judged_the_same():
    trial = check_trial(right.RoundStraightThrough, *right.INPUTS["RoundStraightThrough"]())
    again = from_plain(Trial, to_plain(trial))
    assert again == trial
    assert report_of((again,)).diagnoses == report_of((trial,)).diagnoses


def test_an_input_that_requires_no_grad_is_left_out_and_named():
    x, bias = torch.randn(2, 3, 4, requires_grad=True), torch.randn(4)
    report = torchsleuth.check(right.AddBias, x, bias)
    assert report.ok and any("bias requires no grad" in note for note in report.notes)


def test_large_input_in_little_memory():
    x = torch.randn(64, 128, 192, dtype=torch.float32, requires_grad=True)
    report = torchsleuth.check(right.Relu, x)
    assert report.ok, str(report)
