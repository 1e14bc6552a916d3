import torch

model = torch.nn.Linear(3, 1)
for p in model.parameters():
    p.requires_grad = False  # culprit: lost-grad
loss = model(torch.randn(5, 3)).mean()  # culprit: create
loss.backward()  # culprit: call
# says: model.weight requires_grad=False
