import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(2, 3)

    def forward(self, chunk, state):
        for frame in chunk:
            state = self.cell(frame, state)
        return state[0], state


class Runner:
    def __init__(self):
        self.model = Forecaster()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.state = (torch.zeros(1, 3), torch.zeros(1, 3))

    def step(self, chunk):
        out, self.state = self.model(chunk, self.state)
        loss = out.square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        h, c = self.state
        self.state = h.detach(), c.detach()


torch.manual_seed(0)
runner = Runner()
for chunk in torch.randn(3, 4, 1, 2):
    runner.step(chunk)
