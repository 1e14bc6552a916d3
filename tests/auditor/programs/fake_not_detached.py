# rule: gradients-mixed, exactly
# says: `.grad` of `gen.net.2.bias` still held what the first loss had left there
import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, outputs))

    def forward(self, x):
        return self.net(x)


torch.manual_seed(0)
gen, critic = Net(4, 2), Net(2, 1)
g_opt, d_opt = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (gen, critic))
bce = nn.BCEWithLogitsLoss()
for _ in range(6):
    g_opt.zero_grad()
    d_opt.zero_grad()
    fake = gen(torch.randn(16, 4))
    real = critic(torch.randn(16, 2) * 0.3 + 1)
    judged = critic(fake if BUG else fake.detach())  # culprit
    (bce(real, torch.ones(16, 1)) + bce(judged, torch.zeros(16, 1))).backward()
    d_opt.step()
    bce(critic(gen(torch.randn(16, 4))), torch.ones(16, 1)).backward()  # culprit
    g_opt.step()
