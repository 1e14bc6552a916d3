"""Functions as people write them: right ones get a clean bill, and one slip in them is named at its line."""

import pytest
import torch
import user_styles as styles
from slips import assert_named

import torchsleuth
from torchsleuth.checker import variants


@pytest.mark.parametrize("name", styles.INPUTS)
def test_right_as_written(name):
    report = torchsleuth.check(getattr(styles, name), *styles.INPUTS[name]())
    assert report.ok and not report.diagnoses, str(report)


# What is written instead of what, the words for it, and the line they have to point at.
SLIPS = [
    ("LSTMCell", "dc + dh * o", "dh * o", "`x`, `h`, `c`, `w_ih`, `w_hh` and `b` leave out what comes back through output 1", "dct = "),
    ("LSTMCell", "df = dct * c\n", "df = dct * c_new\n", "`dct * c_new` should be `dct * c`", "df = "),
    ("LSTMCell", "dgates.t() @ x, dgates.t() @ h", "dgates.t() @ h, dgates.t() @ x", "`w_ih` and `w_hh` are swapped", "return"),
    ("GRUStep", "dzp, dn * r)", "dzp, dn)", "`h` and `wh` are wrong", "dgh = "),
    ("GRUStep", " + grad * z", "", "`h` has only the term through", "dh = "),
    ("FocalLoss", "grad = grad / logits.shape[0]", "pass", "5 times too large", "return"),
    ("FocalLoss", "(onehot - p)", "(p - onehot)", "wrong sign", "grad = dldpt"),
    ("FocalLoss", "return grad_output * grad", "return grad", "does not depend on grad_output", "grad = "),
    ("RMSNorm", "inv.pow(3)", "inv.pow(2)", "`inv.pow(2)` should be `inv.pow(3)`", "dx = "),
    ("RMSNorm", " - x * inv.pow(3) / n * (g * x).sum(-1, keepdim=True)", "", "lacks the term through `inv = ", "dx = "),
    ("GroupNormFn", " - g.mean(-1, keepdim=True)", "", "lacks the term through `mean = ", "dx = "),
    ("GroupNormFn", "dweight, dbias, None", "dbias, dweight, None", "`weight` and `bias` are swapped", "return"),
    ("GroupNormFn", "std = (v.var(-1, unbiased=False, ", "std = (v.var(-1, ", "unbiased=False", "std = "),
    ("FakeQuantLSQ", "inside * root", "root", "`root` should be", "return"),
    ("Conv1dUnfold", "needs_input_grad[2]", "needs_input_grad[3]", "None for `bias`", "needs_input_grad[3]"),
    ("Conv1dUnfold", "weight[:, :, j])", "weight[:, :, k - 1 - j])", "`x` is right only where the index along dimension 2 is odd", "dx[:, :, j"),
    ("AvgPool", "g.repeat_interleave(k, 2).repeat_interleave(k, 3)", "g.repeat(1, 1, k, k)", "`x` is not the derivative", "out[:, :,"),
    ("SoftmaxCE", "* valid[:, None] / ctx.n", "/ ctx.n", "right only where target >= 0", "return"),
    ("SoftmaxCE", "[:, None] / ctx.n", "[:, None] / logits.shape[0]", "1.5 times too small", "grad = "),
    ("SwiGLU", "db = g * a * s", "db = g * a", "`x` and `v` are wrong: `g * a` should be `(g * a) * s`", "db = "),
    ("SwiGLU", "return dx, dw, dv", "return dx, dv, dw", "`w` and `v` are swapped", "return"),
    ("Rotary", "g1 * cos + g2 * sin, g2 * cos - g1 * sin", "g1 * cos - g2 * sin, g2 * cos + g1 * sin", "not the transpose", "return"),
    ("PairwiseDist", "d = 2 * (", "d = (", "2 times too small", "d = "),
    ("Split3", "(gc, -x.sin())", "(gc, x.sin())", "a term of the gradient for `x` has the wrong sign: `gc` should be `-gc`", "for g, d in"),
    ("PReLU", "a.view(shape) * g, g)", "a.view(shape), g)", "right only where x > 0", "gx = "),
    ("Huber", "/ ctx.n", "", "20 times too large", "grad = "),
    ("Huber", "d.clamp(-ctx.delta, ctx.delta)", "d.sign() * ctx.delta", "what they have in common is `grad`", "grad = "),
    ("KLDiv", "logp - logq + 1", "logp - logq", "has only the term", "return"),
    ("GumbelSoft", "* y / ctx.tau", "* y", "/ ctx.tau", "return"),
    ("BatchNormTrain", "- xhat * dw / n", "- xhat * dw", "5 times too large (dimension 0 of x has 5 elements): `xhat * dw`", "dx = "),
    ("SparseEmbedding", "g.reshape(-1, ctx.shape[1])", "2 * g.reshape(-1, ctx.shape[1])", "2 times too large", "return"),
    ("CTCish", "g * de, g * dt", "g * de, dt", "does not depend on grad_output", "dt"),
]


@pytest.mark.parametrize(("name", "old", "new", "words", "line"), SLIPS, ids=lambda value: str(value)[:24])
def test_one_slip(name, old, new, words, line, tmp_path):
    assert_named(styles, name, old, new, words, line, tmp_path)


class ZeroesGradOutput(torch.autograd.Function):
    """Writes past the version counter, into whatever memory it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        result = grad_output * x.cos()
        grad_output.detach().numpy()[...] = 0
        x.data.zero_()
        return result


@pytest.mark.parametrize("shape", [(3, 4), (1, 32, 100)], ids=str)
def test_raw_writes_are_seen_and_spoil_no_later_check(shape):
    x = torch.randn(shape)
    before = x.clone()
    report = torchsleuth.check(ZeroesGradOutput, x)
    assert {d.rule for d in report.diagnoses} == {"function-modified-tensors"}, str(report)
    assert torch.equal(x, before)
    fresh = torch.randn(variants.POOL, generator=torch.Generator().manual_seed(variants.POOL), dtype=torch.float64)
    assert torch.equal(variants._pool(), fresh)
