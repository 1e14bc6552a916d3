"""FunctionWatch: the Functions a running program applies, captured at their first call and checked afterwards."""

import gc
import logging
import weakref

import pytest
import right_functions as right
import torch
import wrong_functions as wrong
from torch.autograd import Function

from torchsleuth import env
from torchsleuth.checker.live import FunctionWatch


def train(steps=2):
    torch.manual_seed(0)
    weight = torch.randn(5, 4, requires_grad=True)
    bias = torch.randn(5, requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=0.1)
    losses = []
    for _ in range(steps):
        x = torch.randn(3, 4)
        loss = right.Softmax.apply(right.Linear.apply(x, weight, bias)).square().sum() + wrong.OnlyPositive.apply(weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weight.detach().clone(), torch.rand(3)


def test_functions_are_captured_and_checked():
    watch = FunctionWatch()
    with watch:
        train(1)
    assert {f.__name__ for f in watch.seen()} == {"Softmax", "Linear", "OnlyPositive"}
    reports = {r.trials[0].function: r for r in watch.reports()}
    assert reports["Softmax"].ok and reports["Linear"].ok and not reports["OnlyPositive"].ok
    assert "right only where x > 0" in str(reports["OnlyPositive"])
    assert "x requires no grad" in str(reports["Linear"])


def test_the_program_is_not_changed():
    plain, own_apply = train(), vars(Function)["apply"]
    with FunctionWatch() as watch:
        watched = train()
    before = torch.get_rng_state()
    watch.reports()
    assert torch.equal(before, torch.get_rng_state())
    assert plain[0] == watched[0] and torch.equal(plain[1], watched[1]) and torch.equal(plain[2], watched[2])
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)
    assert vars(Function)["apply"] is own_apply


@pytest.mark.skipif(env.function_apply_is_native(), reason="such names lead to C++ without a door on the way")
def test_names_bound_before_the_start_are_seen():
    op = right.Exp.apply
    with FunctionWatch() as watch:
        op(torch.randn(3, requires_grad=True))
    assert watch.seen() == [right.Exp]


def test_nothing_of_the_program_is_kept_alive():
    with FunctionWatch() as watch:
        x = torch.randn(3, requires_grad=True)
        reference = weakref.ref(x)
        right.Exp.apply(x)
        del x
        gc.collect()
        assert reference() is None
    assert watch.reports()[0].ok and not watch.seen()


def test_inputs_are_those_of_the_call_even_if_overwritten_later():
    with FunctionWatch() as watch:
        x = torch.full((3,), 2.0)
        right.Exp.apply(x)
        x.zero_()
    assert torch.equal(watch.inputs_of(right.Exp)[0], torch.full((3,), 2.0))


def test_torchs_own_functions_are_not_custom():
    from torch.utils.checkpoint import checkpoint

    with FunctionWatch() as watch:
        checkpoint(torch.sin, torch.randn(3, requires_grad=True), use_reentrant=True)
    assert watch.seen() == []


def test_a_function_that_cannot_be_checked_is_a_note():
    with FunctionWatch() as watch:
        right.Exp.apply(torch.zeros(2, dtype=torch.complex64))
    (report,) = watch.reports()
    assert report.ok and "not checked" in report.notes[0] and "complex" in report.notes[0]


def test_large_inputs_are_remembered_by_a_sample(monkeypatch):
    monkeypatch.setattr("torchsleuth.checker.live.LARGEST", 100)
    with FunctionWatch() as watch:
        right.Sum.apply(torch.randn(4, 5, 6, requires_grad=True))
    (inputs,) = watch.inputs_of(right.Sum)
    assert inputs.shape == (4, 5, 6) and inputs.requires_grad
    assert watch.reports()[0].ok


class DifferenceKept(Function):
    """Right once; its second derivative is silently wrong."""

    @staticmethod
    def forward(ctx, a, b):
        d = a - b
        ctx.save_for_backward(d)
        return d * d

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return 2 * g * d, -2 * g * d


class OnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x


class RoundsThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def _suffered(step) -> set[str]:
    original = torch.autograd.function.BackwardCFunction._get_user_fn
    with FunctionWatch() as watch:
        step(torch.randn(4, 3, requires_grad=True))
    assert torch.autograd.function.BackwardCFunction._get_user_fn is original
    return {d.rule for report in watch.reports(as_used=True) for d in report.diagnoses}


def test_a_running_program_answers_only_for_what_it_suffers_from():
    def penalised(x):
        (g,) = torch.autograd.grad((x * DifferenceKept.apply(x, 2 * x.detach())).sum(), x, create_graph=True)
        g.sum().backward()

    def overwritten(x):
        h = x * 1
        y = OnCtx.apply(h)
        with torch.no_grad():
            h.add_(1)
        y.sum().backward()

    assert _suffered(lambda x: DifferenceKept.apply(x, 2 * x.detach()).sum().backward()) == set()
    assert _suffered(penalised) == {"function-double-backward"}
    assert _suffered(lambda x: OnCtx.apply(x * 1).sum().backward()) == set()
    assert _suffered(overwritten) == {"function-tensor-on-ctx"}
    assert _suffered(lambda x: RoundsThrough.apply(x).sum().backward()) == set()


class Scaled(Function):
    """Right for `x`, and gives nothing for `scale`, which no program below trains."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        (scale,) = ctx.saved_tensors
        return grad * scale, None


def test_a_program_answers_for_the_gradients_that_it_wants():
    weight, scale = torch.randn(3, requires_grad=True), torch.tensor(2.0)
    with FunctionWatch() as watch:
        Scaled.apply(torch.randn(3), scale)  # data: no gradient is wanted here
        Scaled.apply(weight, scale).sum().backward()
    (report,) = watch.reports(as_used=True)
    assert report.ok, str(report)
    with FunctionWatch() as watch, torch.no_grad():
        wrong.OnlyPositive.apply(weight)
    assert watch.reports(as_used=True) == []


def test_the_call_that_wants_most_gradients_is_the_one_checked():
    first, second = torch.randn(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    with FunctionWatch() as watch:
        Scaled.apply(first, second.detach())
        Scaled.apply(first, second)
    (report,) = watch.reports(as_used=True)
    assert "`scale`" in str(report) and not report.ok


class Solved(Function):
    """As adjoint solvers and checkpoints have it: the parameters come along so that autograd asks for their gradients; forward reads the module's."""

    @staticmethod
    def forward(ctx, module, x, *parameters):
        ctx.module = module
        ctx.save_for_backward(x, *parameters)
        with torch.no_grad():
            return x + 0.1 * module(x)

    @staticmethod
    def backward(ctx, grad):
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            result = x + 0.1 * ctx.module(x)
        return None, *torch.autograd.grad(result, [x, *parameters], grad)


@pytest.mark.parametrize("wrapped", [lambda m: m, lambda m: m.forward, lambda m: lambda x: m(x)], ids=["module", "method", "closure"])
def test_parameters_of_a_module_that_is_given_too_are_not_experimented_with(wrapped):
    module, x = torch.nn.Linear(3, 3), torch.randn(4, 3, requires_grad=True)
    with FunctionWatch() as watch:
        Solved.apply(wrapped(module), x, *module.parameters()).sum().backward()
    (report,) = watch.reports(as_used=True)
    assert report.ok and "parameters[0] is a parameter of a module that forward is given, too" in report.notes[0]


def test_a_module_beside_other_tensors_is_checked():
    class Doubled(Solved):
        @staticmethod
        def backward(ctx, grad):
            return tuple(2 * g if g is not None else None for g in Solved.backward(ctx, grad))

    module, x = torch.nn.Linear(3, 3).double(), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    with FunctionWatch() as watch:
        Doubled.apply(module, x).sum().backward()
    (report,) = watch.reports(as_used=True)
    assert not report.ok


def test_what_a_function_prints_and_logs_was_heard_once(capsys, caplog):
    class Loud(Function):
        @staticmethod
        def forward(ctx, x):
            print("forward")
            logging.getLogger("loud").warning("forward")
            return 3 * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad

    with FunctionWatch() as watch:
        Loud.apply(torch.randn(3, requires_grad=True)).sum().backward()
    assert watch.reports(as_used=True)[0].ok
    assert capsys.readouterr().out == "forward\n" and len(caplog.records) == 1
    logging.getLogger("loud").warning("again")
    assert len(caplog.records) == 2
