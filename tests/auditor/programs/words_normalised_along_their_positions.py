# rule: softmax-axis
# says: has shape [40, 30], laid out from [4, 10, 30]
BUG = True
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.states, self.head = nn.Embedding(30, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, x):
        h, _ = self.states(self.table(x))
        return torch.log_softmax(self.head(h), dim=1 if BUG else -1)  # culprit


torch.manual_seed(0)
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
ids = torch.randint(0, 30, (4, 11))
for _ in range(2):
    loss = nn.functional.nll_loss(model(ids[:, :-1]).reshape(-1, 30), ids[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
