# rule: no-update
# says: decides whether a step is taken
# says: a step is due after the last batch of an epoch, too
import torch
from torch import nn

BUG = True
EVERY = 8


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optim = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch(self, batches):
        self.optim.zero_grad()
        for k, (x, y) in enumerate(batches, 1):
            (nn.functional.mse_loss(self.model(x).squeeze(-1), y) / EVERY).backward()
            if k % EVERY == 0 or (not BUG and k == len(batches)):  # culprit
                self.optim.step()
                self.optim.zero_grad()


torch.manual_seed(0)
trainer = Trainer(nn.Linear(5, 1))
for _ in range(3):
    trainer.epoch([(torch.randn(8, 5), torch.randn(8)) for _ in range(5)])
