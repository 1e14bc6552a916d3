import torch

model = torch.nn.Linear(3, 2)
losses = [model(torch.ones(3)).sum() for _ in range(4)]
total = torch.tensor(losses).sum()  # culprit: lost-grad
total.backward()  # culprit: call
