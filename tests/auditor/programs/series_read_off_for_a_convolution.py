# rule: view-for-transpose, exactly
# says: [8, 50, 3] and [8, 3, 50] are the same in another order
import torch
from torch import nn

BUG = True


class Sensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv1d(3, 12, 5, padding=2), nn.Linear(12, 2)

    def forward(self, window):
        b, t, c = window.shape
        series = window.reshape(b, c, t) if BUG else window.permute(0, 2, 1)  # culprit
        return self.out(torch.relu(self.conv(series)).amax(-1))


torch.manual_seed(0)
net = Sensor()
opt = torch.optim.Adam(net.parameters())
x, y = torch.randn(16, 50, 3), torch.randint(0, 2, (16,))
for i in range(0, 16, 8):
    loss = nn.functional.cross_entropy(net(x[i:i + 8]), y[i:i + 8])
    opt.zero_grad()
    loss.backward()
    opt.step()
