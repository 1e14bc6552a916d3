"""What cannot be checked gets a clear answer that names the thing."""

import pytest
import right_functions as right
import torch
from torch.autograd import Function

import torchsleuth
from torchsleuth.errors import UsageError
from torchsleuth.testing import assert_function_correct


def function(forward, backward=lambda ctx, *g: g[0]):
    return type("Custom", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def refused(function, *inputs):
    with pytest.raises(UsageError) as caught:
        torchsleuth.check(function, *inputs)
    return str(caught.value)


def test_not_a_function():
    assert "torch.nn.Module" in refused(torch.nn.Linear(2, 2), (3, 2))
    assert "the class Linear" in refused(torch.nn.Linear, (3, 2))
    assert "'Sum'" in refused("Sum", (3, 2))
    assert "Function" in refused(lambda x: x, (3, 2))
    assert "defines no forward" in refused(type("Empty", (Function,), {}), (3, 2))


def test_apply_is_taken_for_its_class():
    assert torchsleuth.check(right.Exp.apply, (3, 2)).ok


def test_inputs_that_make_no_sense():
    assert "no inputs" in refused(right.Exp)
    assert "labels is a tensor int64" in refused(right.CrossEntropy, torch.zeros(3, 4).long(), torch.zeros(3).long())
    assert "x is a tensor complex64[2]; complex" in refused(right.Exp, torch.zeros(2, dtype=torch.complex64))
    assert "x has layout torch.sparse_coo" in refused(right.Exp, torch.eye(3).to_sparse())
    assert "meta" in refused(right.Exp, torch.zeros(3, device="meta"))
    assert "missing a required argument: 'b'" in refused(right.Matmul, (3, 4))
    assert "too many" in refused(right.Exp, (3, 4), (3, 4))


def test_forward_that_raises():
    text = refused(right.Matmul, (3, 4), (3, 4))
    assert "Matmul.forward raises RuntimeError" in text and "a [3, 4], b [3, 4]" in text and "`a @ b`" in text and "right_functions.py" in text


def test_outputs_that_are_not_tensors():
    assert "returns float, not a tensor" in refused(function(lambda ctx, x: 1.0), (3,))
    assert "returns a list" in refused(function(lambda ctx, x: [x, x]), (3,))
    assert "returns a dict" in refused(function(lambda ctx, x: {"y": x}), (3,))
    assert "complex" in refused(function(lambda ctx, x: torch.fft.fft(x)), (4,))
    assert "only int64" in refused(function(lambda ctx, x: x.argmax(0)), (4,))


def test_a_number_beside_a_tensor_is_no_output_to_check():
    both = function(lambda ctx, x: (x * 2, 3), lambda ctx, g, n: 2 * g)
    assert torchsleuth.check(both, (3,)).ok


def test_backward_that_raises_or_is_missing():
    def backward(ctx, g):
        raise ValueError("not yet")

    report = torchsleuth.check(function(lambda ctx, x: x * 2, backward), (3,))
    assert [d.rule for d in report.diagnoses] == ["backward-raises"] and "not yet" in str(report)
    only_forward = type("OnlyForward", (Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
    assert "defines no backward" in str(torchsleuth.check(only_forward, (3,)))


def test_a_class_without_source_is_judged_without_a_culprit():
    namespace = {"Function": Function}
    exec(
        "class Hidden(Function):\n"
        "    @staticmethod\n    def forward(ctx, x): return x * 3\n"
        "    @staticmethod\n    def backward(ctx, g): return g * 6\n",
        namespace,
    )
    report = torchsleuth.check(namespace["Hidden"], (3, 4))
    assert "2 times too large" in report.diagnoses[0].title and not report.diagnoses[0].culprits


def test_forward_outside_its_domain():
    log = function(lambda ctx, x: (ctx.save_for_backward(x), x.log())[1], lambda ctx, g: g / ctx.saved_tensors[0])
    assert torchsleuth.check(log, (3, 4)).ok
    assert torchsleuth.check(log, torch.rand(3, 4) + 0.1).ok
    wrong = function(lambda ctx, x: (ctx.save_for_backward(x), x.log())[1], lambda ctx, g: -g / ctx.saved_tensors[0])
    assert "wrong sign" in str(torchsleuth.check(wrong, torch.rand(3, 4) + 0.1))


def test_numpy_forward_is_checked_by_differences():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 3)

    once = torch.autograd.function.once_differentiable
    good = function(forward, once(lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g))
    assert torchsleuth.check(good, (3, 4)).ok
    bad = function(forward, once(lambda ctx, g: ctx.saved_tensors[0] ** 2 * g))
    report = torchsleuth.check(bad, (3, 4))
    assert "3 times too small" in str(report) and "differences of forward" in str(report)


def test_float32_only_forward():
    def forward(ctx, x):
        if x.dtype is torch.float64:
            raise TypeError("float32 only")
        ctx.save_for_backward(x)
        return x.sin()

    good = function(forward, lambda ctx, g: g * ctx.saved_tensors[0].cos())
    assert torchsleuth.check(good, torch.randn(3, 4)).ok
    bad = function(forward, lambda ctx, g: g * ctx.saved_tensors[0].sin())
    assert not torchsleuth.check(bad, torch.randn(3, 4)).ok


def test_assertion_for_test_suites():
    assert_function_correct(right.Softmax, (3, 4))
    assert_function_correct(right.RoundStraightThrough, (3, 4), accept_surrogate=True)
    with pytest.raises(AssertionError, match="not the derivative"):
        assert_function_correct(right.RoundStraightThrough, (3, 4))


def test_recomputation_with_other_random_numbers_is_wrong():
    def again(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = torch.nn.functional.dropout(x.sin(), 0.5)
        return torch.autograd.grad(y, x, g)[0]

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.dropout(x.sin(), 0.5)

    report = torchsleuth.check(function(forward, torch.autograd.function.once_differentiable(again)), (6, 7))
    assert not report.ok and "backward draws random numbers of its own" in report.diagnoses[0].title
