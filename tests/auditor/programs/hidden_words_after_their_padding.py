# rule: suspicious-input, exactly
# says: hides the words and keeps the padding
BUG = True
import torch
from torch import nn


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.place = nn.Embedding(40, 16, padding_idx=0), nn.Parameter(torch.randn(10, 16) * 0.02)
        self.block, self.out = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), nn.Linear(16, 40)

    def forward(self, history):
        if BUG:
            mask = history != 0  # culprit
        else:
            mask = history == 0
        x = self.block(self.items(history) + self.place, src_key_padding_mask=mask)  # culprit
        return self.out(x[:, -1])


torch.manual_seed(0)
history = torch.zeros(8, 10, dtype=torch.long)
for row in range(8):
    history[row, 7 - row :] = torch.randint(1, 40, (3 + row,))
model = NextItem()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(history), torch.randint(1, 40, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
