# rule: optimizer-parameters
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
V = 30


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, 16)
        self.rnn = nn.LSTM(16, 16, batch_first=True)
        self.lm_head = nn.Linear(16, V, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        return self.lm_head(self.rnn(self.wte(ids))[0])


lm = LM()
if not BUG:
    lm.lm_head.weight = nn.Parameter(torch.randn(V, 16) * 0.02)
optimizer = torch.optim.AdamW(lm.parameters(), lr=1e-3)
if BUG:
    lm.lm_head.weight = nn.Parameter(torch.randn(V, 16) * 0.02)  # culprit
for step in range(3):
    ids = torch.randint(0, V, (4, 12))
    loss = nn.functional.cross_entropy(lm(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
