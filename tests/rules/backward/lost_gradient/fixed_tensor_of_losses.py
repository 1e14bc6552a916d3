import torch

model = torch.nn.Linear(3, 2)
total = sum(model(torch.ones(3)).sum() for _ in range(4))
total.backward()
