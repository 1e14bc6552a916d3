import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(40, 12), nn.GRU(12, 12), nn.Linear(12, 5)

    def forward(self, ids, mask):
        return self.out(self.rnn(self.emb(ids))[0] * mask.unsqueeze(-1))


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = torch.arange(8)[:, None] < torch.tensor([8, 7, 6, 4, 3])  # rows of it and columns end in padding
    labels = torch.randint(0, 5, (8, 5)).masked_fill(~mask, -100)
    loss = nn.functional.cross_entropy(model(torch.randint(1, 40, (8, 5)) * mask, mask.float()).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
