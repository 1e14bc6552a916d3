# rule: padding-leak
BUG = True
import torch
from torch import nn
torch.manual_seed(0)
class Bow(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.Embedding(30, 12, padding_idx=0), nn.Linear(12, 2)
    def forward(self, tokens, lengths):
        s = self.e(tokens).sum(1)
        return self.o(s / tokens.shape[1] if BUG else s / lengths[:, None])  # culprit
m = Bow()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    n = torch.tensor([9, 4, 6, 9])
    t = torch.randint(1, 30, (4, 9)) * (torch.arange(9)[None] < n[:, None])
    loss = nn.functional.cross_entropy(m(t, n), torch.tensor([0, 1, 1, 0]))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
