# rule: view-for-transpose, exactly
# says: Write `clip.transpose(1, 2).reshape(b * t, c, h, w)`
BUG = True
import torch
from torch import nn


class Film(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.gru, self.out = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, clip):
        b, c, t, h, w = clip.shape
        frames = clip.reshape(b * t, c, h, w) if BUG else clip.transpose(1, 2).reshape(b * t, c, h, w)  # culprit
        return self.out(self.gru(self.frame(frames).view(b, t, -1))[1][-1])


torch.manual_seed(0)
model = Film()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(torch.rand(2, 3, 4, 16, 16)), torch.tensor([1, 3]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
