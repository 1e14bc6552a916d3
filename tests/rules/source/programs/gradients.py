import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Variable

w = torch.ones(3, requires_grad=True)
logits = torch.randn(4, 3, requires_grad=True)
target = torch.tensor([0, 1, 2, 0])


def item_in_the_loss():
    loss = torch.tensor((w * 2).sum().item())  # culprit: loss-leaves-graph
    loss.backward()


def a_number():
    loss = (w * 2).sum().item()  # culprit: loss-leaves-graph
    loss.backward()


def one_term_lost():
    first = (w * 2).sum()
    second = (w**2).sum()
    loss = first + second.item()  # culprit: loss-leaves-graph
    loss.backward()


def detached():
    loss = ((w * 2).detach() ** 2).sum()  # culprit: loss-leaves-graph
    loss.backward()


def accuracy():
    error = (logits.argmax(dim=1) != target).float().mean()  # culprit: nondifferentiable-loss
    error.backward()


def rounded(model, x, y):
    pred = model(x).argmax(dim=1)  # culprit: nondifferentiable-loss
    loss = F.mse_loss(pred.float(), y)
    loss.backward()


def detached_output(model, x, y):
    criterion = nn.MSELoss()
    out = model(x).detach()  # culprit: loss-leaves-graph
    loss = criterion(out, y)
    loss.backward()


def scaled_term():
    first = (w * 2).sum()
    second = (w**2).sum()
    loss = first + 0.5 * second.item()  # culprit: loss-leaves-graph
    loss.backward()


def comparison():
    error = (logits > 0).float().mean()  # culprit: nondifferentiable-loss
    error.backward()


def forced():
    with torch.no_grad():
        loss = (w * 2).sum()
    loss.requires_grad_()  # culprit: requires-grad-on-loss
    loss.backward()


def forced_by_flag(model, x, y):
    loss = F.mse_loss(model(x), y)
    loss.requires_grad = True  # culprit: requires-grad-on-loss
    loss.backward()


def forced_for_the_caller(scores, labels):
    right = (scores.argmax(dim=1) == labels).float().mean()
    loss = 1 - right
    loss.requires_grad_()  # culprit: requires-grad-on-loss
    return loss


def wrapped():
    loss = Variable((w * 2).sum(), requires_grad=True)  # culprit: legacy-variable
    return loss


def copied():
    return torch.tensor(w * 2)  # culprit: tensor-of-tensor


def recorded_nothing():
    with torch.no_grad():  # culprit: no-grad-around-training
        loss = (w * 2).sum()
        loss.backward()


def recorded_nothing_before():
    layer = nn.Linear(3, 1)
    with torch.no_grad():  # culprit: no-grad-around-training
        out = layer(torch.randn(5, 3))
    out.mean().backward()


class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    @torch.no_grad()  # culprit: no-grad-around-training
    def forward(self, x):
        return self.fc(x)


Silent()(torch.randn(2, 3)).sum().backward()


def through_numpy():
    values = (w * 2).detach().numpy()  # culprit: loss-leaves-graph
    loss = torch.from_numpy(values**2).mean()
    loss.backward()


def through_data():
    loss = ((w * 2).data - 1).abs().mean()  # culprit: loss-leaves-graph
    loss.backward()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(3)]  # culprit: module-in-plain-list
        self.heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)}  # culprit: module-in-plain-list
        self.blocks = []
        for _ in range(2):
            self.blocks.append(nn.Conv2d(3, 3, 1))  # culprit: module-in-plain-list
        self.scales = [nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))]  # culprit: module-in-plain-list
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.weight = self.weight * 0.9  # culprit: parameter-reassigned
        return x * self.weight


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.scale = nn.Parameter(self.scale.clamp(0, 1))  # culprit: parameter-reassigned
        return x * self.scale


def descend(model, lr):
    for p in model.parameters():
        p = p - lr * p.grad  # culprit: parameter-reassigned


def train(model, loader, optimizer):
    total = 0.0
    history = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss  # culprit: loss-accumulated-with-graph
        history.append(loss)  # culprit: loss-logged-with-graph
    return total, history


def train_sum(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total = total + loss  # culprit: loss-accumulated-with-graph
    return total


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.log_gain = torch.ones(1, requires_grad=True)  # culprit: unregistered-parameter
        self.start = torch.zeros(width).requires_grad_()  # culprit: unregistered-parameter

    def forward(self, x):
        return self.linear(x) * self.log_gain.exp() + torch.sigmoid(self.start)
