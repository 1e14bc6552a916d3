# rule: no-update
BUG = True
import torch

torch.manual_seed(0)
x = torch.randn(64, 5)
weights = [torch.randn(5, 8).requires_grad_(), torch.randn(8, 1).requires_grad_()]
for step in range(4):
    loss = (torch.relu(x @ weights[0]) @ weights[1] - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        if BUG:
            for w in weights:
                w = w - 0.01 * w.grad  # culprit
        else:
            weights = [w - 0.01 * w.grad for w in weights]
    weights = [w.requires_grad_() for w in weights]
    for w in weights:
        w.grad = None
