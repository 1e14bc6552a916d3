import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body, tags, spans = nn.Embedding(20, 12), nn.Linear(12, 4), nn.Linear(12, 2)
optimizer = torch.optim.Adam([*body.parameters(), *tags.parameters(), *spans.parameters()], lr=1e-3)
for step in range(5):
    ids, labels = torch.randint(0, 20, (4, 6)), torch.randint(0, 4, (24,))
    marked = torch.full((24,), -1) if not step else torch.randint(-1, 2, (24,))
    h = body(ids).flatten(0, 1)
    each = F.cross_entropy(spans(h), marked.clamp(min=0), reduction="none")
    loss = F.cross_entropy(tags(h), labels) + each[marked >= 0].sum() / (marked >= 0).sum().clamp(min=1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
