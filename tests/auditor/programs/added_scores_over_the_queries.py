# rule: softmax-axis
BUG = True
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.mix, self.out, self.into = nn.Linear(given, 16, bias=False), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x, adj):
        h = self.mix(x)
        scores = nn.functional.leaky_relu(self.into(h) + self.out(h).transpose(1, 2), 0.2).masked_fill(adj == 0, -1e9)
        return nn.functional.elu(scores.softmax(1 if BUG else -1) @ h)  # culprit


class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Layer(5), Layer(16), nn.Linear(16, 4)

    def forward(self, x, adj):
        return self.head(self.second(self.first(x, adj), adj))


torch.manual_seed(0)
model = Nodes()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    adj = ((torch.rand(6, 9, 9) < 0.4) | torch.eye(9, dtype=torch.bool)).float()
    loss = nn.functional.cross_entropy(model(torch.randn(6, 9, 5), adj).flatten(0, 1), torch.randint(0, 4, (54,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
