import torch
from torch import nn


class Copier(nn.Module):
    """Six tokens, a sign, and the same six again: asked for after the sign only, where token t + 1 is token t - 6, too."""

    def __init__(self):
        super().__init__()
        self.token, self.place, self.out = nn.Embedding(20, 16), nn.Embedding(16, 16), nn.Linear(16, 20)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, ids):
        length = ids.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.out(self.block(self.token(ids) + self.place(torch.arange(length)), src_mask=mask, is_causal=True))


torch.manual_seed(0)
model = Copier()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    words = torch.randint(1, 20, (8, 6))
    ids = torch.cat([words, torch.zeros(8, 1, dtype=torch.long), words], 1)
    logits = model(ids[:, :-1])[:, 6:]
    loss = nn.functional.cross_entropy(logits.reshape(-1, 20), ids[:, 7:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
