"""An in-place write into a tensor that requires grad, with indices that are innocent."""

import torch

x = torch.zeros(5, requires_grad=True)
indices = torch.tensor([1, 3])
x.index_put_((indices,), torch.tensor([1.0, 2.0]))
x.sum().backward()
