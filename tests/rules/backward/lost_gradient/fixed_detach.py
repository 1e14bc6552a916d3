import torch

model = torch.nn.Linear(3, 1)
loss = torch.nn.functional.mse_loss(model(torch.randn(5, 3)), torch.zeros(5, 1))
loss.backward()
