"""Programs as people write them, each with one of the known failures, and what the first fix makes of them.

None of them was looked at when the fixes were first written: they were made to find out where those go wrong.
"""

from __future__ import annotations

# name -> (the lines that the first fix puts in, safe or not, the program's files)
PROGRAMS: dict[str, tuple[list[str], str, dict[str, str]]] = {
    "an average of the weights that is the weights": (
        [
            "        self.kept = {name: weight.detach().clone() for name, weight in model.named_parameters()}",
            "            with torch.no_grad():",
            "                self.kept[name].mul_(0.9).add_(weight, alpha=0.1)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Average:
    def __init__(self, model):
        self.kept = {name: weight for name, weight in model.named_parameters()}

    def update(self, model):
        for name, weight in model.named_parameters():
            self.kept[name].mul_(0.9).add_(weight, alpha=0.1)

model = nn.Linear(3, 1)
average = Average(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    loss = model(torch.randn(4, 3)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
"""
        },
    ),
    "one score, whole targets": (
        ["loss = nn.BCEWithLogitsLoss()(model(x).squeeze(-1), y.float())"],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(10, 1)
x, y = torch.randn(16, 10), torch.randint(0, 2, (16,))
loss = nn.BCEWithLogitsLoss()(model(x), y)
loss.backward()
"""
        },
    ),
    "two things carried over": (
        [
            "    ratio = (policy(states).log_softmax(-1)[rows, actions] - old.detach()).exp()",
            "    loss = -(ratio * advantage.detach()).mean()",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
policy, value = nn.Linear(4, 2), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*policy.parameters(), *value.parameters()], 0.01)
states, rows = torch.randn(8, 4), torch.arange(8)
scores, worth = policy(states).log_softmax(-1), value(states).squeeze(-1)
actions = scores.detach().exp().multinomial(1).squeeze(-1)
old = scores[rows, actions]
advantage = torch.randn(8) - worth ** 2
for epoch in range(3):
    ratio = (policy(states).log_softmax(-1)[rows, actions] - old).exp()
    loss = -(ratio * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        },
    ),
    "rnn buffer": (
        [
            "        outputs_list = []",
            "            prev = outputs_list[t - 1] if t > 0 else torch.zeros(batch, self.out.out_features)",
            "            outputs_list.append(self.out(h))   # fill",
            "        outputs = torch.stack(outputs_list)",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.cell = nn.GRUCell(n_in, n_hid)
        self.out = nn.Linear(n_hid, n_in)

    def forward(self, context, steps):
        batch = context.size(0)
        outputs = torch.zeros(steps, batch, self.out.out_features)
        h = context
        for t in range(steps):
            prev = outputs[t - 1] if t > 0 else torch.zeros(batch, self.out.out_features)
            h = self.cell(prev, h)
            outputs[t] = self.out(h)   # fill
        return outputs

torch.manual_seed(0)
model = Decoder(3, 5)
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    out = model(torch.randn(4, 5), 6)
    loss = (out - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        },
    ),
    "gan split": (
        [
            "        fake_score = self.D(fake)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
from trainer import Trainer

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
trainer = Trainer(G, D)
for i in range(3):
    trainer.train_step(torch.randn(16, 2))
""",
            "trainer.py": """\
import torch
from torch import nn


class Trainer:
    def __init__(self, G, D):
        self.G, self.D = G, D
        self.opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
        self.opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
        self.bce = nn.BCEWithLogitsLoss()

    def update_d(self, real_score, fake_score):
        loss = self.bce(real_score, torch.ones_like(real_score)) + self.bce(fake_score, torch.zeros_like(fake_score))
        self.opt_d.zero_grad()
        loss.backward(retain_graph=True)
        self.opt_d.step()
        return loss.item()

    def update_g(self, fake_score):
        loss = self.bce(fake_score, torch.ones_like(fake_score))
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def train_step(self, real):
        z = torch.randn(real.size(0), 4)
        fake = self.G(z)
        real_score, fake_score = self.D(real), self.D(fake)
        d_loss = self.update_d(real_score, fake_score)
        g_loss = self.update_g(fake_score)
        return d_loss, g_loss
""",
        },
    ),
    "gan freed": (
        [
            "        fake = self.G(z)",
            "        fake_score = self.D(fake)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
from trainer import Trainer

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
trainer = Trainer(G, D)
for i in range(3):
    trainer.train_step(torch.randn(16, 2))
""",
            "trainer.py": """\
import torch
from torch import nn


class Trainer:
    def __init__(self, G, D):
        self.G, self.D = G, D
        self.opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
        self.opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
        self.bce = nn.BCEWithLogitsLoss()

    def update_d(self, real_score, fake_score):
        loss = self.bce(real_score, torch.ones_like(real_score)) + self.bce(fake_score, torch.zeros_like(fake_score))
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def update_g(self, fake_score):
        loss = self.bce(fake_score, torch.ones_like(fake_score))
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def train_step(self, real):
        z = torch.randn(real.size(0), 4)
        fake = self.G(z)
        real_score, fake_score = self.D(real), self.D(fake)
        d_loss = self.update_d(real_score, fake_score)
        g_loss = self.update_g(fake_score)
        return d_loss, g_loss
""",
        },
    ),
    "gan module": (
        [
            "        on_fake = disc(fake)",
            "        g_loss = bce(on_fake, torch.ones(8, 1))",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn, optim
torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
disc = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
g_opt, d_opt = optim.Adam(gen.parameters()), optim.Adam(disc.parameters())
bce = nn.BCEWithLogitsLoss()

def apply(opt, loss, keep=False):
    opt.zero_grad()
    loss.backward(retain_graph=keep)
    opt.step()

def train(steps):
    for i in range(steps):
        real, z = torch.randn(8, 2), torch.randn(8, 4)
        fake = gen(z)
        on_fake = disc(fake)
        d_loss = bce(disc(real), torch.ones(8, 1)) + bce(on_fake, torch.zeros(8, 1))
        g_loss = bce(on_fake, torch.ones(8, 1))
        apply(d_opt, d_loss, keep=True)
        apply(g_opt, g_loss)

train(3)
""",
        },
    ),
    "only what is stale is run again": (
        ["    verdict = critic(made)"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.score = nn.Linear(2, 8), nn.Linear(8, 1)
    def forward(self, x):
        return self.score(torch.relu(self.features(x)))
maker, critic = nn.Linear(4, 2), Critic()
for_maker, for_critic = (torch.optim.Adam(net.parameters()) for net in (maker, critic))
for step in range(3):
    made = maker(torch.randn(8, 4))
    verdict = critic(made)
    for_critic.zero_grad()
    nn.functional.softplus(verdict).mean().backward(retain_graph=True)
    for_critic.step()
    loss = nn.functional.softplus(-verdict).mean()
    for_maker.zero_grad()
    loss.backward()
    for_maker.step()
""",
        },
    ),
    "argmax accuracy loss": (
        [
            "    scores = net(x)",
            "    pred = scores.argmax(dim=1)",
            "    loss = torch.nn.functional.cross_entropy(scores, y.long())",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(5, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(10, 5), torch.randint(0, 3, (10,))
criterion = nn.MSELoss()
for epoch in range(2):
    pred = net(x).argmax(dim=1)
    loss = criterion(pred.float(), y.float())
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        },
    ),
    "threshold": (
        [
            "        soft = torch.sigmoid(self.score(x))",
            "        keep = (soft > 0.5).float() + soft - soft.detach()",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)
    def forward(self, x):
        keep = (torch.sigmoid(self.score(x)) > 0.5).float()
        return x * keep
g = Gate()
x = torch.randn(6, 4)
loss = g(x).sum()
loss.backward()
""",
        },
    ),
    "numpy between": (
        [
            "    err = pred - target",
            "    return torch.sqrt(torch.mean(err ** 2))",
        ],
        "safe",
        {
            "main.py": """\
import numpy as np
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 3)

def rmse(pred, target):
    err = pred.detach().numpy() - target.numpy()
    return torch.tensor(np.sqrt(np.mean(err ** 2)))

x, y = torch.randn(4, 3), torch.randn(4, 3)
loss = rmse(net(x), y)
loss.backward()
""",
        },
    ),
    "argmax select": (
        [
            "scores = router(x)",
            "choice = scores.argmax(-1)",
            "soft = torch.softmax(scores, dim=-1)",
            "out = torch.tensordot(torch.nn.functional.one_hot(choice, scores.size(-1)) + soft - soft.detach(), table, dims=1)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
router = nn.Linear(4, 3)
table = torch.randn(3, 4)
x = torch.randn(5, 4)
choice = router(x).argmax(-1)
out = table[choice]
loss = (out - x).pow(2).mean()
loss.backward()
""",
        },
    ),
    "walrus": (
        [
            "    h = h - h.max()   # stabilise",
        ],
        "safe",
        {
            "main.py": """\
import torch
lin = torch.nn.Linear(3, 3)
x = torch.randn(2, 3)
if (h := torch.exp(lin(x))).mean() > 0:
    h -= h.max()   # stabilise
loss = h.sum()
loss.backward()
""",
        },
    ),
    "multiline inplace": (
        [
            "probs = probs.clamp(",
            ").log()",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 4)
x = torch.randn(2, 4)
logits = net(x)
probs = torch.softmax(logits, dim=-1)
probs.clamp_(
    min=1e-6,
    max=1.0,   # never more
).log_()
loss = -(probs[:, 0]).mean()
loss.backward()
""",
        },
    ),
    "leaf init onels": (
        [
            "        with torch.no_grad():",
            "            for i in range(3): self.w[i, i] = 1.0",
            "            self.b.fill_(0.1)",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.empty(3, 3))
        self.b = nn.Parameter(torch.empty(3))
        for i in range(3): self.w[i, i] = 1.0
        self.b.fill_(0.1)
    def forward(self, x):
        return x @ self.w + self.b
net = Net()
net(torch.randn(2, 3)).sum().backward()
""",
        },
    ),
    "view chunk": (
        [
            "gate = gate.sigmoid()",
            "value = value * gate",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
lin = nn.Linear(4, 8)
x = torch.randn(2, 4)
gate, value = lin(x).chunk(2, dim=-1)
gate.sigmoid_()
value *= gate
value.sum().backward()
""",
        },
    ),
    "view unbind loop": (
        [
            "rows = []",
            "    row = row - row.mean()",
            "    row = row / (row.std() + 1e-5)",
            "    rows.append(row)",
            "batch = torch.stack(rows)",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
lin = nn.Linear(4, 4)
batch = lin(torch.randn(3, 4))
for i, row in enumerate(batch):
    row -= row.mean()
    row /= row.std() + 1e-5
batch.pow(2).sum().backward()
""",
        },
    ),
    "tbptt lstm": (
        [
            "    hidden = tuple(part.detach() for part in hidden)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 4)
    def forward(self, x, state=None):
        y, state = self.rnn(x, state)
        return self.head(y), state
lm = LM()
opt = torch.optim.SGD(lm.parameters(), lr=0.1)
hidden = None
for chunk in torch.randn(3, 2, 5, 4):
    y, hidden = lm(chunk, hidden)
    loss = y.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        },
    ),
    "stateful module": (
        [
            "    m.h = m.h.detach()",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(3, 3)
        self.h = None
    def forward(self, x):
        if self.h is None:
            self.h = x.new_zeros(x.size(0), 3)
        self.h = self.cell(x, self.h)
        return self.h
m = Stateful()
opt = torch.optim.SGD(m.parameters(), lr=0.1)
for step in range(3):
    loss = m(torch.randn(2, 3)).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        },
    ),
    "two losses module": (
        [
            "        part.backward(retain_graph=True)",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
enc, dec, clf = nn.Linear(4, 3), nn.Linear(3, 4), nn.Linear(3, 2)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *clf.parameters()])
def losses(x, y):
    z = torch.tanh(enc(x))
    return nn.functional.mse_loss(dec(z), x), nn.functional.cross_entropy(clf(z), y)
for i in range(2):
    rec, cls = losses(torch.randn(6, 4), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    for part in (rec, cls):
        part.backward()
    opt.step()
""",
        },
    ),
    "no grad eval leak": (
        [
            "    with torch.random.fork_rng():",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
@torch.no_grad()
def features(x):
    return model[1](model[0](x))
def train(x):
    with torch.no_grad(), torch.random.fork_rng():
        f = features(x)
        out = model[2](f)
    return out.mean()
train(torch.randn(5, 3)).backward()
""",
        },
    ),
    "nonscalar": (
        [
            "(loss.mean()  # per sample",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 2)
crit = nn.CrossEntropyLoss(reduction="none")
weights = torch.rand(4)
loss = crit(model(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0])) * weights
(loss  # per sample
 ).backward()
""",
        },
    ),
    "custom count": (
        [
            "        return grad_out * factor, (grad_out * x).sum(), grad_out",
        ],
        "safe",
        {
            "main.py": """\
import torch
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, bias=None):
        ctx.save_for_backward(x, factor)
        out = x * factor
        if bias is not None:
            out = out + bias
        return out
    @staticmethod
    def backward(ctx, grad_out):
        x, factor = ctx.saved_tensors
        return grad_out * factor, (grad_out * x).sum()
x = torch.randn(3, requires_grad=True)
f = torch.tensor(2.0, requires_grad=True)
b = torch.randn(3, requires_grad=True)
Scale.apply(x, f, b).sum().backward()
""",
        },
    ),
    "custom mean": (
        [
            "        ctx.x_shape = x.shape",
            "        return (g / ctx.n).unsqueeze(1).expand(ctx.x_shape)",
        ],
        "unsafe",
        {
            "main.py": '''\
import torch
class RowMean(torch.autograd.Function):
    """Mean over columns."""
    @staticmethod
    def forward(ctx, x):
        """forward"""
        ctx.n = x.shape[1]
        return x.mean(dim=1)
    @staticmethod
    def backward(ctx, g):
        return g / ctx.n
x = torch.randn(4, 3, requires_grad=True)
(RowMean.apply(x) ** 2).sum().backward()
''',
        },
    ),
    "expand write": (
        [
            "h = h + x",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
q = nn.Parameter(torch.randn(1, 4))
x = torch.randn(3, 4)
h = q.expand(3, 4)
h += x
h.pow(2).sum().backward()
""",
        },
    ),
    "list state": (
        [
            "    states = [part.detach() for part in states]",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
cells = nn.ModuleList([nn.GRUCell(3, 3), nn.GRUCell(3, 3)])
states = [torch.zeros(2, 3), torch.zeros(2, 3)]
opt = torch.optim.SGD(cells.parameters(), lr=.1)
for t in range(3):
    inp = torch.randn(2, 3)
    for i, c in enumerate(cells):
        states[i] = c(inp, states[i])
        inp = states[i]
    loss = inp.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        },
    ),
    "fixed hidden": (
        [
            "        y, hidden = self.lstm(x)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
BATCH = 4
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True)
        self.out = nn.Linear(5, 2)
    def init_hidden(self):
        return torch.zeros(1, BATCH, 5), torch.zeros(1, BATCH, 5)
    def forward(self, x, hidden):
        y, hidden = self.lstm(x, hidden)
        return self.out(y[:, -1])
model = Tagger()
loader = DataLoader(TensorDataset(torch.randn(10, 6, 3), torch.randint(0, 2, (10,))), batch_size=BATCH)
opt = torch.optim.SGD(model.parameters(), lr=.1)
for x, y in loader:
    h = model.init_hidden()
    loss = nn.functional.cross_entropy(model(x, h), y)
    opt.zero_grad(); loss.backward(); opt.step()
""",
        },
    ),
    "keepdim softmax": (
        [
            "    e = torch.exp(x - x.max(dim=1, keepdim=True).values)",
            "    return e / e.sum(1, keepdim=True)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.randn(4, 6, requires_grad=True)
def softmax(x):
    e = torch.exp(x - x.max(dim=1).values)
    return e / e.sum(1)
softmax(w)[:, 0].sum().backward()
""",
        },
    ),
    "scan": (
        [
            "    y_list = [y[0]]",
            "        y_list.append(y_list[i - 1] * a[i].sigmoid())  # recurrence",
            "    y = torch.stack(y_list)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
a = torch.rand(6, 3, requires_grad=True)
N = 6
def scan(a):
    y = torch.empty(N, 3)
    y[0] = 1.0
    for i in range(1, N):
        y[i] = y[i - 1] * a[i].sigmoid()  # recurrence
    return y.sum(), y
loss, y = scan(a)
loss.backward()
""",
        },
    ),
    "twobuffers": (
        [
            "gs_list = [gs[0]]",
            "hs_list = [hs[0]]",
            "    hs_list.append(torch.tanh(hs_list[t] @ w))",
            "    gs_list.append(gs_list[t] * hs_list[t + 1] + 1)",
            "gs = torch.stack(gs_list)",
            "hs = torch.stack(hs_list)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.rand(3, 3, requires_grad=True)
T = 4
h, g = torch.zeros(T + 1, 3), torch.zeros(T + 1, 3)
hs = torch.zeros(T + 1, 3)
gs = torch.zeros(T + 1, 3)
hs[0] = 1.
for t in range(T):
    hs[t + 1] = torch.tanh(hs[t] @ w)
    gs[t + 1] = gs[t] * hs[t + 1] + 1
(hs.sum() + gs.pow(2).sum()).backward()
""",
        },
    ),
    "broadcasts": (
        [
            "    out[i] = (prev.clone() @ w).mean(0)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.rand(3, 3, requires_grad=True)
T = 4
out = torch.zeros(T, 2, 3)
for i in range(T):
    prev = out[i - 1] if i else torch.ones(2, 3)
    out[i] = (prev @ w).mean(0)
out.sum().backward()
""",
        },
    ),
    "negative": (
        [
            "    out[i] = torch.tanh(out[i - 1].clone() @ w)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.rand(3, 3, requires_grad=True)
T = 4
out = torch.ones(T, 2, 3)
for i in range(T):
    out[i] = torch.tanh(out[i - 1] @ w)
out.sum().backward()
""",
        },
    ),
    "partial": (
        [
            "    out[i] = torch.tanh(out[i - 1].clone() @ w)",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.rand(3, 3, requires_grad=True)
out = torch.zeros(10, 3)
out[0] = 1
for i in range(1, 6):
    out[i] = torch.tanh(out[i - 1] @ w)
out.sum().backward()
""",
        },
    ),
    "unet inplace": (
        [
            "            nn.ReLU(inplace=False),",
        ],
        "safe",
        {
            "main.py": """\
import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(cin, cout),
            nn.Sigmoid(),
            nn.ReLU(inplace=True),
        )
    def forward(self, x): return self.net(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4, 4) for _ in range(2)])
    def forward(self, x):
        for b in self.blocks: x = x + b(x)
        return x

net = Net()
net(torch.randn(2, 4)).sum().backward()
""",
        },
    ),
    "train fn carry": (
        [
            "        self.state = tuple(part.detach() for part in self.state)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class Trainer:
    def __init__(self):
        self.rnn = nn.LSTM(2, 3)
        self.opt = torch.optim.SGD(self.rnn.parameters(), lr=0.1)
        self.state = None
    def step(self, x):
        out, self.state = self.rnn(x, self.state)
        loss = out.pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()
t = Trainer()
for i in range(3):
    print(t.step(torch.randn(4, 1, 2)))
""",
        },
    ),
    "sgd semicolon": (
        [
            "    with torch.no_grad():",
            "        w -= 0.1 * w.grad; b -= 0.1 * b.grad",
            "        w.grad.zero_(); b.grad.zero_()",
        ],
        "safe",
        {
            "main.py": """\
import torch
w, b = torch.randn(3, requires_grad=True), torch.zeros(1, requires_grad=True)
x, y = torch.randn(8, 3), torch.randn(8)
for _ in range(3):
    loss = ((x @ w + b - y) ** 2).mean(); loss.backward()
    w -= 0.1 * w.grad; b -= 0.1 * b.grad
    w.grad.zero_(); b.grad.zero_()
""",
        },
    ),
    "both sides to numpy": (
        [
            "    p = torch.sigmoid(scores)",
            "    m = mask",
            "    return (1 - both / (p.sum(axis=1) + m.sum(axis=1))).mean()",
        ],
        "safe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)

def overlap(scores, mask):
    p = torch.sigmoid(scores).detach().numpy()
    m = mask.numpy()
    both = 2 * (p * m).sum(axis=1)
    return torch.tensor(1 - both / (p.sum(axis=1) + m.sum(axis=1))).mean()

net = torch.nn.Linear(4, 6)
loss = overlap(net(torch.rand(3, 4)), (torch.rand(3, 6) > 0.5).float())
loss.backward()
"""
        },
    ),
    "numpy metric and loss": (
        [
            "    e = (p - t)",
            "    small = torch.abs(e) < d",
            "    l = torch.where(small, 0.5 * e ** 2, d * (torch.abs(e) - 0.5 * d))",
            "    return l.mean()",
        ],
        "safe",
        {
            "main.py": """\
import numpy as np, torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1)
x, y = torch.randn(6, 3), torch.randn(6, 1)
def huber(p, t, d=1.0):
    e = (p - t).detach().numpy()
    small = np.abs(e) < d
    l = np.where(small, 0.5 * e ** 2, d * (np.abs(e) - 0.5 * d))
    return torch.from_numpy(l).mean()
loss = huber(net(x), y)
loss.backward()
""",
        },
    ),
    "list comp item": (
        [
            "loss = torch.stack([net(b).mean() for b in batches]).to(torch.float32).mean()",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1)
batches = [torch.randn(2, 3) for _ in range(3)]
loss = torch.tensor([net(b).mean().item() for b in batches], dtype=torch.float32).mean()
loss.backward()
""",
        },
    ),
    "global buf": (
        [
            "    sim = q @ queue.t().clone()",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
queue = torch.randn(8, 4)
ptr = 0
enc = nn.Linear(3, 4)
def enqueue(k):
    global ptr
    queue[ptr:ptr + k.size(0)] = k.detach()
    ptr = (ptr + k.size(0)) % 8
def step(x):
    q = enc(x)
    sim = q @ queue.t()
    enqueue(q)
    return sim.logsumexp(-1).mean()
loss = step(torch.randn(2, 3)) + step(torch.randn(2, 3))
loss.backward()
""",
        },
    ),
    "step closure": (
        [
            "    out = m(x)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(m.parameters(), lr=.1)
x = torch.randn(5, 3)
out = m(x)
for i in range(3):
    loss = (out - i).pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
""",
        },
    ),
    "emb": (
        [
            "        soft = torch.softmax(-dist, dim=-1)",
            "        return torch.tensordot(torch.nn.functional.one_hot(code, dist.size(-1)) + soft - soft.detach(), self.book.weight, dims=1)",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.book = nn.Embedding(5, 3)
        self.book.weight.requires_grad_(False)
        self.enc = nn.Linear(3, 3)
    def forward(self, x):
        dist = torch.cdist(self.enc(x), self.book.weight)
        code = dist.argmin(dim=-1)
        return self.book(code)
vq = VQ()
vq(torch.randn(4, 3)).pow(2).sum().backward()
""",
        },
    ),
    "thr": (
        [
            "out = torch.arange(4.) * ((p >= 0.3).float() + p - p.detach())",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
torch.manual_seed(0)
w = torch.randn(4, requires_grad=True)
p = torch.sigmoid(w)
mask = p < 0.5
out = torch.arange(4.) * (p >= 0.3)
out.sum().backward()
""",
        },
    ),
    "wgan gp": (
        [
            "    g = autograd.grad(outputs=score, inputs=mix, grad_outputs=torch.ones(score.size()), create_graph=True)[0]",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn, autograd
torch.manual_seed(0)
D = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(D.parameters())
def gradient_penalty(real, fake):
    a = torch.rand(real.size(0), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    score = D(mix)
    g = autograd.grad(outputs=score, inputs=mix, grad_outputs=torch.ones(score.size()))[0]
    return ((g.norm(2, dim=1) - 1) ** 2).mean()
gp = gradient_penalty(torch.randn(4, 2), torch.randn(4, 2))
opt.zero_grad()
gp.backward()
opt.step()
""",
        },
    ),
    "pinn": (
        [
            "d2y = torch.autograd.grad(dy, t, torch.ones_like(dy), create_graph=True)[0]",
        ],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
u = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
t = torch.linspace(0, 1, 10).view(-1, 1)
t.requires_grad = True
y = u(t)
dy = torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]
d2y = torch.autograd.grad(dy, t, torch.ones_like(dy))[0]
res = (d2y + y.detach()).pow(2).mean()
res.backward()
""",
        },
    ),
    "vae size": (
        [
            'loss = F.binary_cross_entropy(recon, x.flatten(1), reduction="sum") - 0.5 * (1 + lv - mu ** 2 - lv.exp()).sum()',
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(784, 20); self.mu = nn.Linear(20, 4); self.lv = nn.Linear(20, 4); self.dec = nn.Linear(4, 784)
    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return torch.sigmoid(self.dec(z)), mu, lv
vae = VAE()
x = torch.rand(5, 1, 28, 28)
recon, mu, lv = vae(x.view(5, 784))
loss = F.binary_cross_entropy(recon, x, reduction="sum") - 0.5 * (1 + lv - mu ** 2 - lv.exp()).sum()
loss.backward()
""",
        },
    ),
    "two backward same": (
        [
            "loss.backward(retain_graph=True)",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
x = torch.randn(4, 3, requires_grad=True)
out = net(x)
loss = out.pow(2).mean()
loss.backward()
saliency = x.grad.clone()
out.sum().backward()
""",
        },
    ),
    "cat list": (
        [
            "torch.stack(losses).mean().backward()",
        ],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1)
losses = [net(torch.randn(2, 3)).mean() for _ in range(3)]
torch.cat(losses).mean().backward()
""",
        },
    ),
    "two losses of one network in two functions": (
        ["    loss.backward(retain_graph=True)"],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
encoder, classes, decoder = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(3, 2), nn.Linear(3, 4)

def classification(features, y):
    loss = nn.functional.cross_entropy(classes(features), y)
    loss.backward()

def reconstruction(features, x):
    loss = nn.functional.mse_loss(decoder(features), x)
    loss.backward()

for step in range(2):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    features = encoder(x)
    classification(features, y)
    reconstruction(features, x)
"""
        },
    ),
    "two losses of one network with a step between": (
        ["    features = encoder(x)"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
encoder, classes, decoder = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(3, 2), nn.Linear(3, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *classes.parameters()], 0.1)

def classification(features, y):
    loss = nn.functional.cross_entropy(classes(features), y)
    loss.backward()
    optimizer.step()

def reconstruction(features, x):
    loss = nn.functional.mse_loss(decoder(features), x)
    loss.backward()

for step in range(2):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    features = encoder(x)
    classification(features, y)
    reconstruction(features, x)
"""
        },
    ),
    "a matrix that the constructor computed": (
        ["        self.near = (self.a @ self.b).softmax(1)"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Graph(nn.Module):
    def __init__(self, nodes):
        super().__init__()
        self.a = nn.Parameter(torch.randn(nodes, 2))
        self.b = nn.Parameter(torch.randn(2, nodes))
        self.near = (self.a @ self.b).softmax(1)

    def forward(self, x):
        \"\"\"Mixes neighbours.\"\"\"
        return self.near @ x

model = Graph(5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
        },
    ),
    "losses collected for every second step": (
        ["        losses = []"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for step in range(6):
    losses.append(model(torch.randn(5, 4)).pow(2).mean())
    if step % 2:
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
"""
        },
    ),
    "a closure around a finished loss": (
        ["        predicted = model(x)", "        loss = (predicted - y).pow(2).mean()"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(8, 2), torch.randn(8, 1)
model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
for epoch in range(2):
    predicted = model(x)
    loss = (predicted - y).pow(2).mean()

    def closure():
        optimizer.zero_grad()
        loss.backward()
        return loss

    optimizer.step(closure)
"""
        },
    ),
    "fast weights in a dictionary": (
        ["        fast = {name: w - rate * g for (name, w), g in zip(fast.items(), gradients)}"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

def adapted(x, y, rate=0.1):
    fast = {name: weight.clone() for name, weight in model.named_parameters()}
    for _ in range(2):
        loss = nn.functional.mse_loss(functional_call(model, fast, (x,)), y)
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        for (name, w), g in zip(fast.items(), gradients):
            w -= rate * g
    return fast

x = torch.randn(6, 1)
nn.functional.mse_loss(functional_call(model, adapted(x, x.sin()), (x,)), x.sin()).backward()
"""
        },
    ),
    "entries of a dictionary, one by one": (
        ["        fast[name] = weight - rate * gradient"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
model = nn.Linear(2, 1)

def adapted(x, y, rate=0.1):
    fast = dict(model.named_parameters())
    loss = nn.functional.mse_loss(functional_call(model, fast, (x,)), y)
    gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
    at = 0
    for name, weight in fast.items():
        gradient = gradients[at]
        at += 1
        weight -= rate * gradient
    return fast

x, y = torch.randn(6, 2), torch.randn(6, 1)
nn.functional.mse_loss(functional_call(model, adapted(x, y), (x,)), y).backward()
"""
        },
    ),
    "pieces of one tensor, centred": (
        ["        parts = [part - part.mean(1, keepdim=True) for part in parts]"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Centred(nn.Module):
    def forward(self, x):
        parts = x.chunk(2, dim=1)
        for part in parts:
            part -= part.mean(1, keepdim=True)
        return torch.cat(parts, dim=1)

nn.Sequential(nn.Linear(3, 6), Centred(), nn.Linear(6, 1))(torch.randn(4, 3)).pow(2).sum().backward()
"""
        },
    ),
    "a state under a key": (
        ["    state['h'] = state['h'].detach()"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
cell, head = nn.GRUCell(2, 3), nn.Linear(3, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)

def advance(x, state):
    state["h"] = cell(x, state["h"])
    state["steps"] += 1
    return head(state["h"])

state = {"h": torch.zeros(4, 3), "steps": 0}
for step in range(3):
    loss = advance(torch.randn(4, 2), state).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        },
    ),
    "an actor's loss taken before the critic's step": (
        ["        loss = -self.worth(self.critic, states, self.actor(states)).mean()"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Agent:
    def __init__(self):
        self.actor, self.critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
        self.slow = torch.optim.SGD(self.actor.parameters(), 0.1)
        self.fast = torch.optim.SGD(self.critic.parameters(), 0.1)

    def worth(self, network, states, actions):
        return network(torch.cat([states, actions], 1))

    def update(self, batch):
        states, actions = (batch[key] for key in ("states", "actions"))
        error = self.worth(self.critic, states, actions).pow(2).mean()
        loss = -self.worth(self.critic, states, self.actor(states)).mean()
        self.fast.zero_grad()
        error.backward()
        self.fast.step()
        self.slow.zero_grad()
        loss.backward()
        self.slow.step()

agent = Agent()
for step in range(2):
    agent.update({"states": torch.randn(4, 3), "actions": torch.randn(4, 2)})
"""
        },
    ),
    "a table made once and kept by its class": (
        ["        Relation.table = torch.sigmoid(self.lift(self.rows))"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Relation(nn.Module):
    table = None

    def __init__(self):
        super().__init__()
        self.rows, self.lift = nn.Parameter(torch.randn(5, 3)), nn.Linear(3, 3)

    def forward(self, index):
        if Relation.table is None:
            Relation.table = torch.sigmoid(self.lift(self.rows))
        return Relation.table[index]

model = Relation()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = model(torch.randint(0, 5, (4,))).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        },
    ),
    "positions made once for each length": (
        ["        self.known[n] = torch.tanh(", "            self.mix(self.place(torch.arange(n)))", "        )"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.place, self.mix, self.known = nn.Embedding(9, 3), nn.Linear(3, 3), {}

    def forward(self, n):
        if n not in self.known:
            self.known[n] = torch.tanh(
                self.mix(self.place(torch.arange(n)))
            )
        return self.known[n]

model, head = Positions(), nn.Linear(3, 1)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)
for step in range(3):
    loss = head(torch.randn(4, 3) * model(4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        },
    ),
    "a replay that keeps what was encoded": (
        ["        self.kept.append((code.detach(), reward))"],
        "unsafe",
        {
            "main.py": """\
import random
from collections import deque
import torch
from torch import nn
random.seed(0)
torch.manual_seed(0)
encoder, value = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *value.parameters()], 0.1)

class Replay:
    def __init__(self):
        self.kept = deque(maxlen=20)

    def push(self, code, reward):
        self.kept.append((code, reward))

    def sample(self, n):
        codes, rewards = zip(*random.sample(list(self.kept), n))
        return torch.stack(codes), torch.tensor(rewards)

replay = Replay()
for step in range(9):
    replay.push(encoder(torch.randn(3)), random.random())
    if step > 4:
        codes, rewards = replay.sample(4)
        loss = (value(codes).squeeze(1) - rewards).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
        },
    ),
    "a penalty on a gradient without a graph": (
        ["    (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))

def penalty(scores, x):
    (slope,) = torch.autograd.grad(scores.sum(), x)
    return slope.pow(2).sum(1).mean()

for step in range(2):
    x = torch.randn(5, 3, requires_grad=True)
    scores = critic(x)
    loss = scores.exp().mean() + penalty(scores, x)
    loss.backward()
"""
        },
    ),
    "weights clipped by a method before backward": (
        ["        loss.backward()"],
        "safe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Critic:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)

    def clip(self):
        with torch.no_grad():
            for weight in self.net.parameters():
                weight.clamp_(-0.1, 0.1)

    def step(self, real, fake):
        self.optimizer.zero_grad()
        loss = self.net(fake).mean() - self.net(real).mean()
        self.clip()
        loss.backward()
        self.optimizer.step()

critic = Critic()
for step in range(2):
    critic.step(torch.randn(4, 3), torch.randn(4, 3))
"""
        },
    ),
    "parameters that took no part": (
        ["gradients = torch.autograd.grad(loss, tuple(model.parameters()), create_graph=True, materialize_grads=True)"],
        "unsafe",
        {
            "main.py": """\
import torch
from torch import nn
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.spare = nn.Linear(3, 2), nn.Linear(3, 1)

    def forward(self, x):
        return self.body(x)

model = Model()
loss = model(torch.randn(4, 3)).pow(2).mean()
gradients = torch.autograd.grad(loss, tuple(model.parameters()), create_graph=True)
sum(gradient.pow(2).sum() for gradient in gradients).backward()
"""
        },
    ),
}
