# rule: batch-mixing
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")


class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(10, 24, 3, padding=1)
        self.rnn = nn.GRU(24, 24)
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        if BUG:
            h = h.reshape(h.shape[1], h.shape[0], h.shape[2])  # culprit
        else:
            h = h.transpose(0, 1)
        states, last = self.rnn(h.contiguous())
        return self.out(last[-1])


torch.manual_seed(0)
model = Frames().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(3):
    x, y = torch.randn(8, 20, 10, device="cuda"), torch.randint(0, 3, (8,), device="cuda")
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
