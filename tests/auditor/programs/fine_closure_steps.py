import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(10, 1)
opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
x, y = torch.randn(30, 10), torch.randn(30, 1)
def closure():
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss
for _ in range(5):
    opt.step(closure)
