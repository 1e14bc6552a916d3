# rule: lost-duplicates, exactly
# says: of 40 writes are lost
import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.message, self.out = nn.Linear(width, width), nn.Linear(2 * width, 2)

    def forward(self, h, edges):
        sent = torch.relu(self.message(h[edges[0]]))
        to = edges[1].unsqueeze(1).expand_as(sent)
        if BUG:
            arrived = torch.zeros_like(h).scatter(0, to, sent)  # culprit
        else:
            arrived = torch.zeros_like(h).scatter_add(0, to, sent)
        return self.out(torch.cat([h, arrived], 1))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x, edges, y = torch.randn(12, 6), torch.randint(0, 12, (2, 40)), torch.randint(0, 2, (12,))
for _ in range(3):
    loss = nn.functional.cross_entropy(net(x, edges), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
