import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 3)
    def forward(self, x):
        return self.head(self.backbone(x))
net = Net()
head_opt = torch.optim.Adam(net.head.parameters(), 1e-2)
for p in net.backbone.parameters():
    p.requires_grad = False
full_opt = torch.optim.SGD(net.parameters(), 1e-3)
for epoch in range(5):
    loss = nn.functional.cross_entropy(net(torch.randn(12, 8)), torch.randint(0, 3, (12,)))
    opt = head_opt if epoch < 10 else full_opt
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
