import math
import torch
from torch import nn, optim
import torch.nn.functional as F
from torch.autograd import Function, Variable


# ---- in-place hazards
def hz1(a):
    w = torch.randn(3, requires_grad=True)
    h = w * 2
    s = h.sigmoid()
    s *= 3  # culprit: inplace-over-saved
    s.sum().backward()


def hz2():
    p = torch.ones(4, requires_grad=True)
    q = p.clone()
    r = q.pow(3)
    q[0] = 7.0  # culprit: inplace-over-saved
    r.sum().backward()


def hz3():
    theta = nn.Parameter(torch.zeros(5))
    theta += 1  # culprit: leaf-written-in-place
    return theta


def hz4():
    w = torch.rand(2, 2, requires_grad=True)
    w.fill_(0.5)  # culprit: leaf-written-in-place
    return w


class Hz5(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.tanh(self.lin(x))
        return self.act(h)  # culprit: inplace-module-over-saved


def hz6(x):
    y = torch.exp(nn.Linear(3, 3)(x))
    F.relu(y, inplace=True)  # culprit: inplace-module-over-saved
    return y.sum().backward()


def hz7():
    e = torch.zeros(3, 1).expand(3, 5)
    e[0, 0] = 1  # culprit: write-into-expanded
    return e


def hz8():
    a = torch.arange(4.0).expand(2, 4)
    a += 1  # culprit: write-into-expanded
    return a


class Hz9(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        att = F.softmax(self.fc(x), dim=-1)
        att.data[:, 0] = 0.0  # culprit: data-write-over-saved
        return att


def hz10(x):
    net = nn.Linear(3, 3)
    out = net(x).tanh()
    out.add_(1.0)  # culprit: inplace-over-saved
    out.mean().backward()


def hz11(x):
    l = nn.Linear(3, 3)
    z = l(x)
    y = z ** 2
    z += 1  # culprit: inplace-over-saved
    return y.sum().backward()


# ---- lost gradients
def lg1(model, x, y):
    pred = model(x)
    loss = torch.tensor(F.mse_loss(pred, y), requires_grad=True)  # culprit: loss-leaves-graph
    loss.backward()


def lg2(model, x, y):
    loss = F.cross_entropy(model(x), y).item()  # culprit: loss-leaves-graph
    loss = torch.tensor(loss, requires_grad=True)
    loss.backward()


def lg3(net: nn.Module, x, y):
    logits = net(x)
    pred = logits.argmax(dim=1)  # culprit: nondifferentiable-loss
    loss = (pred.float() - y).pow(2).mean()
    loss.backward()


def lg4(net: nn.Module, x, y):
    out = net(x)
    loss = ((out > 0.5).float() - y).abs().mean()  # culprit: nondifferentiable-loss
    loss.backward()


def lg5(net: nn.Module, x, y, crit):
    loss = crit(net(x), y)
    loss.requires_grad_()  # culprit: requires-grad-on-loss
    loss.backward()


def lg6(net, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.no_grad():  # culprit: no-grad-around-training
            loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()


class Lg7(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.blocks = [nn.Linear(n, n) for _ in range(3)]  # culprit: module-in-plain-list

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


class Lg8(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.scale = self.scale * 0.9  # culprit: parameter-reassigned
        return x * self.scale


def lg9(net, loader, opt, crit):
    running = 0
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        opt.step()
        running += loss  # culprit: loss-accumulated-with-graph
    return running


def lg10(net, loader, opt, crit):
    hist = []
    for x, y in loader:
        opt.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        opt.step()
        hist.append(loss)  # culprit: loss-logged-with-graph
    return hist


def lg11(x):
    return Variable(x, requires_grad=True)  # culprit: legacy-variable


def lg12(net: nn.Module, x, y):
    pred = net(x).detach().numpy()  # culprit: loss-leaves-graph
    loss = torch.from_numpy((pred - y) ** 2).mean()
    loss.backward()


class Lg13(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = {"a": nn.Linear(2, 2), "b": nn.Linear(2, 3)}  # culprit: module-in-plain-list


# ---- custom functions
class Cf1(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.x = x  # culprit: ctx-holds-tensor
        return x * w

    @staticmethod
    def backward(ctx, g):
        return g * 2, g


class Cf2(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g  # culprit: backward-return-count


class Cf3(Function):
    def forward(ctx, x):  # culprit: function-not-static
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


class Cf4(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_output[x < 0] = 0  # culprit: inplace-on-grad-output
        return grad_output


class Cf5(Function):
    @staticmethod
    def forward(ctx, i, scale):
        ctx.scale = scale
        return i * scale

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(ctx.scale), None  # culprit: inplace-on-grad-output
