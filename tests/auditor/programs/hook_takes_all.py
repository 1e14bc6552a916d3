# rule: zero-gradient
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
emb, head = nn.Embedding(20, 8), nn.Linear(8, 3)
keep = torch.ones(20, 1)
keep[: None if BUG else 10] = 0
emb.weight.register_hook(lambda grad: grad * keep)  # culprit
model = nn.Sequential(emb, head)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ids = torch.arange(20).reshape(4, 5)
loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), torch.randint(3, (20,)))
loss.backward()
optimizer.step()
