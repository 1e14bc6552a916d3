# rule: batch-mixing
import torch
from torch import nn
torch.manual_seed(0)
BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=not BUG)  # culprit
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


net = Net()
print(net(torch.zeros(1, 7, 5)).shape)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 7, 5)), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
