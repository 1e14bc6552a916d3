# rule: lost-duplicates, exactly
# says: position (
import torch
from torch import nn

BUG = True


class Pillars(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature, self.out = nn.Linear(3, 4), nn.Linear(4 * 16, 2)

    def forward(self, points, cell):
        f = torch.relu(self.feature(points))
        row = torch.arange(len(points)).unsqueeze(1).expand_as(cell)
        grid = torch.zeros(len(points), 16, 4)
        if BUG:
            grid[row, cell] += f  # culprit
        else:
            grid = grid.index_put((row, cell), f, accumulate=True)
        return self.out(grid.flatten(1))


torch.manual_seed(0)
net = Pillars()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(5, 20, 3), torch.randint(0, 16, (5, 20))), torch.randint(0, 2, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
