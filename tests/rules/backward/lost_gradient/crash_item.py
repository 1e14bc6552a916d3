import torch

model = torch.nn.Linear(3, 1)
running = 0.0
for _ in range(3):
    out = model(torch.randn(5, 3))
    running += out.pow(2).mean().item()  # culprit: lost-grad
loss = torch.tensor(running)
loss.backward()  # culprit: call
