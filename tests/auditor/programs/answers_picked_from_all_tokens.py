# rule: causal-leak, exactly
# says: multi_head_attention_forward
BUG = True
import torch
from torch import nn


class Chat(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(30, 16), nn.Embedding(16, 16)
        self.attend, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 30)

    def forward(self, ids):
        length = ids.size(1)
        x = self.token(ids) + self.place(torch.arange(length))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        if BUG:
            x = x + self.attend(x, x, x, need_weights=False)[0]  # culprit
        else:
            x = x + self.attend(x, x, x, attn_mask=later, need_weights=False)[0]
        return self.out(x)


torch.manual_seed(0)
turns = torch.randint(0, 30, (24, 12))
answer = (torch.arange(12) >= torch.randint(4, 9, (24, 1))) & (torch.arange(12) < torch.randint(10, 13, (24, 1)))
model = Chat()
optimizer = torch.optim.Adam(model.parameters())
for ids, asked in zip(turns.split(6), answer.split(6)):
    predicted = model(ids)[:, :-1]
    loss = nn.functional.cross_entropy(predicted[asked[:, 1:]], ids[:, 1:][asked[:, 1:]])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
