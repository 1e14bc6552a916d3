# rule: activation-before-loss
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = body

    def forward(self, images):
        scores = self.body(images)
        if BUG:
            return scores.softmax(dim=-1)  # culprit
        return scores


net = Net().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
for step in range(3):
    images = torch.randn(16, 3, 32, 32).pin_memory().cuda(non_blocking=True).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (16,)).pin_memory().cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(net(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(round(loss.item(), 1))
