import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)
        self.extra = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def norm_of_gradients(model):
    total = 0.0
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        total += p.grad.norm().item() ** 2
    return total**0.5


torch.manual_seed(0)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(3, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    print(norm_of_gradients(model) > 0)
    opt.step()
