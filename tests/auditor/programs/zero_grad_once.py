# rule: gradients-kept
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(10, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train(epochs):
    opt.zero_grad()
    for _ in range(epochs):
        for b in range(3):
            loss = F.cross_entropy(model(torch.randn(8, 10)), torch.randint(0, 3, (8,)))
            if not BUG:
                model.zero_grad()
            loss.backward()  # culprit
            opt.step()
train(2)
