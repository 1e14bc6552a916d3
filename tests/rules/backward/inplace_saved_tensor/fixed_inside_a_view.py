import torch

torch.manual_seed(0)
q = torch.randn(2, 3, 4, requires_grad=True)
k = torch.randn(2, 3, 4, requires_grad=True)
att = torch.einsum("bqd,bkd->bqk", q, k)  # a view: what a write into it saves is hidden in a CopySlices node
att -= att.detach().amax(-1, keepdim=True)
att.exp_()
att = att / att.sum(-1, keepdim=True)
loss = att[..., 0].log().mean()
loss.backward()
