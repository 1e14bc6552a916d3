import torch

model = torch.nn.Linear(3, 1)
out = model(torch.randn(5, 3))
values = out.detach().numpy()  # culprit: lost-grad
loss = torch.from_numpy(values**2).mean()
loss.backward()  # culprit: call
