"""Fixes where something else stands for a tensor, or a model was not built as torch wants it: the line, and the patched program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from patched import fixes_of, outcome_of, patched_text

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def module(forward: str, name: str = "Net", made: str = "self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)") -> str:
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    return f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {made}\n    def forward(self, x):\n{body}"


TWO = module("h = self.a(x)\nreturn self.b(h), h")
NAMED = module('h = self.a(x)\nreturn {"hidden": h, "logits": self.b(h)}')
EQUALS = module("q1, q2 = self.a(x), self.a(x) + 1\nreturn q1, q2")
X, Y = "x = torch.randn(5, 4)\n", "y = torch.tensor([0, 1, 2, 0, 1])\n"
LOADER = "from torch.utils.data import DataLoader, TensorDataset\nmodel = nn.Linear(4, 3)\n"
ATTEND = "        super().__init__()\n        self.attend = nn.MultiheadAttention(words, 2, batch_first=True)\n"
WEIGHTS = "w, b = torch.ones(3, requires_grad=True), torch.ones(1, requires_grad=True)\nfor _ in range(3):\n    (w.sum() * b - 1).pow(2).sum().backward()\n"

# name -> (program, the line as the first fix has it, safe or not)
PROGRAMS = {
    # Of several results the one whose shape or name is wanted; where the whole is used, too, at the one use.
    "the first": (f"{TWO}{X}out = Net()(x)\ny = F.softmax(out, dim=-1)", "out, _ = Net()(x)", "unsafe"),
    "used whole": (f"{TWO}{X}out = Net()(x)\nhidden = out[1]\ny = F.softmax(out, dim=-1)", "y = F.softmax(out[0], dim=-1)", "unsafe"),
    "by the layer": (f"{EQUALS.replace('q1, q2', 'h, q1', 1).replace('q1, q2', 'q1.sum(-1), h')}{X}out = Net()(x)\ny = nn.Linear(4, 2)(out)", "out = Net()(x)[1]", "unsafe"),
    "by the target": (f"{TWO}{X}{Y}loss = F.cross_entropy(Net()(x), y)", "loss = F.cross_entropy(Net()(x)[0], y)", "unsafe"),
    "a dictionary": (f"{NAMED}{X}scores = Net()(x)\ny = scores.softmax(-1)", 'scores = Net()(x)["logits"]', "unsafe"),
    "its name": (f'{NAMED.replace("logits", "z")}{X}hidden = Net()(x)\ny = hidden.softmax(-1)', 'hidden = Net()(x)["hidden"]', "unsafe"),
    "the loss in it": (
        f'{module("z = self.b(self.a(x))" + chr(10) + "return dict(loss=z.mean(), logits=z)")}{X}loss = Net()(x)\nloss.backward()', 'loss = Net()(x)["loss"]', "unsafe"),
    "a dataclass": (
        f"import dataclasses\n@dataclasses.dataclass\nclass Result:\n    logits: torch.Tensor\n    hidden: torch.Tensor\n{TWO.replace('self.b(h), h', 'Result(self.b(h), h)')}"
        f"{X}out = Net()(x)\ny = F.softmax(out, dim=-1)", "out = Net()(x).logits", "unsafe"),
    "a named tuple": (
        f"import collections\nResult = collections.namedtuple('Result', 'output aux')\n{TWO.replace('self.b(h), h', 'Result(self.b(h), self.b(h))')}"
        f"{X}out = Net()(x)\ny = F.softmax(out, dim=-1)", "out = Net()(x).output", "unsafe"),
    "three times": (
        f"{module('out, weights = self.a(x, x, x)' + chr(10) + 'return out, weights', made='self.a = nn.MultiheadAttention(4, 2)')}"
        "net = Net()\nx = torch.randn(5, 3, 4)\nfor _ in range(2):\n    x = net(x)", "    x, _ = net(x)", "unsafe"),
    # What a loader hands over.
    "one part": (f"{LOADER}for x in DataLoader(TensorDataset(torch.randn(6, 4)), 3):\n    y = model(x) - x[:, :3]", "for (x,) in DataLoader(TensorDataset(torch.randn(6, 4)), 3):", "safe"),
    "two parts": (
        f"{LOADER}for k, x in enumerate(DataLoader(TensorDataset(torch.randn(6, 4), torch.zeros(6)), 3)):\n    y = model(x) - x.mean()",
        "for k, (x, _) in enumerate(DataLoader(TensorDataset(torch.randn(6, 4), torch.zeros(6)), 3)):", "unsafe"),
    "used once": (f"{LOADER}for batch in DataLoader(TensorDataset(torch.randn(6, 4), torch.zeros(6)), 3):\n    y = model(batch)", "    y = model(batch[0])", "unsafe"),
    "refused further in": (
        f"{LOADER}{TWO.replace('self.b(h), h', 'self.b(h)')}net = Net()\nfor batch in DataLoader(TensorDataset(torch.randn(6, 4), torch.zeros(6).long()), 3):\n"
        "    y = F.cross_entropy(net(batch), batch[1])", "    y = F.cross_entropy(net(batch[0]), batch[1])", "unsafe"),
    # Lists.
    "losses": ("losses = [torch.randn(3).mean() for _ in range(4)]\ny = torch.mean(losses)", "y = torch.mean(torch.stack(losses))", "safe"),
    "steps": (
        "x, out, fc = torch.randn(2, 5, 4), [], nn.Linear(4, 3)\nfor t in range(5):\n    out.append(torch.tanh(x[:, t]))\ny = fc(out)", "y = fc(torch.stack(out, dim=1))", "unsafe"),
    "a pair of results": ("best = torch.randn(4, 3).max(1)\ny = 0.9 * best", "best = torch.randn(4, 3).max(1).values", "unsafe"),
    "a batch of one": (
        "net, loss = nn.Linear(4, 1), nn.BCEWithLogitsLoss()\nfor n in (4, 4, 1):\n    out = net(torch.randn(n, 4)).squeeze()\n    y = loss(out, torch.ones(n))",
        "    out = net(torch.randn(n, 4)).squeeze(-1)", "safe"),
    # A step of gradient descent that makes a new tensor: the leaf itself is written, and its gradient emptied where nothing else does.
    "no leaf": (f"{WEIGHTS}    w = w - 0.1 * w.grad\n    w.grad.zero_()", "        w -= 0.1 * w.grad", "safe"),
    "no leaf, the next round": (f"{WEIGHTS}    w = w - 0.1 * w.grad\n    b = b - 0.1 * b.grad", "        b.grad = None", "safe"),
    # What is missing.
    "no return": (f"{module('h = self.a(x)' + chr(10) + 'out = self.b(h)')}{X}{Y}net = Net()\nloss = F.cross_entropy(net(x), y)", "        return out", "unsafe"),
    "no return in a chain": (f"{module('self.a(x)', 'Block')}{X}y = nn.Sequential(Block(), nn.Linear(4, 2))(x)", "        return self.a(x)", "unsafe"),
    "a block's return": (f"{module('h = self.a(x)', 'Block')}{X}y = nn.Sequential(Block(), Block())(x)", "        return h", "unsafe"),
    "a layer's class": (f"{X}h = nn.ReLU(x)\ny = nn.Linear(4, 2)(h)", "h = nn.ReLU()(x)", "safe"),
    "a loss's class": (f"{X}{Y}loss = nn.CrossEntropyLoss(x, y)", "loss = nn.CrossEntropyLoss()(x, y)", "safe"),
    "swapped": (f"{X}{Y}loss = nn.CrossEntropyLoss()(y, x)", "loss = nn.CrossEntropyLoss()(x, y)", "safe"),
    "not set up": (f"{TWO.replace('        super().__init__()' + chr(10), '')}y = Net()", "        super().__init__()", "safe"),
    "set up late": (
        "class Net(nn.Module):\n    def __init__(self):\n        '''A layer.'''\n        self.a = nn.Linear(3, 2)\n        super(Net, self).__init__()\ny = Net()", "        super(Net, self).__init__()", "safe"),
    "the model": ("net = nn.Linear(3, 2)\nopt = torch.optim.SGD(net, lr=0.1)", "opt = torch.optim.SGD(net.parameters(), lr=0.1)", "safe"),
    "layers": ("net = nn.Sequential(nn.Linear(3, 2))\nopt = torch.optim.Adam(net)", "opt = torch.optim.Adam(net.parameters())", "safe"),
    "not called": ("net = nn.Linear(3, 2)\nopt = torch.optim.Adam(net.parameters, 0.1)", "opt = torch.optim.Adam(net.parameters(), 0.1)", "safe"),
    "a quotient kept": (
        f"{module('return x.view(5, self.n)', made='self.n = 8 / 2')}{X}y = Net()(x)", "        self.n = 8 // 2", "safe"),
    # How a model is built.
    "flatten between": (
        "net = nn.Sequential(\n    nn.Conv2d(1, 4, 3),\n    nn.AdaptiveAvgPool2d(2),\n    nn.Linear(16, 2),\n)\ny = net(torch.randn(3, 1, 8, 8))", "    nn.Flatten(),", "safe"),
    "other keys": (
        f"class Cross(nn.Module):\n    def __init__(self, words, pixels):\n{ATTEND}    def forward(self, q, k):\n        return self.attend(q, k, k)[0]\n"
        "y = Cross(4, 6)(torch.randn(2, 5, 4), torch.randn(2, 7, 6))", "        self.attend = nn.MultiheadAttention(words, 2, batch_first=True, kdim=pixels, vdim=pixels)", "unsafe"),
    "one picture": (
        f"{module('return self.b(torch.flatten(self.a(x), 1))', made='self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(144, 2)')}"
        "images = torch.randn(3, 1, 8, 8)\ny = Net()(images[0])", "y = Net()(images[0].unsqueeze(0))", "unsafe"),
    "one picture, normalised": (
        f"{module('return self.b(self.a(x))', made='self.a, self.b = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)')}"
        "net, images = Net().eval(), torch.randn(3, 1, 8, 8)\nfor image in images:\n    y = net(image)", "    y = net(image.unsqueeze(0))", "unsafe"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_fix(name: str, tmp_path: Path) -> None:
    body, line, applicability = PROGRAMS[name]
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{body}\n")
    fixes = fixes_of(path)
    assert fixes, "no fix is offered"
    text = patched_text(path, fixes[0]).decode()
    assert line in text.splitlines(), fixes[0].diff
    assert fixes[0].applicability.value == applicability
    assert applicability == "safe" or fixes[0].meaning
    assert not outcome_of(text, path).error


AMBIGUOUS = {
    "equals": f"{EQUALS}{X}q = Net()(x)\ny = q.mean()",  # the smaller of the two, their mean?
    "two outputs": f'{NAMED.replace("hidden", "start").replace("logits", "end").replace("h, ", "self.b(h), ")}{X}out = Net()(x)\ny = out.softmax(-1)',
    "two losses": f'{module("z = self.a(x)" + chr(10) + "return dict(kl=z.mean(), nll=z.sum())")}{X}loss = Net()(x)\nloss.backward()',
    "pairs of one shape": f"{LOADER}for batch in DataLoader(TensorDataset(torch.randn(6, 4), torch.randn(6, 4)), 3):\n    y = model(batch)",
    "which dimension": "out = [torch.randn(2, 4) for _ in range(5)]\ny = nn.Linear(4, 3)(out)",
    "prints last": f"{module('h = self.a(x)' + chr(10) + 'print(h.shape)')}{X}{Y}loss = F.cross_entropy(Net()(x), y)",
    "a layer with a mode": f"{X}h = nn.Dropout(x)\ny = nn.Linear(4, 2)(h)",  # made for each call it would drop in evaluation, too
    "a class of its own": f"{TWO}{X}y = nn.Linear(4, 2)(Net)",
    "a condition inside": f"{X}y = nn.Linear(4, 2, x)",
    "numbers for parameters": "opt = torch.optim.SGD(3, lr=0.1)",
    "keys of two widths": "attend = nn.MultiheadAttention(4, 2)\ny = attend(torch.randn(5, 2, 4), torch.randn(7, 2, 6), torch.randn(7, 2, 8))",
    "labels of another size": f"{X}loss = nn.CrossEntropyLoss()(torch.zeros(4, dtype=torch.long), x)",
    "others call it": f"{module('return self.b(torch.flatten(self.a(x), 1))', made='self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(144, 2)')}"
    "def predict(net, x):\n    return net(x)\ny = predict(Net(), torch.randn(1, 8, 8))",
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_no_guess_where_the_evidence_does_not_single_out_an_edit(name: str, tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{AMBIGUOUS[name]}\n")
    assert not fixes_of(path)


DATASET = """\
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, k):
        return {"ids": torch.arange(1, (4, 6, 3)[k]), "label": k}


def train(loader):
    return [(batch["ids"].shape[1], batch["label"].tolist()) for batch in loader]


def main():
    loader = DataLoader(Texts(), batch_size=3)
    checked = DataLoader(Texts(), batch_size=2)
    return train(loader), train(checked)


def again():
    return train(DataLoader(Texts(), 3))


seen = main()
"""


def test_samples_that_are_dictionaries_are_padded_for_all_loaders_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(HEAD + DATASET)
    fixes = fixes_of(path)
    assert fixes[0].diff.count(", collate_fn=pad_batch)") == 3
    text = patched_text(path, fixes[0]).decode()
    outcome = outcome_of(f"{text}assert seen == ([(5, [0, 1, 2])], [(5, [0, 1]), (2, [2])]), seen\n", path)
    assert not outcome.error


def test_a_loader_of_other_samples_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(HEAD + DATASET.replace("def train(", "class Pairs(Dataset):\n    def __getitem__(self, k):\n        return k, k\n\n\ndef train("))
    assert not fixes_of(path)
