import torch
import torch.nn.functional as F


def accumulate(model, loader, optimizer, k):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y) / k
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def whole_epoch(model, loader, optimizer, epochs):
    for _ in range(epochs):
        optimizer.zero_grad()
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
        optimizer.step()


def every_k(model, loader, optimizer, k):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        F.mse_loss(model(x), y).backward()
        if i % k == 0:
            optimizer.step()
            model.zero_grad()


def by_hand(model, loader, optimizer):
    optimizer.zero_grad()
    for x, y in loader:
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        for p in model.parameters():
            p.grad = None


def other(model, loader, optimizer):
    model.zero_grad()
    for x, y in loader:
        F.mse_loss(model(x), y).backward()
        step(optimizer)
        optimizer.step()


def filled(scores, mask):
    return scores.masked_fill(mask == 0, float("-inf")).softmax(-1)


def zero_after(scores, mask):
    w = F.softmax(scores.masked_fill(mask, -1e9), dim=-1)
    return w.masked_fill(mask, 0.0)


def rows_without_any(scores, mask):
    scores = scores.masked_fill(mask, float("-inf"))
    scores = scores.masked_fill(mask.all(-1, keepdim=True), 0.0)
    return F.softmax(scores, dim=-1)


def nan_free(scores):
    return F.softmax(scores.masked_fill(torch.isnan(scores), 0.0), dim=-1)


def renormalised(scores, mask):
    p = F.softmax(scores.masked_fill(mask, 0), dim=-1)
    p = p.masked_fill(mask, 0)
    return p / p.sum(-1, keepdim=True)


def values(v, mask):
    v = v.masked_fill(mask, 0)
    return v.mean(1)
