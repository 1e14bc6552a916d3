# rule: padding-leak, exactly
BUG = True
import torch
from torch import nn


class Film(nn.Module):
    def __init__(self):
        super().__init__()
        self.look, self.out = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(8, 3)

    def forward(self, video, shown):
        b, t = video.shape[:2]
        h = self.look(video.flatten(0, 1)).view(b, t, -1)
        if BUG:
            return self.out(h.mean(1))  # culprit
        return self.out((h * shown[..., None]).sum(1) / shown.sum(1, keepdim=True))


torch.manual_seed(0)
lengths = torch.tensor([6, 3, 5, 4])
shown = torch.arange(6) < lengths[:, None]
video = torch.randn(4, 6, 3, 9, 9) * shown[:, :, None, None, None]
net = Film()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(video, shown), torch.tensor([0, 1, 2, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
