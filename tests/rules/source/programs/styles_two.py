import torch
import torch.nn as nn
import torch.nn.functional as F


# ---- sequence models
def sm1(scores):
    return F.softmax(scores)  # culprit: softmax-without-dim


class Sm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.sm = nn.Softmax()  # culprit: softmax-without-dim


def sm3(q, k, v):
    att = torch.matmul(q, k.transpose(-2, -1))
    w = torch.softmax(att, dim=1)
    return torch.matmul(w, v)


def sm4(q, k, v, mask):
    scores = q @ k.transpose(-1, -2)
    scores = scores * mask  # culprit: mask-before-softmax
    p = F.softmax(scores, dim=-1)
    return p @ v


def sm5(logits, y):
    p = torch.softmax(logits, dim=1)  # culprit: cross-entropy-on-softmax
    return F.cross_entropy(p, y)


class Sm6(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.soft = nn.Softmax(dim=1)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y):
        out = self.soft(self.fc(x))  # culprit: cross-entropy-on-softmax
        return self.loss(out, y)


def sm7():
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))
    crit = nn.CrossEntropyLoss()
    x, y = torch.randn(2, 4), torch.tensor([0, 1])
    return crit(net(x), y)  # culprit: cross-entropy-on-softmax


class Sm8(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc = nn.Linear(8 * 26 * 26, 10)

    def forward(self, x):
        h = F.relu(self.conv(x))
        h = h.view(64, -1)  # culprit: fixed-batch-in-view
        return self.fc(h)


def sm9(emb, ids, pad):
    mask = ids != pad
    h = emb(ids) * mask.unsqueeze(-1)
    return h.mean(dim=1)  # culprit: mean-over-padding


class Sm10(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q = self.q(x).view(b, self.heads, t, d // self.heads)  # culprit: view-for-transpose
        return q


def sm11(x):
    n, c, h, w = x.shape
    return x.view(n, h, w, c)  # culprit: view-for-transpose


def sm12(a, b, y):
    prob = (a @ b).sigmoid()  # culprit: cross-entropy-on-softmax
    return F.binary_cross_entropy_with_logits(prob, y)


def sm13(hidden, mask):
    hidden = hidden.masked_fill(~mask[..., None], 0.0)
    return torch.mean(hidden, dim=1)  # culprit: mean-over-padding


# ---- training loops
def tl1(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # culprit: missing-zero-grad
            optimizer.step()


def tl2(model, loader, opt, crit):
    for x, y in loader:
        loss = crit(model(x), y)
        loss.backward()
        opt.zero_grad()  # culprit: backward-order
        opt.step()


def tl3(model, loader, opt, crit):
    for x, y in loader:
        opt.zero_grad()  # culprit: backward-order
        loss = crit(model(x), y)
        opt.step()
        loss.backward()


def tl4(gen, dis, opt_g, opt_d, z, real):
    fake = gen(z)
    d_loss = dis(fake).mean() - dis(real).mean()
    g_loss = -dis(fake).mean()
    opt_d.zero_grad()
    d_loss.backward(retain_graph=True)
    opt_d.step()  # culprit: step-between-backwards
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()


def validate(model, loader, crit):
    total = 0.0
    for x, y in loader:
        out = model(x)  # culprit: eval-without-eval-mode
        total += crit(out, y).item()
    return total / len(loader)


def evaluate(net, test_loader):
    correct = 0
    for x, y in test_loader:
        pred = net(x).argmax(1)  # culprit: eval-without-eval-mode
        correct += (pred == y).sum().item()
    return correct


def tl7():
    model = nn.Linear(2, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(100):
        x = torch.randn(8, 2)
        loss = (model(x) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss)  # culprit: loss-logged-with-graph
    return losses


def tl8():
    model = nn.Linear(2, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        out = model(torch.randn(8, 2))
        loss = out.pow(2).mean()
        loss.backward()  # culprit: missing-zero-grad
        opt.step()


def tl9(model, data, optimizer):
    epoch_loss = 0.0
    for batch in data:
        optimizer.zero_grad()
        out = model(batch["x"])
        l = F.l1_loss(out, batch["y"])
        l.backward()
        optimizer.step()
        epoch_loss = epoch_loss + l  # culprit: loss-accumulated-with-graph
    print(epoch_loss)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, loader):
        for x, y in loader:
            loss = F.mse_loss(self.model(x), y)
            loss.backward()  # culprit: missing-zero-grad
            self.optimizer.step()


# ---- module level script
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
total_loss = 0
for i in range(10):
    xb = torch.randn(16, 10)
    yb = torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    loss = criterion(F.softmax(net(xb), dim=1), yb)  # culprit: cross-entropy-on-softmax
    loss.backward()
    optimizer.step()
    total_loss += loss  # culprit: loss-accumulated-with-graph
