import torch
import torch.nn.functional as F


def never_cleared(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()  # culprit: missing-zero-grad
        optimizer.step()


def cleared_too_early(model, loader, optimizer):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.zero_grad()  # culprit: backward-order
        optimizer.step()


def step_first(model, loader, opt):
    for x, y in loader:
        opt.zero_grad()  # culprit: backward-order
        loss = F.mse_loss(model(x), y)
        opt.step()
        loss.backward()


def two_losses(model, x, y, optimizer):
    out = model(x)
    first = F.mse_loss(out, y)
    second = out.abs().mean()
    optimizer.zero_grad()
    first.backward(retain_graph=True)
    optimizer.step()  # culprit: step-between-backwards
    second.backward()


def evaluate(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()  # culprit: eval-without-eval-mode
    return right


net = torch.nn.Linear(3, 1)
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    error = net(torch.randn(2, 3)).pow(2).mean()
    error.backward()  # culprit: missing-zero-grad
    opt.step()
