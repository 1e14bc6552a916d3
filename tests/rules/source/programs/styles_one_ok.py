import math
import torch
from torch import nn, optim
import torch.nn.functional as F
from torch.autograd import Function


def o1():
    w = torch.randn(3, requires_grad=True)
    h = w.exp()
    g = h + 1
    g *= 3  # add keeps nothing
    g.sum().backward()


def o2(x):
    net = nn.Linear(3, 3)
    h = net(x)
    h += 1  # linear does not keep its result
    return h.relu().sum().backward()


def o3(x):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
    return net(x).sum().backward()


def o4():
    p = nn.Parameter(torch.zeros(3))
    with torch.no_grad():
        p += 1
        p[0] = 4
    return p


def o5():
    w = torch.zeros(3)
    w[0] = 1.0
    w.requires_grad_()
    return w


def o6(x: torch.Tensor):
    e = x.expand(3, 5).clone()
    e[0, 0] = 1
    return e


def o7(x):
    y = torch.softmax(nn.Linear(3, 3)(x), dim=-1)
    z = y * 2
    z[0] = 0  # mul by a number keeps nothing
    return z.sum().backward()


@torch.no_grad()
def o8(model, decay, ema):
    for p, q in zip(model.parameters(), ema.parameters()):
        q.mul_(decay).add_(p, alpha=1 - decay)


def o9(model, x, y, opt):
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def o10(model, x, y):
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    acc = (out.argmax(1) == y).float().mean()
    return acc.item()


def o11(net, x, y):
    out = net(x)
    mask = (out > 0).float()
    loss = (mask * (out - y) ** 2).mean()
    loss.backward()


def o12(net, x):
    out = net(x)
    idx = out.argmax(dim=1)
    loss = -out.gather(1, idx[:, None]).mean()
    loss.backward()


def o13(net, x, y, crit):
    logits = net(x)
    weight = (y == 1).float() * 2 + 1
    loss = (crit(logits, y) * weight).mean()
    loss.backward()


class O14(nn.Module):
    def __init__(self, n):
        super().__init__()
        layers = [nn.Linear(n, n) for _ in range(3)]
        self.net = nn.Sequential(*layers)
        self.names = ["a", "b"]


class O15(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps = self.steps + 1
        for b in self.blocks:
            x = b(x)
        return x


class O16(Function):
    @staticmethod
    def forward(ctx, x, scale: float):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        g[g > 1] = 1
        return g * ctx.scale, None


class O17(Function):
    @staticmethod
    def forward(ctx, x, *ws):
        ctx.n = len(ws)
        return x + sum(ws)

    @staticmethod
    def backward(ctx, g):
        return (g, *([g] * ctx.n))


def o18(x):
    t = torch.tensor([1.0, 2.0])
    u = torch.tensor(float(x))
    return t + u


def o19(total, losses):
    total_loss = 0
    for l in losses:
        total_loss += l
    total_loss.backward()


def o20(model, loader, opt, crit, accum=4):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = crit(model(x), y) / accum
        loss.backward()
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()


def o21(model, loader, opt):
    for x, y in loader:
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        opt.step(closure)


def o22(model, loader, opt):
    for x, y in loader:
        for p in model.parameters():
            p.grad = None
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()


def evaluate(model, loader):
    model.eval()
    n = 0
    with torch.no_grad():
        for x, y in loader:
            n += (model(x).argmax(1) == y).sum().item()
    return n


@torch.inference_mode()
def validate(model, loader):
    model.eval()
    return [model(x) for x, _ in loader]


def o25(gen, dis, opt_g, opt_d, z, real):
    fake = gen(z)
    d_loss = dis(fake.detach()).mean() - dis(real).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = -dis(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()


def o26(scores, mask):
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return F.softmax(scores, dim=-1)


def o27(scores, mask):
    return F.softmax(scores + (1 - mask) * -1e9, dim=-1)


def o28(scores, mask):
    p = F.softmax(scores, dim=-1) * mask
    return p / p.sum(-1, keepdim=True)


def o29(logits, y):
    p = F.log_softmax(logits, dim=1)
    return F.nll_loss(p, y)


def o30(logits, y):
    probs = F.softmax(logits, dim=1)
    loss = F.cross_entropy(logits, y)
    return loss, probs


def o31(student, teacher, T):
    return F.kl_div(F.log_softmax(student / T, dim=1), F.softmax(teacher / T, dim=1), reduction="batchmean")


class O32(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.q = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.h, d // self.h).transpose(1, 2)
        y = q.transpose(1, 2).reshape(b, t, d)
        return y.view(b * t, d)


def o33(h, mask):
    h = h * mask.unsqueeze(-1)
    return h.sum(1) / mask.sum(1, keepdim=True)


def o34(x):
    return x.view(x.size(0), -1)


def o35():
    x = torch.randn(32, 3, 4)
    return x.view(32, -1)


def o36(x, scale_mask):
    return F.softmax(x * 0.5, dim=-1)


def o37(q, k, v):
    w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    return w @ v


def o38(model, x, y):
    loss = F.mse_loss(model(x), y)
    loss.retain_grad()
    loss.backward()


def o39(x):
    x = x.clone().requires_grad_()
    loss = (x ** 2).sum()
    loss.backward()
    return x.grad


def o40(model, loader, opt, writer):
    logs = []
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        logs.append(loss.detach())
        writer.add_scalar("loss", loss, i)
    return torch.stack(logs).mean()
