# rule: optimizer-parameters, exactly
# says: this is so since optimizer step 5
import copy

import torch
from torch import nn

BUG = True
torch.manual_seed(0)


class Trainer:
    def __init__(self, net):
        self.net, self.best = net, None
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # culprit

    def epoch(self):
        for _ in range(2):
            x = torch.randn(8, 5)
            loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def fit(self):
        for number in range(5):
            self.epoch()
            if number == 0:
                self.best = copy.deepcopy(self.net)
            if number == 1 and BUG:
                self.net = copy.deepcopy(self.best)  # culprit
            elif number == 1:
                self.net.load_state_dict(self.best.state_dict())


Trainer(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))).fit()
