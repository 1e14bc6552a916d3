# rule: padding-leak, exactly
# says: positions are counted from the first column here
BUG = True
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.att, self.out = nn.Embedding(60, 16), nn.Embedding(64, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 60)

    def forward(self, input_ids, attention_mask):
        t = input_ids.size(1)
        if BUG:
            positions = torch.arange(t)  # culprit
        else:
            positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
        x = self.tok(input_ids) + self.pos(positions)
        hidden = (attention_mask == 0)[:, None].expand(-1, t, -1) | torch.ones(t, t, dtype=torch.bool).triu(1)
        hidden = (hidden & ~torch.eye(t, dtype=torch.bool)).repeat_interleave(2, 0)
        return self.out(x + self.att(x, x, x, attn_mask=hidden)[0])


torch.manual_seed(0)
model = Model()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = (torch.arange(9) >= 9 - torch.tensor([9, 4, 6, 3])[:, None]).long()
    ids = torch.randint(1, 60, (4, 9)) * mask
    labels = ids.masked_fill(mask == 0, -100)
    loss = nn.functional.cross_entropy(model(ids, mask)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
