import torch


def scale_columns(table):
    left = table[:, 0]
    squared = left * left  # culprit: save
    table[:, 1] = 0.0  # culprit: mutate
    return squared.sum() + table.sum()


base = torch.randn(5, 2, requires_grad=True)
scale_columns(base.clone()).backward()
# says: does not overlap
