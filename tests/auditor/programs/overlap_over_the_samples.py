# rule: softmax-axis
# says: the labels pick along axis 1
import torch
from torch import nn
import torch.nn.functional as F

BUG = True
torch.manual_seed(0)
net = nn.Conv2d(3, 4, 3, padding=1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def dice(scores, labels):
    shares = scores.softmax(0 if BUG else 1)  # culprit
    wanted = F.one_hot(labels, 4).permute(0, 3, 1, 2).float()
    both = (shares * wanted).sum((0, 2, 3))
    return 1 - (2 * both / (shares.sum((0, 2, 3)) + wanted.sum((0, 2, 3)) + 1e-6)).mean()


for _ in range(3):
    image, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 4, (2, 8, 8))
    scores = net(image)
    loss = F.cross_entropy(scores, labels) + dice(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
