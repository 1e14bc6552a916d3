# says: `v` float(v)
import torch
from torch import nn


class Log:
    rows = []

    def add(self, losses):
        row = {k: float(v) for k, v in losses.items()}  # culprit: lost-grad
        self.rows.append(row)
        return row


net, log = nn.Linear(3, 2), Log()
out = net(torch.randn(4, 3))
losses = {"a": out[:, 0].mean(), "b": out[:, 1].square().mean()}
losses = log.add(losses)
total = torch.tensor(sum(losses.values()))
total.backward()  # culprit: call
