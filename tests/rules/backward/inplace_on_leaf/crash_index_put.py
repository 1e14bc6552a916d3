import torch

x = torch.zeros(5, requires_grad=True)  # culprit: create
indices = torch.tensor([1, 3])
x.index_put_((indices,), torch.tensor([1.0, 2.0]))  # culprit: mutate
x.sum().backward()
# says: `x` [5]
