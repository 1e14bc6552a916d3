import torch

model = torch.nn.Linear(3, 1)
loss = model(torch.randn(5, 3)).mean()
loss.backward()
