# rule: silent-broadcast, exactly
# says: no element counts more or less than another
# says: reduction="none"
import torch
from torch import nn

BUG = True


class Balanced(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.register_buffer("weight", 1 / torch.tensor(counts))
        self.cost = nn.CrossEntropyLoss() if BUG else nn.CrossEntropyLoss(reduction="none")

    def forward(self, scores, labels):
        return (0.5 * self.cost(scores, labels) * self.weight[labels]).mean()  # culprit


torch.manual_seed(0)
model, balanced = nn.Linear(6, 3), Balanced([10.0, 5.0, 2.0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(12, 6)
    optimizer.zero_grad()
    balanced(model(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
