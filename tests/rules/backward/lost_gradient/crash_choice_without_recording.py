# says: gives integers or booleans
# says: `torch.no_grad()` had cut it before
import torch
from torch import nn

model = nn.Linear(5, 3)
labels = torch.randint(3, (6,))
with torch.no_grad():  # culprit: lost-grad
    scores = model(torch.randn(6, 5))  # culprit: call
predicted = scores.argmax(dim=1)  # culprit: lost-grad
loss = 1 - (predicted == labels).float().mean()
loss.backward()  # culprit: call
