import torch


def scale_columns(table):
    left, right = table[:, :1], torch.zeros(len(table), 1)
    return (left * left).sum() + torch.cat([left, right], dim=1).sum()


base = torch.randn(5, 2, requires_grad=True)
scale_columns(base).backward()
