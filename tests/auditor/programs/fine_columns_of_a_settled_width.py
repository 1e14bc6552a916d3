import torch
from torch import nn


class Sessions(nn.Module):
    """Always nine columns wide, with as many rows in its table: a column is as good as a position."""

    def __init__(self):
        super().__init__()
        self.item, self.pos, self.att, self.out = nn.Embedding(60, 16), nn.Embedding(9, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 60)

    def forward(self, items, mask):
        x = self.item(items) + self.pos(torch.arange(items.size(1)))
        return self.out(self.att(x, x, x, key_padding_mask=~mask)[0][:, -1])


torch.manual_seed(0)
model = Sessions()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = torch.arange(9) >= 9 - torch.tensor([9, 4, 6, 3])[:, None]
    loss = nn.functional.cross_entropy(model(torch.randint(1, 60, (4, 9)) * mask, mask), torch.randint(1, 60, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
