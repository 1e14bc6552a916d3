"""Functions from papers and from fast implementations: right ones get a clean bill, and one slip in them is named at its line."""

import inspect
import re

import further_styles as further
import fused_styles as fused
import mechanical_slips as mechanical
import paper_styles as papers
import piecewise_styles as piecewise
import pytest
import setting_styles as settings
import torch
from slips import assert_named

import torchsleuth
from torchsleuth.checker.truth import spread
from torchsleuth.errors import UsageError

RIGHT = [(m, n) for m in (papers, fused, further, mechanical, piecewise, settings) for n in m.INPUTS if not n.startswith("W_") and n not in ("RoundSTE", "LSQQuant", "SpikingStep")]


@pytest.mark.parametrize(("module", "name"), RIGHT, ids=lambda value: getattr(value, "__name__", value))
def test_right_as_written(module, name):
    report = torchsleuth.check(getattr(module, name), *module.INPUTS[name]())
    assert report.ok and not report.diagnoses, str(report)


@pytest.mark.parametrize(("module", "name"), [(fused, "RoundSTE"), (fused, "LSQQuant"), (piecewise, "SpikingStep")], ids=["RoundSTE", "LSQQuant", "SpikingStep"])
def test_surrogates_are_deliberate(module, name):
    function, inputs = getattr(module, name), module.INPUTS[name]()
    assert {d.rule for d in torchsleuth.check(function, *inputs, strict=True).diagnoses} == {"backward-not-derivative"}
    assert torchsleuth.check(function, *inputs).ok and torchsleuth.check(function, *inputs, strict=True, accept_surrogate=True).ok


# What is written instead of what, the words for it, and the line they have to point at.
SLIPS = [
    (papers, "AdditiveAttentionScores", "grad_pre.sum(1), grad_pre", "grad_pre.mean(1), grad_pre", "dimension 1 of keys has 3 elements: a sum treated as a mean", "return"),
    (papers, "AdditiveAttentionScores", "unsqueeze(-1) * v\n", "unsqueeze(-1)\n", "the gradients for `query` and `keys` lack a factor `v`", "grad_pre ="),
    (papers, "GeGLU", "cdf + gate * pdf", "cdf", "right only where the index along dimension 1 is below 4", "grad_gate ="),
    (papers, "GeGLU", "[grad_value, grad_gate]", "[grad_gate, grad_value]", "two halves of the gradient for `x` along dimension 1 are exchanged", "return"),
    (papers, "LabelSmoothingLoss", "/ logits.size(0)", "/ logits.size(1)", "The factor is 6/5", "logits.size(1)"),
    (papers, "TripletLoss", "g_anchor, g_positive, g_negative", "g_anchor, g_negative, g_positive", "`positive` and `negative` are swapped", "return"),
    (papers, "ScatterAddNodes", "needs_input_grad[3]", "needs_input_grad[1]", "ask ctx.needs_input_grad[3]", "needs_input_grad[1]"),
    (papers, "ScatterAddNodes", "grad_out[dst]", "grad_out[src]", "`x` and `weight` are wrong: `grad_out[src]` should be `grad_out[dst]`", "grad_messages ="),
    (papers, "ScatterAddNodes", "None, None, grad_x, grad_weight", "grad_x, grad_weight, None, None", "`x` in the place of `num_nodes`", "return"),
    (papers, "SegmentSoftmax", "weighted - p * total[segment]", "weighted", "lacks the term through `p = e / total[segment]`", "weighted ="),
    (papers, "RoPEInterleaved", "ge * c + go * s", "ge * c - go * s", "a term of the gradient for `x` has the wrong sign", "ge * c - go * s"),
    (papers, "BilinearSample1d", ".sum(1)\n", ".mean(1)\n", "dimension 1 of x has 3 elements: a sum treated as a mean", "grad_pos ="),
    (papers, "SinkhornStep", "grad.sum(-2, keepdim=True)", "grad.sum(-1, keepdim=True)", "should be `grad.sum(-2, keepdim=True)`", "grad_half ="),
    (papers, "SoftRank", ".sum(-2), None", ".sum(-1), None", "is zero: its terms cancel", "return"),
    (papers, "LinearCrossEntropyChunked", "forward:grad_w += p.t() @ h", "grad_w = p.t() @ h", "write `grad_w += p.t() @ h`", "grad_w = p.t() @ h"),
    (papers, "MaskedSoftmax", "(p * grad_output).sum(-1", "grad_output.sum(-1", "`grad_output` should be `(grad_output * p)`", "return"),
    (papers, "Checkpointed", "return None, gx, gw", "return gx, gw, None", "the gradient for `w` in the place of `x`", "return"),
    (papers, "InplaceLeaky", "grad, grad * ctx.slope", "grad, grad / ctx.slope", "right only where x > 0", "return"),
    (papers, "InplaceLeaky", "forward:ctx.mark_dirty(x)", "pass", "without ctx.mark_dirty", "x.mul_("),
    (papers, "MomentsNone", "if g_mean is not None:", "if True:", "arrive as None", "g_mean.unsqueeze(-1)"),
    (papers, "InnerProductKernel", "(-2 * ctx.gamma)", "(-ctx.gamma)", "the gradients for `a` and `b` are 2 times too small", "w = "),
    (papers, "Cauchy", "(diff / ctx.c) ** 2", "diff ** 2", "should be `(diff / ctx.c) ** 2`", "g = "),
    (papers, "Conv1dCausal", "(k - 1, 0)).unfold", "(0, k - 1)).unfold", "`(0, k - 1)` should be `(k - 1, 0)`", "cols ="),
    (papers, "DiffThroughSolve", "a.mT, g)", "a, g)", "the gradients for `a` and `b` are wrong: `torch.linalg.solve(a, g)`", "gb ="),
    (papers, "ExpMovingAverage", "reversed(range(g.size(1)))", "range(g.size(1))", "should be `reversed(range(g.size(1)))`", "for t in"),
    (papers, "ExpMovingAverage", "(1 - ctx.decay) * carry", "carry", "1 - decay is 0.2: backward leaves it out", "return"),
    (papers, "PowLearned", "x.abs().log()", "x.log()", "NaN for finite operands is `log`", "gp ="),
    (papers, "PowLearned", "pow(p - 1)", "pow(p)", "should be `x.abs().pow(p - 1)`", "gx ="),
    (papers, "TwoStage", "g @ w.t())", "g @ w.t() * 2)", "The factor is 2 for every size tried", "autograd.grad"),
    (papers, "ChannelShuffleScale", "b, c // ctx.groups, ctx.groups, h", "b, ctx.groups, c // ctx.groups, h", "reshape(b, c // ctx.groups, ctx.groups, h, w)", "gx ="),
    (fused, "ClampQuantile", "g * inside", "g * ~inside", "a mask is inverted", "return"),
    (fused, "FusedBiasDropoutAdd", "(mask,) = ctx.saved_tensors", "mask = (torch.rand_like(g) >= 0.3).to(g.dtype) / 0.7", "draws random numbers of its own", "rand_like(g)"),
    (fused, "GroupQueryScores", "math.sqrt(d)\n", "math.sqrt(t)\n", "the square root of 5/3", "math.sqrt(t)"),
    (fused, "GroupQueryScores", "k.repeat_interleave(ctx.groups, dim=1)", "k.repeat(1, ctx.groups, 1, 1)", "should be `k.repeat_interleave(ctx.groups, dim=1)`", "kk ="),
    (fused, "DeformableSample", "(gy, gx), -1", "(gx, gy), -1", "flipped along dimension 1", "return"),
    (fused, "SortDescending", "torch.zeros_like(g).scatter(-1, order, g)", "g.gather(-1, order)", "not the transpose of it", "return"),
    (fused, "ContrastiveInfoNCE", "(len(a) * ctx.t)", "ctx.t", "the gradients for `a` and `b` are 4 times too large", "d = "),
    (fused, "ContrastiveInfoNCE", "forward:logits.softmax(1)", "logits.softmax(0)", "should be `logits.softmax(1)`", "save_for_backward"),
    (fused, "Whiten", "add(1e-3)", "add(1e-5)", "should be `c.pow(2).mean(0).add(0.001)`", "s = "),
    (fused, "TverskyLoss", "alpha, beta = ctx.ab", "beta, alpha = ctx.ab", "`beta, alpha` should be `alpha, beta`", "= ctx.ab"),
    (fused, "SparseGatherRows", "out.index_add(", "out.index_copy(", "right only where rows names the index along dimension 0 at most once", "return"),
    (fused, "NumpyHistogramEq", "t + a * (1 - t ** 2)", "t + (1 - t ** 2)", "should be `(1 - t ** 2) * a`", "return"),
    (fused, "PolyakBlend", "g * (1 - ctx.tau), None, g * ctx.tau", "g * ctx.tau, None, g * (1 - ctx.tau)", "`target` and `source` are swapped", "return"),
    (fused, "HardSwish", "x >= 3, torch.ones_like(x)", "x >= 3, torch.zeros_like(x)", "right only where x < 3", "torch.where"),
    (fused, "ConvTransposeGrad", "stride=ctx.stride)\n", "stride=1)\n", "write `ctx.stride` instead of `1`", "gx ="),
    (fused, "ComplexAbs", "- ga * im / m ** 2", "+ ga * im / m ** 2", "a term of the gradient for `re` has the wrong sign", "gre ="),
    (fused, "QuantileHuber", "/ target.size(1)", "/ pred.size(1)", "The factor is 3/5", "pred.size(1)"),
    (fused, "CosFace", "(gwn - wn * (gwn * wn).sum(1, keepdim=True))", "gwn", "lacks the term through `xn, wn", "gw ="),
    (further, "Chamfer", "(q - p[i2]) / len(q)", "(q - p[i2]) / len(p)", "`len(p)` should be `len(q)`", "d2 ="),
    (further, "Elu", "y + ctx.alpha", "y + 1", "right only where x > 0", "return"),
    (further, "PixelShuffle", "permute(0, 1, 3, 5, 2, 4)", "permute(0, 1, 5, 3, 2, 4)", "right values in the wrong places", "return"),
    (further, "NearestUp", "sum((-1, -3))", "mean((-1, -3))", "s is 2: backward leaves out its square", "return"),
    (further, "CoxLoss", ".cumsum(0)", ".flip(0).cumsum(0).flip(0)", "should be `(event * (-lse).exp()).cumsum(0)`", "w = "),
    (further, "GaussianKL", "/ len(mu)", "/ mu.numel()", "the gradients for `mu` and `logvar` are 3 times too small", "k = "),
    (further, "QuatMul", "-w*h - x*g + y*f", "-w*h + x*g + y*f", "`-w*h + x*g` should be `(-w*h - x*g)`", "gp ="),
    (further, "SoftHistogram", "* k * d / ctx.h", "* k / ctx.h", "the gradients for `x` and `centers` are wrong", "inner ="),
    (further, "RankHinge", "a.sum(0) - a.sum(1)", "a.sum(1) - a.sum(0)", "has the wrong sign", "return"),
    (further, "TwoLayer", " * (pre > 0)", "", "should be `(g @ w2.t()) * (pre > 0)`", "gh ="),
    (further, "MaskedMSE", "* m / m.sum()", "* m / m.numel()", "write `m.sum()` instead of `m.numel()`", "d = "),
    (further, "InstanceNorm", "(gy * y).mean((2, 3)", "(gy * y).sum((2, 3)", "should be `(gy * y).mean((2, 3), keepdim=True)`", "gx ="),
    (piecewise, "TiledAttention", "* ctx.scale\n            dq", "\n            dq", "the gradients for `q` and `k` are 2 times too large", "ds = "),
    (piecewise, "TiledAttention", "if ctx.causal:", "if False:", "what they have in common is `p`", "p = "),
    (piecewise, "SelectiveScan", "gh * prev * dA", "gh * h * dA", "`gh * h` should be `gh * prev`", "gdA ="),
    (piecewise, "SelectiveScan", "gh = gh * dA\n", "pass\n", "`u`, `delta`, `A` and `B` are not the derivatives of forward: what they have in common is `gh`", "gh = gh +"),
    (piecewise, "SelectiveScan", "gA += ", "gA = ", "write `gA += ", "gA = ("),
    (piecewise, "GroupedLinear", "xg.shape[1], -1)", "-1, xg.shape[1]).mT", "`x`, `weight` and `bias` are not the derivatives of forward: what they have in common is `g`", "g = "),
    (piecewise, "LovaszHinge", "g[perm] = g_sorted", "g = g_sorted[perm]", "write `g_sorted[perm.argsort()]`", "g = "),
    (piecewise, "GridLookup", "* (table.shape[0] - 1)\n", "* table.shape[0]\n", "write `(table.shape[0] - 1)`", "gc ="),
    (piecewise, "GridLookup", "gt.index_add_(0, lo + 1, g * frac)", "gt[lo + 1] += g * frac", "write `gt.index_add_(0, lo + 1, g * frac)`", "gt[lo + 1] +="),
    (piecewise, "EdgeSoftmaxAgg", "0, src, a[:, None] * g[dst]", "0, dst, a[:, None] * g[src]", "not the transpose of it", "gfeat ="),
    (piecewise, "TotalVariation", "g[:, :, :-1, :] -= 2 * dy", "g[:, :, :-1, :] = -2 * dy", "write `g[:, :, :-1, :] += -2 * dy`", "g[:, :, :-1, :] ="),
    (piecewise, "ListMLE", ".cumsum(1)", ".flip(1).cumsum(1).flip(1)", "write `torch.exp(-lse).cumsum(1)`", "w = "),
    (piecewise, "ListMLE", "/ s.shape[0]", "/ s.shape[1]", "write `s.shape[0]`", "gs = "),
    (piecewise, "ProdExceptZero", "g * others.prod(-1)", "g * x.prod(-1)", "write `others.prod`", "gx[..., i] ="),
    (piecewise, "SoftThreshold", "g * out.sign() * active", "g * active", "the gradient for `lam` is not the derivative", "glam"),
    (further, "InstanceNorm", ".sum((0, 2, 3))", ".sum((2, 3)).mean(0)", "a sum treated as a mean", "gg ="),
    (settings, "ClippedRelu", "x >= alpha", "x < alpha", "the gradient for `alpha` is wrong: `x < alpha` should be `(x > alpha)`", "above = "),
    (settings, "ClippedRelu", "(x > 0) & (x < alpha)", "x < alpha", "right only where x > 0", "return"),
    (settings, "ClippedRelu", ").sum().reshape", ").mean().reshape", "12 times too small", "return"),
    (settings, "LimitPerColumn", "g * high - g * low", "g * high + g * low", "write `g * high - g * low`", "return"),
    (settings, "SmoothLoss", "d / ctx.beta", "d", "write `d / ctx.beta` instead of `d`", "gp = "),
    (settings, "Recurrence", "gh * previous", "gh * states[t]", "write `previous` instead of `states[t]`", "ga = ga"),
    (settings, "MeanAndWidth", "if g_mean is not None", "if g_mean is not None and g_width is not None", "is wrong with only output 0 used", "if g_mean"),
    (settings, "MeanAndWidth", "g_width * torch.sigmoid(before)", "g_width", "`x` and `w_width` are not the derivatives of forward: what they have in common is `d`", "d = "),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "old", "new", "words", "line"), SLIPS, ids=lambda value: str(getattr(value, "__name__", value))[:24])
def test_one_slip(module, name, old, new, words, line, tmp_path):
    assert_named(module, name, old, new, words, line, tmp_path)


def test_a_sign_for_both_ways_of_a_flag_is_no_fix(tmp_path):
    assert_named(settings, "PowerEitherWay", "            g = -g\n", "            pass\n", "wrong sign", "return", tmp_path)
    source = inspect.getsource(settings.PowerEitherWay).replace("            g = -g\n", "            pass\n")
    (tmp_path / "ops.py").write_text(f"import torch\nfrom torch.autograd import Function\n\n{source}")
    namespace = {"__name__": "ops"}
    exec(compile((tmp_path / "ops.py").read_text(), str(tmp_path / "ops.py"), "exec"), namespace)
    report = torchsleuth.check(namespace["PowerEitherWay"], *settings.INPUTS["PowerEitherWay"]())
    assert not [edit for d in report.diagnoses for fix in d.fixes for edit in fix.edits], str(report)


SAID = {
    "W_CatMissingNone": "3 gradients for 4 inputs", "W_CatReversed": "`tensors[0]` and `tensors[2]` are swapped",
    "W_NeedsSwapped": "ask ctx.needs_input_grad[0] for `x`", "W_InplaceGradView": "writes into `g`", "W_MulOut": "writes into `g`",
    "W_InputSorted": "without ctx.mark_dirty", "W_OutputOnCtxList": "a reference cycle", "W_SavedIntermediate": "double backward is silently wrong",
    "W_ItemBackward": "`x.norm().item()` is a constant to autograd", "W_Counter": "not deterministic", "W_BatchSqueeze": "a batch of 1",
    "W_ZeroSize": "raises for size 0", "W_Strides": "other values for non-contiguous inputs", "W_ReturnsFloat": "returns it as float16",
    "W_IntGrad": "int32", "W_Jvp": "jvp does not return", "W_Vmap": "vmap does not give", "W_AmpHalf": "custom_bwd on backward is missing",
    "W_UnpackOrder": "write `b, a` instead of `a, b`", "W_HelperWrong": "write `g * ctx.slope` instead of `g * 0.01`",
    "W_LossReduction": "the gradients for `pred` and `target` are 4 times too large", "W_ThirdCycle": "the gradient for `a` in the place of `c`",
    "W_NoneGrad": "None for `beta`", "W_EveryOther": "shifted along dimension 1", "W_DirtyGrad": "1 - alpha is 0.7",
    "W_LeadingNone": "the gradient for `x` in the place of `name`", "W_MaskedMeanWrong": "should be `m.sum(1, keepdim=True)`",
    "W_KeepdimBroadcast": "lacks a factor `bias`",
}  # fmt: skip


def test_every_slip_has_its_words():
    assert set(SAID) == {name for name in mechanical.INPUTS if name.startswith("W_")}


@pytest.mark.parametrize("name", SAID)
def test_beside_the_formula(name):
    function = getattr(mechanical, name)
    report = torchsleuth.check(function, *mechanical.INPUTS[name](), strict=True)
    said = " ".join(" ".join((d.title, d.explanation, *(f.title for f in d.fixes))) for d in report.diagnoses)
    assert not report.ok and SAID[name] in said, str(report)
    assert len({d.rule for d in report.diagnoses}) == 1, str(report)
    lines, first = inspect.getsourcelines(function)
    slipped = {first + n for n, text in enumerate(lines) if re.search("# BUG", text)}
    named = {c.span.line for d in report.diagnoses for c in d.culprits}
    assert named and named <= slipped, (named, slipped, str(report))


def test_random_numbers_are_other_ones_in_another_type():
    report = torchsleuth.check(fused.FusedBiasDropoutAdd, *fused.INPUTS["FusedBiasDropoutAdd"]())
    assert "float32" in [name for name, _ in report.trials[0].cases] and not any("rounding" in note for note in report.notes)


def test_a_shape_has_no_negative_sizes():
    with pytest.raises(UsageError, match=r"\(3, -4\)"):
        torchsleuth.check(mechanical.HelperOutside, (3, -4))


def test_nothing_to_compare_is_said():
    report = torchsleuth.check(mechanical.HelperOutside, torch.randn(0, 4))
    assert any("nothing to compare" in note for note in report.notes)


class SilentForward(torch.autograd.Function):
    """Writes past the version counter."""

    @staticmethod
    def forward(ctx, x):
        x.data.mul_(2)
        mask = torch.rand_like(x) if ctx is not None and RANDOM[0] else torch.ones_like(x)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output * ctx.saved_tensors[0]


RANDOM = [False]


@pytest.mark.parametrize("random", [False, True])
def test_a_write_that_no_version_shows(random):
    RANDOM[0] = random
    x = torch.randn(3, 4)
    before = x.clone()
    report = torchsleuth.check(SilentForward, x)
    assert [d.rule for d in report.diagnoses] == ["function-modified-tensors"], str(report)
    assert "x.data.mul_(2)" in report.diagnoses[0].culprits[0].source and torch.equal(x, before)


def test_samples_of_large_tensors_stay_inside():
    for count in (64 * 512 * 768, 2**24 + 1, 2**31 + 7, 100):
        found = spread(count, 6)
        assert found[0] == 0 and found[-1] == count - 1 and found == sorted(set(found))


class MeanAsSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(1).expand(ctx.shape)


@pytest.mark.parametrize(("shape", "factor"), [((1, 3, 1), 3), ((2, 2), 2), ((40, 50, 40), 50)])
def test_numbers_are_those_of_the_given_inputs(shape, factor):
    # The law is looked for in a copy of a handier size; what is said is said of the inputs as given.
    (diagnosis,) = torchsleuth.check(MeanAsSum, shape).diagnoses
    assert diagnosis.title == f"the gradient for `x` is {factor} times too large"
    assert f"dimension 1 of x has {factor} elements" in diagnosis.explanation


class Quantised(torch.autograd.Function):
    """Straight through for `z`; the codebook's gradient is the derivative, or was meant to be."""

    @staticmethod
    def forward(ctx, z, codebook):
        index = torch.cdist(z, codebook).argmin(1)
        ctx.save_for_backward(index, codebook)
        return codebook[index]

    @staticmethod
    def backward(ctx, grad):
        index, codebook = ctx.saved_tensors
        out = torch.zeros_like(codebook)
        out[index] = grad
        return grad, out


def test_a_slip_beside_a_straight_through_gradient():
    codebook = torch.eye(5, 3, dtype=torch.float64).mul(4)  # one row for two of z's, two for one each
    z = codebook[[0, 0, 1, 2]] + torch.linspace(-0.2, 0.2, 12, dtype=torch.float64).view(4, 3)
    report = torchsleuth.check(Quantised, z.requires_grad_(), codebook.requires_grad_())
    (diagnosis,) = report.diagnoses
    assert "codebook" in diagnosis.title and "out.index_add_(0, index, grad)" in " ".join(f.title for f in diagnosis.fixes), str(report)
