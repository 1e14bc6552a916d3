import torch

model = torch.nn.Linear(3, 1)
out = model(torch.randn(5, 3))
loss = (out - 1).abs().mean()
loss.backward()
