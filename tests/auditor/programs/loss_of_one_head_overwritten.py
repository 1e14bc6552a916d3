# rule: unused-parameters, exactly
# says: `+=` adds
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        self.main, self.aux = nn.Conv2d(6, 3, 1), nn.Conv2d(6, 3, 1)

    def forward(self, x):
        h = self.body(x)
        return self.main(h), self.aux(h)


net = Segmenter()
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4, 8, 8))
    main, aux = net(x)
    if BUG:
        loss = F.cross_entropy(main, y)  # culprit
        loss =+ 0.4 * F.cross_entropy(aux, y)  # culprit
    else:
        loss = F.cross_entropy(main, y)
        loss += 0.4 * F.cross_entropy(aux, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
