# says: `validate`
import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def validate(self):
        self.net.eval()
        torch.set_grad_enabled(False)  # culprit: lost-grad
        v = self.net(torch.randn(4, 3)).mean().item()
        self.net.train()
        return v

    def fit(self):
        for epoch in range(3):
            for _ in range(2):
                loss = self.net(torch.randn(4, 3)).pow(2).mean()  # culprit: call
                self.opt.zero_grad()
                loss.backward()  # culprit: call
                self.opt.step()
            self.validate()


Trainer().fit()
