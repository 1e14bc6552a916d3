"""Programs that fail, with numbers to vary: `{a}` to `{d}` are replaced by different random sizes. Each names the reader that must read its message.

`exact`: the answer's own program must raise the very same message, numbers and all. Not so where a message does not hold what a program needs
(`loose`): there the explanation must still name the numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Failing:
    reader: str
    source: str
    exact: bool = True


_FUNCTION = """class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return (x * 2).sum()

    @staticmethod
    def backward(ctx, grad):
        return {}

Twice.apply(torch.ones({{a}}, {{b}}, requires_grad=True), None).backward()"""

EXACT = (
    ("select-out-of-range", "torch.zeros({a}, {b}, {c}).select(1, {b} + {d})"),
    ("select-out-of-range", "torch.zeros({a}, {b}, {c}).select(2, -{c} - {d})"),
    ("index-out-of-bounds", "torch.zeros({a}, {b})[0, {b} + {d}]"),
    ("index-out-of-bounds", "torch.zeros({a}, {b})[torch.tensor([0, {a} + {d}])]"),
    ("index-out-of-bounds", "torch.zeros({a}, {b})[torch.tensor([-{a} - {d}])]"),
    ("index-out-of-range-in-self", "torch.nn.Embedding({a}, {b})(torch.tensor([0, {a} + {d}]))"),
    ("too-many-indices", "torch.zeros({a}, {b}, {c})[0, 0, 0, 0]"),
    ("too-many-indices", "torch.zeros({a})[:, 0]"),
    ("dimension-out-of-range", "torch.zeros({a}, {b}).mean({c} + 2)"),
    ("dimension-out-of-range", "torch.zeros({a}, {b}).softmax(-3)"),
    ("mask-shape", "torch.zeros({a}, {b})[torch.ones({c}, dtype=torch.bool)]"),
    ("mask-shape", "torch.zeros({a}, {b}, {c})[:, torch.ones({d}, dtype=torch.bool)]"),
    ("mask-shape", "torch.zeros({a}, {b})[torch.ones({a}, {c}, dtype=torch.bool)]"),
    ("index-dtype", "torch.zeros({a})[torch.tensor([0.5])]"),
    ("index-tensors-broadcast", "torch.zeros({a}, {b})[torch.zeros({c}, dtype=torch.long), torch.zeros({d}, dtype=torch.long)]"),
    ("assigned-shape", "x = torch.zeros({a} + {b}, {c}); x[torch.arange({a})] = torch.ones({a} + {b}, {c})"),
    ("narrow-too-long", "torch.zeros({a}).narrow(0, 1, {a} + {b})"),
    ("gather-shape", "torch.zeros({a}, {b}).gather(1, torch.zeros({a} + {c}, 2, dtype=torch.long))"),
    ("scatter-shape", "torch.zeros({a}, {b}).scatter_(1, torch.zeros({a}, {b} + {c}, dtype=torch.long), torch.ones({a}, {b}))"),
    ("index-add-shape", "torch.zeros({a}, {b}).index_add_(0, torch.tensor([0]), torch.ones(1, {c}))"),
    ("index-add-count", "torch.zeros({a}, {b}).index_add_(0, torch.zeros({c}, dtype=torch.long), torch.ones({d}, {b}))"),
    ("take-out-of-range", "torch.zeros({a}, {b}).take(torch.tensor([{a} * {b} + {c}]))"),
    ("broadcast", "torch.zeros({a}, {b}) + torch.zeros({a}, {c})"),
    ("broadcast", "torch.zeros({a}, {b}, 7) * torch.zeros({a}, {c}, 1)"),
    ("broadcast", "torch.nn.functional.mse_loss(torch.zeros({a}), torch.zeros({b}))"),
    ("expand", "torch.zeros({a}, {b}).expand({a}, {c})"),
    ("expand", "x = torch.zeros({a}, {b}); x[0] = torch.ones({c})"),
    ("inplace-broadcast", "x = torch.zeros({a}, 1); x += torch.zeros({a}, {b})"),
    ("glu-odd", "torch.nn.functional.glu(torch.zeros({a}, 2 * {b} + 1), dim=1)"),
    ("pooling-padding", "torch.nn.functional.max_pool2d(torch.zeros(1, 1, 32, 32), {a}, padding={a} + {b})"),
    ("not-square", "torch.linalg.inv(torch.zeros({a}, {a} + {b}))"),
    ("contraction", "torch.tensordot(torch.zeros(2, {a}), torch.zeros({b}, 3), dims=1)"),
    ("grid-shape", "torch.nn.functional.grid_sample(torch.zeros({a}, 3, 8, 8), torch.zeros({b}, 4, 4, 2))"),
    ("grid-shape", "torch.nn.functional.grid_sample(torch.zeros({a}, 3, 8, 8), torch.zeros({a}, 4, 4, 2 + {b}))"),
    ("fill-of-a-tensor", "torch.zeros({a}, {b}).masked_fill(torch.ones({a}, {b}) > 0, torch.zeros({b}))"),
    ("mat1-mat2", "torch.nn.Linear({a}, {b})(torch.zeros({c}, {d}))"),
    ("mat1-mat2", "torch.nn.Linear({a}, {b})(torch.zeros(2, {c}, {d}))"),
    ("mat-vec", "torch.zeros({a}, {b}) @ torch.zeros({c})"),
    ("dot", "torch.zeros({a}) @ torch.zeros({b})"),
    ("bmm", "torch.bmm(torch.zeros({a}, {b}, {c}), torch.zeros({a}, {d}, {b}))"),
    ("bmm", "torch.bmm(torch.zeros({a}, {b}, {c}), torch.zeros({d}, {c}, {b}))"),
    ("einsum-size", "torch.einsum('nk,km->nm', torch.zeros({a}, {b}), torch.zeros({c}, {d}))"),
    ("invalid-shape", "torch.zeros({a}, {b}).view({c} * {a} * {b} + 1, -1)"),
    ("invalid-shape", "torch.zeros({a}, {b}).reshape({a}, {c})"),
    ("unflatten", "torch.zeros(2, {a} * {b} + 1).unflatten(1, ({a}, {b}))"),
    ("cat", "torch.cat([torch.zeros({a}, {b}), torch.zeros({a}, {c})], 0)"),
    ("cat", "torch.cat([torch.zeros({a}, {b}), torch.zeros({a}, {b}), torch.zeros({c}, {b})], 1)"),
    ("cat-dims", "torch.cat([torch.zeros({a}, {b}), torch.zeros({a})])"),
    ("stack", "torch.stack([torch.zeros({a}, {b}), torch.zeros({a}, {c})])"),
    ("split", "torch.zeros({a} + {b} + {c}).split([{a}, {b}])"),
    ("permute", "torch.zeros({a}, {b}).permute(0, 3, 1, 2)"),
    ("conv-channels", "torch.nn.Conv2d({a}, 8, 3)(torch.zeros(2, {b}, 9, 9))"),
    ("conv-channels", "torch.nn.Conv2d({a} * 10, 8, 1)(torch.zeros(2, 9, 9, {a} * 10))"),
    ("conv-channels", "torch.nn.Conv2d(3, {a}, 7)(torch.zeros({b}, 20, 20, 3))"),
    ("conv-channels", "torch.nn.Conv2d(4, 8, (2, 3), groups=2)(torch.zeros(2, {a} + 4, 9, 9))"),
    ("conv-channels", "torch.nn.Conv1d({a}, 4, 1)(torch.zeros(2, {b}, 9))"),
    ("conv-channels", "torch.nn.ConvTranspose2d({a}, 8, 2)(torch.zeros(2, {b}, 9, 9))"),
    ("conv-dims", "torch.nn.Conv2d(3, 8, 1)(torch.zeros({a}, {b}))"),
    ("kernel-too-large", "torch.nn.Conv2d(1, 1, {a} + {b})(torch.zeros(1, 1, {a}, {a}))"),
    ("batchnorm-channels", "torch.nn.BatchNorm2d({a})(torch.zeros(2, {b}, 3, 3))"),
    ("norm-dims", "torch.nn.BatchNorm2d({a})(torch.zeros(2, {a}))"),
    ("batchnorm-one", "torch.nn.BatchNorm1d({a})(torch.zeros(1, {a}))"),
    ("layernorm-shape", "torch.nn.LayerNorm({a})(torch.zeros({b}, {c}))"),
    ("hidden-size", "torch.nn.GRU(4, {a})(torch.zeros(5, {b}, 4), torch.zeros(1, {c}, {a}))"),
    ("hidden-size", "torch.nn.LSTM(4, {a})(torch.zeros(5, {b}, 4), (torch.zeros(1, {c}, {a}), torch.zeros(1, {c}, {a})))"),
    ("recurrent-input", "torch.nn.GRU({a}, {b})(torch.zeros(5, 3, {c}))"),
    ("packing", "torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(5, {a}, 4), torch.full(({b},), 5))"),
    ("attn-mask-shape", "torch.nn.MultiheadAttention(8, 2)(*[torch.zeros({a}, 3, 8)] * 3, attn_mask=torch.zeros({b}, {b}))"),
    ("attn-mask-shape", "torch.nn.MultiheadAttention(8, 2)(*[torch.zeros(5, {a}, 8)] * 3, attn_mask=torch.zeros({a}, 5, 5))"),
    ("attention-width", "torch.nn.MultiheadAttention({a}, 1)(*[torch.zeros(5, 3, {b})] * 3)"),
    ("target-out-of-bounds", "torch.nn.functional.cross_entropy(torch.zeros({a}, 3), torch.full(({a},), 2 + {b}))"),
    ("target-out-of-bounds", "torch.nn.functional.cross_entropy(torch.zeros({a}, 3), torch.full(({a},), -{b}))"),
    ("loss-batch-sizes", "torch.nn.functional.cross_entropy(torch.zeros({a}, 3), torch.zeros({b}, dtype=torch.long))"),
    ("class-axis", "torch.nn.functional.cross_entropy(torch.zeros({a}, {b}, {c}), torch.zeros({a}, {b}, dtype=torch.long))"),
    ("class-weights", "torch.nn.functional.cross_entropy(torch.zeros(4, {a}), torch.zeros(4, dtype=torch.long), weight=torch.ones({b}))"),
    ("target-size", "torch.nn.functional.binary_cross_entropy_with_logits(torch.zeros({a}, 1), torch.zeros({a}))"),
    ("target-size", "torch.nn.functional.binary_cross_entropy(torch.zeros({a}, {b}), torch.zeros({a}, {c}))"),
    ("ctc-lengths", "torch.nn.functional.ctc_loss(torch.zeros({a}, 1, 4).log_softmax(-1), torch.ones(1, 2, dtype=torch.long), [{a} + {b}], [2])"),
    ("product-dtypes", "torch.nn.Linear({a}, {b})(torch.zeros({c}, {a}, dtype=torch.float64))"),
    ("product-dtypes", "torch.zeros({a}, {b}) @ torch.zeros({b}, {c}, dtype=torch.int64)"),
    ("conv-dtypes", "torch.nn.Conv2d({a}, {b}, 1)(torch.zeros(1, {a}, 2, 2, dtype=torch.uint8))"),
    ("scalar-type", "torch.bmm(torch.zeros(1, {a}, {b}), torch.zeros(1, {b}, {c}, dtype=torch.float64))"),
    ("inplace-cast", "x = torch.zeros({a}, dtype=torch.int64); x += 0.5"),
    ("container-for-tensor", "out = torch.nn.LSTM({a}, {b})(torch.zeros({c}, 1, {a})); out.size()"),
    ("container-for-tensor", "[torch.zeros({a})].to('cpu')"),
    ("no-forward", "torch.nn.ModuleList([torch.nn.Linear({a}, {b})])(torch.zeros({a}))"),
    ("empty-dataset", "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(0, {a})), {b}, shuffle=True)"),
    ("singular-matrix", "torch.linalg.inv(torch.ones(2, 2) * {a})"),
    ("saved-tensor-overwritten", "x = torch.ones({a}, {b}, requires_grad=True); y = torch.sigmoid(x); y += 1; y += 1; y.sum().backward()"),
    ("saved-tensor-overwritten", "x = torch.ones({a}, requires_grad=True); y = torch.exp(x); y.mul_(2); y.sum().backward()"),
    ("leaf-written", "x = torch.ones({a}, requires_grad=True); x *= 2"),
    ("leaf-written", "x = torch.ones({a}, {b}, requires_grad=True); x[0, 0] = 2"),
    ("one-of-several-views", "x = torch.ones(3, {a}, requires_grad=True) * 1; p, q, r = x.unbind(); q += 1"),
    ("one-of-several-views", "x = torch.ones(3, {a}, requires_grad=True) * 1; p, q, r = x.split(1); r += 1"),
    ("second-backward", "y = (torch.ones({a}, requires_grad=True) ** 2).sum(); y.backward(); y.backward()"),
    ("no-grad-fn", "torch.ones({a}, {b}).sum().backward()"),
    ("not-scalar", "(torch.ones({a}, {b}, requires_grad=True) * 2).backward()"),
    ("grad-output-shape", "(torch.ones({a}, {b}, requires_grad=True) * 2).backward(torch.ones({c}))"),
    ("invalid-gradient", _FUNCTION.format("torch.ones({a}, {c}), None")),
    ("invalid-gradient", _FUNCTION.format("torch.ones({a}), None")),
    ("gradient-count", _FUNCTION.format("torch.ones({a}, {b})")),
    ("grad-assigned", "x = torch.ones({a}, requires_grad=True); x.grad = torch.ones({b})"),
    ("to-number", "torch.zeros({a}, {b}).item()"),
    ("ragged", "torch.tensor([[0] * {a}, [0] * {b}])"),
    ("fake-broadcast", "raise RuntimeError('Attempting to broadcast a dimension of length {b} at -1! Mismatching argument at index 1 had "
                       "torch.Size([{a}, {b}]); but expected shape should be broadcastable to [{a}, {c}]')", False),
    ("gradient-of-no-tensor", _FUNCTION.format("torch.ones({a}, {b}), grad").replace("None).backward", "2.0).backward").replace("x * 2", "x * y")),
    ("right-hand-side", "torch.linalg.solve(torch.eye({a}), torch.zeros({b}, {c}))"),
    ("spatial-dimensions", "torch.nn.functional.interpolate(torch.zeros(1, 3, {a}), size=({b}, {c}))"),
    ("nothing-to-draw-from", "torch.randint({a} + {b}, {a}, (2,))"),
    ("hyperparameter", "torch.optim.Adam(torch.nn.Linear(2, 2).parameters(), betas=(1.{a}, 0.9))"),
    ("size-overflows", "torch.empty({a}0000000000, {b}0000000000)"),
    ("index-out-of-bounds", "torch.zeros({a}, {b}).gather(1, torch.tensor([[{b} + {c}]]))"),
    ("index-out-of-bounds", "torch.zeros({a}, {b}).index_add_(0, torch.tensor([{a} + {c}]), torch.ones(1, {b}))"),
    ("pool-too-small", "torch.nn.MaxPool2d(9)(torch.zeros(2, {a}, 3, 4))", False),
    ("saved-tensor-overwritten", "x = torch.ones({a}, {b}, requires_grad=True); h = x * 2; y = h ** 2; h += 1; h += 1; y.sum().backward()", False),
)  # fmt: skip


def variations(number: int, seed: int) -> list[Failing]:
    """Each template with `number` draws of different sizes."""
    draw = random.Random(seed)
    made = []
    for reader, template, *loose in EXACT:
        for _ in range(number):
            sizes = dict(zip("abcd", draw.sample(range(2, 9), 4), strict=True))
            source = template
            for letter, size in sizes.items():
                source = source.replace("{" + letter + "}", str(size))
            made.append(Failing(reader, "import torch\n\n" + source + "\n", exact=not loose))
    return made
