import torch

model = torch.nn.Linear(3, 4)
labels = torch.tensor([0, 1, 2])
scores = model(torch.randn(3, 3))
predicted = scores.argmax(dim=1)
loss = torch.nn.functional.cross_entropy(scores, labels)
loss.backward()
