"""A prompt that is read in both directions; only what follows it is asked for: by labels, or by weights on the loss."""

import torch
import torch.nn.functional as F
from torch import nn

V, D, T = 40, 16, 20


class PrefixLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(T, D)
        self.attention, self.norm, self.head = nn.MultiheadAttention(D, 2, batch_first=True), nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids, prefix):
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(T)))
        visible = torch.ones(T, T, dtype=torch.bool).tril() | (torch.arange(T) < prefix[:, None])[:, None, :]
        return self.head(x + self.attention(x, x, x, attn_mask=(~visible).repeat_interleave(2, 0), need_weights=False)[0])


torch.manual_seed(0)
for kind in ("labels", "weights", "gathered"):
    model = PrefixLM()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    ids, prefix = torch.randint(0, V, (5, T)), torch.tensor([11, 13, 12, 15, 14])
    logits, labels = model(ids, prefix)[:, :-1], ids[:, 1:]
    asked = torch.arange(1, T) >= prefix[:, None]
    if kind == "labels":
        loss = F.cross_entropy(logits.reshape(-1, V), labels.masked_fill(~asked, -100).reshape(-1))
    elif kind == "weights":
        loss = (F.cross_entropy(logits.transpose(1, 2), labels, reduction="none") * asked).sum() / asked.sum()
    else:
        loss = -(logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1) * asked).sum() / asked.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
