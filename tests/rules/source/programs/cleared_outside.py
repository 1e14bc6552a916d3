import torch
import torch.nn.functional as F


def per_epoch(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        optimizer.zero_grad()
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward()  # culprit: missing-zero-grad
            optimizer.step()


def once(model, loader, optimizer):
    optimizer.zero_grad()
    for x, y in loader:
        F.mse_loss(model(x), y).backward()  # culprit: missing-zero-grad
        optimizer.step()


def masked(q, k, mask):
    att = torch.matmul(q, k.transpose(-1, -2)) / q.size(-1) ** 0.5
    att = att.masked_fill(mask == 0, 0)  # culprit: mask-before-softmax
    return att.softmax(dim=-1)


def masked_inline(scores, pad_mask):
    return F.softmax(scores.masked_fill(pad_mask, 0.0), dim=-1)  # culprit: mask-before-softmax
