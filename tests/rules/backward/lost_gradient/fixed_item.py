import torch

model = torch.nn.Linear(3, 1)
losses = []
for _ in range(3):
    out = model(torch.randn(5, 3))
    losses.append(out.pow(2).mean())
loss = torch.stack(losses).sum()
loss.backward()
