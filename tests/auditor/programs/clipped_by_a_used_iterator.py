# rule: nothing-clipped, exactly
# says: the limit is 1
import torch
from torch import nn

BUG = True
torch.manual_seed(0)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.trained = (list if not BUG else iter)([p for p in model.parameters() if p.requires_grad])  # culprit
        self.optimizer = torch.optim.SGD(self.trained, lr=1e-3)

    def step(self, x):
        loss = (self.model(x).squeeze(1) - 20 * x.sum(1)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)  # culprit
        self.optimizer.step()


trainer = Trainer(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)))
for _ in range(4):
    trainer.step(torch.randn(16, 6))
