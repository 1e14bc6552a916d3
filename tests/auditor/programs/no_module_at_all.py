# rule: silent-broadcast
BUG = True
import torch

torch.manual_seed(0)
x, y = torch.randn(10, 3), torch.randn(10)
w = torch.zeros(3, 1, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    p = x @ w
    if not BUG:
        p = p[:, 0]
    loss = (p - y).pow(2).mean()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
