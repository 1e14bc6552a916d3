# rule: activation-before-loss
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

BUG = True


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


with FakeTensorMode():  # how large would it be?
    planned = build()
    optimizer = torch.optim.Adam(planned.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        planned(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    size = sum(t.numel() for state in optimizer.state.values() for t in state.values())
    print("numbers kept by the optimizer:", size)

torch.manual_seed(0)
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(4):
    scores = model(torch.randn(12, 4))
    if BUG:
        scores = scores.softmax(-1)  # culprit
    loss = nn.functional.cross_entropy(scores, torch.arange(12) % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
