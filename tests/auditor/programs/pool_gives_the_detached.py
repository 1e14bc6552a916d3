# rule: gradient-cut, exactly
# says: goes on with what `put` gives back here
# says: Leave out `detach()` for this call
import torch
from torch import nn

BUG = True


class Pool:
    def __init__(self):
        self.kept = []

    def put(self, made):
        self.kept = [*self.kept, made.detach()][-3:]  # culprit
        return self.kept[-1]


torch.manual_seed(0)
maker, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)), nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
first, second = torch.optim.Adam(judge.parameters()), torch.optim.Adam(maker.parameters())
pool, cost = Pool(), nn.BCEWithLogitsLoss()
for _ in range(4):
    made = maker(torch.randn(12, 4))
    first.zero_grad()
    (cost(judge(torch.randn(12, 6)), torch.ones(12, 1)) + cost(judge(pool.put(made)), torch.zeros(12, 1))).backward()
    first.step()
    second.zero_grad()
    told = judge(pool.put(made) if BUG else made)  # culprit
    cost(told, torch.ones(12, 1)).backward()
    second.step()
