import torch
from torch import nn

torch.manual_seed(0)
table, body, norm = nn.Embedding(60, 16), nn.GRU(16, 16, batch_first=True), nn.LayerNorm(16)
model = nn.ModuleList([table, body, norm])
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
ids = torch.randint(0, 60, (4, 9))
for _ in range(2):
    scores = norm(body(table(ids[:, :-1]))[0]) @ table.weight.T
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
