import torch

x = torch.randn(4, requires_grad=True)
h = x.tanh()
seen = []


def keep(g):
    seen.append(g)
    return g.norm().item()  # culprit: return-grad


h.register_hook(keep)  # culprit: call
h.sum().backward()
