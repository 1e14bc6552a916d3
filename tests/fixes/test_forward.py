"""Fixes of forward failures: the expected line, and the patched program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from patched import fixes_of, outcome_of, patched_text

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
# program -> (the line as the first fix has it, safe or not)
PROGRAMS = {
    "x = torch.randn(2, 3, 4).permute(0, 2, 1)\ny = x.view(2, -1)": ("y = x.reshape(2, -1)", "safe"),
    "for n in (8, 8, 5):\n    x = torch.randn(n, 6)\n    y = x.view(8, 2, 3)": ("    y = x.view(x.size(0), 2, 3)", "safe"),
    "x = torch.rand(8, 5)\np = x / x.norm(dim=1)": ("p = x / x.norm(dim=1, keepdim=True)", "safe"),
    "x, weight = torch.rand(8, 5), torch.rand(8)\ny = x * weight": ("y = x * weight.unsqueeze(-1)", "unsafe"),
    "images = torch.rand(2, 16, 16, 3)\ny = nn.Conv2d(3, 4, 3)(images)": ("y = nn.Conv2d(3, 4, 3)(images.permute(0, 3, 1, 2))", "safe"),
    "x = torch.randint(0, 256, (2, 3), dtype=torch.uint8)\nx.requires_grad_()\ny = (x / 255).sum()": ("x = x.float().requires_grad_()", "safe"),
    "x = torch.rand(4, 3).double()\ny = nn.Linear(3, 2)(x)": ("y = nn.Linear(3, 2)(x.float())", "safe"),
    "ids = torch.tensor([1.0, 2.0])\ny = nn.Embedding(4, 2)(ids)": ("y = nn.Embedding(4, 2)(ids.long())", "unsafe"),
    "scores, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])\ny = scores.gather(1, labels)": ("y = scores.gather(1, labels.unsqueeze(1)).squeeze(1)", "safe"),
    "out, h = torch.zeros(2, 4), torch.randn(5, 4).double()\nout = out.index_add(0, torch.tensor([0, 1, 1, 0, 1]), h)": (
        "out = out.index_add(0, torch.tensor([0, 1, 1, 0, 1]), h.float())", "safe"),
    "m, a = torch.tensor([0., 1.]), torch.ones(2)\ny = torch.where(m, a, -a)": ("y = torch.where(m.bool(), a, -a)", "unsafe"),
    "rnn, x = nn.LSTM(3, 4), torch.randn(5, 2, 3).double()\ny, _ = rnn(x)": ("y, _ = rnn(x.float())", "safe"),
    "net = nn.Linear(3, 2)\nwith torch.autocast('cpu', dtype=torch.bfloat16):\n    h = net(torch.randn(4, 3))\ny = nn.Linear(2, 1)(h)": ("y = nn.Linear(2, 1)(h.float())", "safe"),
    "base = torch.zeros(1, 3)\nnoise = base.expand(4, -1)\nnoise += torch.ones(4, 3)": ("noise = base.expand(4, -1).clone()", "safe"),
    "x = torch.arange(5.)\nx[1:] += x[:-1]": ("x[1:] += x[:-1].clone()", "safe"),
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = []\n        self.layers.append(nn.Linear(2, 2))\n"
    "net = Net()\ny = torch.optim.SGD(net.parameters(), lr=0.1)": ("        self.layers = nn.ModuleList([])", "unsafe"),
    "net = nn.Linear(3, 2)\nparams = net.parameters()\nprint(sum(p.numel() for p in params))\ny = torch.optim.SGD(params, lr=0.1)": ("params = list(net.parameters())", "safe"),
    # A state that goes on to the next batch is not cut to a smaller one.
    "from torch.utils.data import DataLoader\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rnn, self.h = nn.GRU(2, 3, batch_first=True), torch.zeros(1, 4, 3)\n"
    "    def forward(self, x):\n        out, h = self.rnn(x, self.h)\n        self.h = h.detach()\n        return out\nnet, loader = Net(), DataLoader(torch.randn(10, 5, 2), batch_size=4)\n"
    "for x in loader:\n    y = net(x)": ("net, loader = Net(), DataLoader(torch.randn(10, 5, 2), batch_size=4, drop_last=True)", "unsafe"),
    # One value for each index, unless the program goes on with a column.
    "q, a = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])\nbest = q.gather(1, a)\nloss = F.mse_loss(best, torch.zeros(4).unsqueeze(1))": ("best = q.gather(1, a.unsqueeze(1))", "safe"),
    "q, a = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])\nbest = q.gather(1, a).squeeze(-1)": ("best = q.gather(1, a.unsqueeze(1)).squeeze(-1)", "safe"),
    "def score(p, scale):\n    return p * scale\nnet, p = torch.func.vmap(score, in_dims=(0,)), torch.ones(3)\ny = net(p, 2.0)": (
        "net, p = torch.func.vmap(score, in_dims=(0, None)), torch.ones(3)", "safe"),
    "drop = nn.Dropout(0.5)\ny = torch.vmap(lambda x: drop(x))(torch.ones(3, 4))": ('y = torch.vmap(lambda x: drop(x), randomness="different")(torch.ones(3, 4))', "unsafe"),
    "logits, target = torch.randn(2, 7, 5), torch.zeros(2, 7, dtype=torch.long)\ny = F.cross_entropy(logits, target)": (
        "y = F.cross_entropy(logits.transpose(1, 2), target)", "safe"),
    "labels = torch.tensor([1, 2, 3, 1])\ny = F.cross_entropy(torch.randn(4, 3), labels)": ("y = F.cross_entropy(torch.randn(4, 3), labels - 1)", "unsafe"),
    "labels = torch.tensor([1, -1, 2, 0])\ny = F.cross_entropy(torch.randn(4, 3), labels)": (
        "y = F.cross_entropy(torch.randn(4, 3), labels, ignore_index=-1)", "unsafe"),
    "q = k = torch.randn(2, 7, 16)\ny = torch.bmm(q, k)": ("y = torch.bmm(q, k.transpose(-1, -2))", "unsafe"),
    "x = torch.arange(10)\nmiddle = len(x) / 2\ny = x[middle]": ("middle = len(x) // 2", "safe"),
    "rows, best = torch.randn(4, 9, 8), torch.zeros(4, 3, dtype=torch.long)\ny = rows.gather(1, best)": ("y = rows.gather(1, best[..., None].expand(-1, -1, 8))", "unsafe"),
    "norm, x = nn.LayerNorm(6), torch.randn(2, 6, 5)\ny = norm(x)": ("y = norm(x.transpose(1, -1)).transpose(1, -1)", "unsafe"),
    "norm, x = nn.BatchNorm1d(5), torch.randn(2, 6, 5)\ny = norm(x)": ("y = norm(x.transpose(1, 2)).transpose(1, 2)", "unsafe"),
    "f, m = torch.rand(1, 4, 25, 25), torch.rand(1, 4, 13, 13)\ny = f + F.interpolate(m, scale_factor=2)": ("y = f + F.interpolate(m, size=f.shape[2:])", "unsafe"),
    "mask = torch.rand(3) > 0.5\ny = 1 - mask": ("y = ~mask", "unsafe"),
    "rnn, x = nn.GRU(3, 4), torch.randn(2, 7, 3)\ny = rnn(x, torch.zeros(1, 2, 4))": ("rnn, x = nn.GRU(3, 4, batch_first=True), torch.randn(2, 7, 3)", "unsafe"),
    "head = nn.Linear(2 * 16, 3)\ny = head(torch.randn(4, 20))": ("head = nn.Linear(20, 3)", "unsafe"),
    # The number where it is set, or what the layer before was given for it: not another number in its place.
    "width = 16\nnet = nn.Sequential(nn.Linear(4, width), nn.Linear(32, 2))\ny = net(torch.randn(3, 4))": (
        "net = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))", "unsafe"),
    "cfg = {'features': 10, 'hidden': 8}\nnet = nn.Linear(cfg['features'], cfg['hidden'])\ny = net(torch.randn(3, 12))": (
        "cfg = {'features': 12, 'hidden': 8}", "unsafe"),
    "class Head(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.norm, self.out = nn.LayerNorm(n), nn.Linear(n, 2)\n"
    "    def forward(self, x):\n        return self.out(self.norm(x))\n"
    "class Model(nn.Module):\n    def __init__(self, width=12):\n        super().__init__()\n        self.rnn, self.head = nn.GRU(3, width, bidirectional=True), Head(width)\n"
    "    def forward(self, x):\n        return self.head(self.rnn(x)[0])\ny = Model()(torch.randn(5, 2, 3))": (
        "        self.rnn, self.head = nn.GRU(3, width, bidirectional=True), Head(2 * width)", "unsafe"),
    "def block(c, n):\n    return nn.Sequential(nn.Conv2d(c, n, 3), nn.ReLU())\nnet = nn.Sequential(block(3, 8), block(4, 2))\ny = net(torch.randn(1, 3, 9, 9))": (
        "net = nn.Sequential(block(3, 8), block(8, 2))", "unsafe"),
    "class Up(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.conv = nn.Conv2d(n, n, 1)\n    def forward(self, x, skip):\n"
    "        return self.conv(torch.cat([skip, x], 1))\nup = Up(4)\ny = up(torch.randn(1, 4, 5, 5), torch.randn(1, 4, 5, 5))": (
        "        self.conv = nn.Conv2d(2 * n, n, 1)", "unsafe"),
    # Not what other layers are made by, too.
    "def mlp(sizes):\n    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))\n"
    "class Critic(nn.Module):\n    def __init__(self, state):\n        super().__init__()\n        self.q = mlp([state, 8, 1])\n"
    "    def forward(self, s, a):\n        return self.q(torch.cat([s, a], -1))\ny = Critic(11)(torch.randn(4, 11), torch.randn(4, 3))": (
        "        self.q = mlp([state + 3, 8, 1])", "unsafe"),
    "net = nn.Linear(2 * 5 * 5, 3)\ny = net(torch.randn(2, 2, 4, 4).flatten(1))": ("net = nn.Linear(2 * 4 * 4, 3)", "unsafe"),
    "fc = nn.Linear(2 * 5 * 5, 3)\nx = torch.randn(2, 2, 4, 4)\ny = fc(x.view(-1, 2 * 5 * 5))": ("y = fc(x.view(-1, 2 * 4 * 4))", "unsafe"),
    "fc, x = nn.Linear(8, 3), torch.randn(6, 4, 2, 2)\nh = x.view(-1, 8)\ny = F.cross_entropy(fc(h), torch.zeros(6, dtype=torch.long))": ("h = x.view(-1, 16)", "unsafe"),
    "conv, fc = nn.Conv1d(3, 16, 5), nn.Linear(16, 2)\nh = conv(torch.randn(2, 3, 30))\ny = fc(h)": ("y = fc(h.transpose(1, -1))", "unsafe"),
    "conv, rnn = nn.Conv1d(3, 16, 5), nn.GRU(16, 2, batch_first=True)\nh = conv(torch.randn(2, 3, 30))\ny = rnn(h)": ("y = rnn(h.transpose(1, 2))", "unsafe"),
    "words = {'a': 1, 'b': 2}\nids = torch.tensor([0, 1, 2])\ny = nn.Embedding(len(words), 4)(ids)": ("y = nn.Embedding(len(words) + 1, 4)(ids)", "unsafe"),
    "def build(longest=8):\n    return nn.Embedding(longest, 2)\ny = build()(torch.arange(12))": ("def build(longest=12):", "unsafe"),
    # A mask belongs to the keys, over which the softmax goes; where something is summed up, to what is summed.
    "scores, mask = torch.randn(3, 2, 5, 5), torch.zeros(3, 5).bool()\nscores = scores.masked_fill(mask, -1e9)\ny = scores.softmax(dim=-1)": (
        "scores = scores.masked_fill(mask[:, None, None, :], -1e9)", "unsafe"),
    "scores, mask = torch.randn(3, 2, 5, 5), torch.zeros(3, 5)\ny = F.softmax(scores + mask, dim=2)": ("y = F.softmax(scores + mask[:, None, :, None], dim=2)", "unsafe"),
    "x, mask = torch.randn(3, 5, 5), torch.ones(3, 5)\ny = (x * mask).sum(dim=1)": ("y = (x * mask[:, :, None]).sum(dim=1)", "unsafe"),
    "x = torch.randn(2, 4, 3, 3)\nscale, shift = torch.randn(2, 8).chunk(2, 1)\ny = x * scale + shift": ("y = x * scale[:, :, None, None] + shift[:, :, None, None]", "unsafe"),
    "pe, x = torch.randn(1, 50, 8), torch.randn(2, 7, 8)\ny = x + pe": ("y = x + pe[:, :x.size(1)]", "unsafe"),
    "mask, scores = torch.ones(9, 9).triu(1).bool(), torch.randn(2, 4, 4)\ny = scores.masked_fill(mask, 0)": (
        "y = scores.masked_fill(mask[:scores.size(-2), :scores.size(-1)], 0)", "unsafe"),
    "token, x = nn.Parameter(torch.zeros(1, 1, 4)), torch.randn(3, 5, 4)\ny = torch.cat([token, x], dim=1)": ("y = torch.cat([token.expand(x.size(0), -1, -1), x], dim=1)", "unsafe"),
    "x, z = torch.randn(3, 5, 4), torch.randn(3, 2)\ny = torch.cat([x, z], dim=-1)": ("y = torch.cat([x, z.unsqueeze(1).expand(-1, x.size(1), -1)], dim=-1)", "unsafe"),
    "state, action = torch.randn(6, 4), torch.rand(6)\ny = torch.cat([state, action], dim=-1)": ("y = torch.cat([state, action.unsqueeze(1)], dim=-1)", "unsafe"),
    "h = torch.randn(3, 6)\ny = h.expand(-1, 4, -1)": ("y = h.unsqueeze(1).expand(-1, 4, -1)", "unsafe"),
    "rows = [torch.arange(n) for n in (3, 5, 2)]\ny = torch.stack(rows)": ("y = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)", "unsafe"),
    'q, k = torch.randn(2, 5, 8), torch.randn(2, 7, 8)\ny = torch.einsum("bqd,bdk->bqk", q, k)': ('y = torch.einsum("bqd,bkd->bqk", q, k)', "unsafe"),
    "x, t = torch.randn(9, 4), torch.randn(9, 2)\ny = x @ t": ("y = x.transpose(-1, -2) @ t", "unsafe"),
    "lstm, fc = nn.LSTM(3, 4), nn.Linear(4, 2)\nh = lstm(torch.randn(5, 2, 3))\ny = fc(h)": ("h, _ = lstm(torch.randn(5, 2, 3))", "unsafe"),
    "attend, x = nn.MultiheadAttention(4, 2), torch.randn(5, 2, 4)\ny = x + attend(x, x, x)": ("y = x + attend(x, x, x)[0]", "safe"),
    "lstm, fc = nn.LSTM(3, 4), nn.Linear(4, 2)\nh = lstm(torch.randn(5, 2, 3))\nlast = h[1]\ny = fc(h)": ("y = fc(h[0])", "unsafe"),
    "there, back = nn.GRU(3, 4, bidirectional=True), nn.GRU(3, 4)\nx = torch.randn(5, 2, 3)\n_, h = there(x)\ny = back(x, h)": (
        "y = back(x, h.unflatten(0, (-1, 2)).sum(1))", "unsafe"),
    "there, back = nn.LSTM(3, 4, bidirectional=True), nn.LSTM(3, 4)\nx = torch.randn(5, 2, 3)\n_, (h, c) = there(x)\ny = back(x, (h, c))": (
        "y = back(x, (h.unflatten(0, (-1, 2)).sum(1), c.unflatten(0, (-1, 2)).sum(1)))", "unsafe"),
    "x = torch.randn(3, requires_grad=True)\ny = (x * 2).numpy()": ("y = (x * 2).detach().numpy()", "safe"),
    "parts = [torch.ones(2) * k for k in range(3)]\ny = torch.tensor(parts)": ("y = torch.stack(parts)", "safe"),
    "net, sample = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval(), torch.randn(4)\ny = net(sample)": ("y = net(sample.unsqueeze(0))", "unsafe"),
    "target = F.one_hot(torch.tensor([0, 2, 1]), 3)\ny = F.cross_entropy(torch.randn(3, 3), target)": ("y = F.cross_entropy(torch.randn(3, 3), target.float())", "safe"),
    "lm, ids = nn.Embedding(9, 9), torch.randint(0, 9, (4, 6))\nlogits = lm(ids[:, :-1])\ny = F.cross_entropy(logits.reshape(-1, 9), ids.view(-1))": (
        "y = F.cross_entropy(logits.reshape(-1, 9), ids[:, 1:].reshape(-1))", "unsafe"),
    "lm, ids = nn.Embedding(9, 9), torch.randint(0, 9, (4, 6))\nlogits = lm(ids)\ny = F.cross_entropy(logits.view(-1, 9), ids[:, 1:].reshape(-1))": (
        "y = F.cross_entropy(logits[:, :-1].reshape(-1, 9), ids[:, 1:].reshape(-1))", "unsafe"),
    "read, write = 16, 32\nreader, cell = nn.GRU(8, read), nn.GRUCell(8, write)\n_, h = reader(torch.randn(5, 2, 8))\ny = cell(torch.zeros(2, 8), h[-1])": (
        "reader, cell = nn.GRU(8, read), nn.GRUCell(8, read)", "unsafe"),
    "x = torch.arange(10)\nhalf = len(x) / 2\ny = x[:half]": ("half = len(x) // 2", "safe"),
    "x = torch.randn(2, 5, 8)\ny = x.view(2, 5, 4, 8 / 4)": ("y = x.view(2, 5, 4, 8 // 4)", "safe"),
    "fc, pos_emb = nn.Linear(4, 8), torch.randn(1, 50, 8)\ny = fc(torch.randn(2, 7, 4)) + pos_emb": ("y = h + pos_emb[:, :h.size(1)]", "unsafe"),
    "w, v = torch.rand(3, 7), torch.randn(3, 7, 5)\ny = torch.bmm(w, v)": ("y = torch.bmm(w.unsqueeze(1), v)", "unsafe"),
    "SIDE = 32\nnet = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * (SIDE // 4) ** 2, 10))\ny = net(torch.rand(2, 1, 28, 28))": (
        "SIDE = 28", "unsafe"),
    "LONGEST = 10\npos = nn.Parameter(torch.randn(1, LONGEST, 8) * 0.02)\nx = torch.randn(2, 12, 8)\ny = x + pos[:, :x.size(1)]": ("LONGEST = 12", "unsafe"),
    "def weight(inp, out):\n    return torch.randn(out, inp)\nx, ws = torch.randn(4, 5), [weight(5, 7)]\ny = x @ ws[0]": ("y = x @ ws[0].transpose(-1, -2)", "unsafe"),
    "import random\nrandom.seed(1)\ndef pick(n):\n    return random.randint(0, n)\nids = torch.tensor([pick(3) for _ in range(40)])\ny = torch.zeros(3).index_select(0, ids)": (
        "    return random.randint(0, n - 1)", "unsafe"),
    "net = nn.Linear(4, 1)\ndef score(x):\n    return net(x).squeeze()\ny = torch.cat([score(part) for part in torch.randn(7, 4).split(3)])": (
        "    return net(x).squeeze(-1)", "safe"),
    "class Text(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.word, self.pos = nn.Embedding(9, 4), nn.Embedding(6, 4)\n"
    "    def forward(self, ids):\n        return self.word(ids) + self.pos(torch.arange(ids.size(1)))\n"
    "model, ids = Text(), torch.zeros(1, 3, dtype=torch.long)\nfor _ in range(5):\n    y = model(ids)\n    ids = torch.cat([ids, y.argmax(-1)[:, -1:]], dim=1)": (
        "    y = model(ids[:, -6:])", "unsafe"),
    "class Windows(torch.utils.data.Dataset):\n    def __init__(self):\n        self.x, self.size = torch.arange(20.0), 5\n    def __len__(self):\n        return len(self.x) - self.size\n"
    "    def __getitem__(self, i):\n        return self.x[i:i + self.size], self.x[i + self.size + 1]\nfor y in torch.utils.data.DataLoader(Windows(), batch_size=4):\n    pass": (
        "        return len(self.x) - self.size - 1", "unsafe"),
    "x, rows, picks = torch.randn(4, 9, 3), torch.arange(4), torch.zeros(4, 2, dtype=torch.long)\ny = x[rows, picks]": ("y = x[rows[:, None], picks]", "unsafe"),
}  # fmt: skip


@pytest.mark.parametrize("body", PROGRAMS)
def test_the_first_fix(body: str, tmp_path: Path) -> None:
    line, applicability = PROGRAMS[body]
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{body}\n")
    fixes = fixes_of(path)
    assert fixes, "no fix is offered"
    text = patched_text(path, fixes[0]).decode()
    assert line in text.splitlines(), fixes[0].diff
    assert fixes[0].applicability.value == applicability
    assert applicability == "safe" or fixes[0].meaning
    assert not outcome_of(text, path).error


# Sizes that do not say which of the two is wrong, and values without a story: nothing is offered.
AMBIGUOUS = [
    "y = torch.randn(4, 5) @ torch.randn(6, 3)",
    "y = torch.randn(4, 5) + torch.randn(4, 6)",
    "x = torch.zeros(3, 4)\ny = x[1, 4]",
    "y = F.cross_entropy(torch.randn(6, 3), torch.zeros(5, dtype=torch.long))",
    "table = torch.randn(4, 2)\ny = table.index_select(0, torch.tensor([0, 9]))",
    "count = torch.zeros(3, dtype=torch.long)\ncount += torch.rand(3)",
    "x, mask = torch.randn(3, 5, 5), torch.ones(3, 5)\ny = x * mask",  # along dimension 1 or 2?
    "scores, bias = torch.randn(3, 2, 5, 5), torch.ones(3, 5)\ny = scores + bias",
    "x, weight = torch.randn(2, 7, 8), torch.ones(50, 8)\ny = x * weight",  # no table of positions: what of it?
    "emb = nn.Embedding(30, 4)\ny = emb(torch.tensor([ord(c) for c in 'hello']))",  # ids of another table
    "net = nn.Sequential(*[nn.Linear(8, 6) for _ in range(3)])\ny = net(torch.randn(2, 8))",  # the number is every layer's
    "obs, act = 5, 3\nq = nn.Linear(obs + act, 2)\ny = q(torch.cat([torch.randn(4, obs), torch.randn(4, 1)], 1))",
    "y = torch.stack([torch.rand(3, 8, 8), torch.rand(3, 9, 8)])",  # images
    "y = torch.stack([torch.rand(4), torch.rand(4), torch.rand(5)])",  # one odd one
    "y = torch.cat([torch.rand(1, 1, 4, 4), torch.rand(1, 3, 4, 4)])",  # grey beside colour
    'y = torch.einsum("ij,jk->ik", torch.randn(2, 3), torch.randn(4, 5))',
    "x = torch.ones(3, requires_grad=True)\nprint(f'{x.numpy()}')",
    "net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))\ny = net(torch.randn(4))",  # in training a batch of one has no variance
    "def inner(net, x):\n    return net(x)\ny = inner(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval(), torch.randn(4))",  # other callers pass batches
    "lm, ids = nn.Embedding(9, 9), torch.randint(0, 9, (4, 6))\nlogits = lm(ids[:, 1:])\ny = F.cross_entropy(logits.reshape(-1, 9), ids.reshape(-1))",
    "target = torch.randint(0, 5, (4, 3))\ny = F.cross_entropy(torch.randn(4, 3), target)",  # counts, not one-hot rows
    "x, rows, picks = torch.randn(4, 9), torch.tensor([3, 1]), torch.zeros(2, 3, dtype=torch.long)\ny = x[rows, picks]",
    "x = torch.arange(10)\na, b = len(x) / 2, len(x) / 3\ny = x[b:a]",
]


@pytest.mark.parametrize("body", AMBIGUOUS)
def test_no_guess_where_the_evidence_does_not_single_out_an_edit(body: str, tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{body}\n")
    assert not fixes_of(path)


FILES = {
    "config.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Config:\n    features: int = 10  # columns\n    hidden: int = 8\n",
    "layers.py": "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n"
    "        self.body = nn.Linear(\n            config.features,\n            config.hidden,\n        )\n    def forward(self, x):\n        return self.body(x)\n",
    "prog.py": "import torch\nfrom config import Config\nfrom layers import Net\ny = Net(Config())(torch.randn(3, 12))\n",
}


def test_the_number_is_changed_in_the_file_where_it_is_set(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    fixes = fixes_of(tmp_path / "prog.py")
    assert {edit.span.file for edit in fixes[0].edits} == {"config.py"}
    assert "+    features: int = 12  # columns" in fixes[0].diff


def test_samples_of_unequal_length_are_padded_by_a_function_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\n\n\nclass Texts(Dataset):\n    def __len__(self):\n        return 3\n"
        "    def __getitem__(self, k):\n        return torch.arange((3, 5, 2)[k]), k\n\n\nfor ids, label in DataLoader(Texts(), batch_size=3):\n    seen = ids.float(), label\n"
    )
    fixes = fixes_of(path)
    text = patched_text(path, fixes[0]).decode()
    assert "for ids, label in DataLoader(Texts(), batch_size=3, collate_fn=pad_batch):" in text
    outcome = outcome_of(f"{text}assert seen[0].shape == (3, 5) and label.tolist() == [0, 1, 2]\n", path)
    assert not outcome.error
