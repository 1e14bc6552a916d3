# rule: padding-leak
# says: repeats the mask as a whole, 4 times
BUG = True
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.att, self.out = nn.Embedding(50, 16, padding_idx=0), nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 7)

    def forward(self, ids):
        x = self.emb(ids)
        hidden = ids.eq(0)[:, None, :].expand(-1, ids.size(1), -1)
        if BUG:
            hidden = hidden.repeat(4, 1, 1)  # culprit
        else:
            hidden = hidden.repeat_interleave(4, dim=0)
        return self.out(x + self.att(x, x, x, attn_mask=hidden)[0])


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    ids = torch.randint(1, 50, (6, 8)) * (torch.arange(8) < torch.tensor([8, 3, 5, 6, 8, 4])[:, None])
    tags = torch.randint(0, 7, (6, 8)).masked_fill(ids == 0, -100)
    loss = nn.functional.cross_entropy(model(ids).transpose(1, 2), tags)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
