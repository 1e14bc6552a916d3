# rule: optimizer-parameters, exactly
# says: 4 parameters that were frozen at the first step have a gradient since optimizer step 4
import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.backbone(x).relu())


def main():
    torch.manual_seed(0)
    net = Net()
    for p in net.backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-3)  # culprit
    for step in range(8):
        if step == 3:
            for p in net.backbone.parameters():
                p.requires_grad = True  # culprit
            if not BUG:
                optimizer.add_param_group({"params": net.backbone.parameters()})
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,))).backward()
        optimizer.step()


main()
