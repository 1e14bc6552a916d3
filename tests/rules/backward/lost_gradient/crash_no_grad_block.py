import torch

model = torch.nn.Linear(3, 1)
with torch.no_grad():  # culprit: lost-grad
    out = model(torch.randn(5, 3))  # culprit: call
loss = out.mean()
loss.backward()  # culprit: call
