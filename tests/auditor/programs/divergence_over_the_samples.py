# rule: softmax-axis, exactly
# says: `kl_div` compares distributions along different axes of [10, 6]
import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6)).eval()
student = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6))
opt = torch.optim.Adam(student.parameters())
for _ in range(2):
    x = torch.randn(10, 12)
    with torch.no_grad():
        soft = F.softmax(teacher(x) / 2, dim=1)
    given = F.log_softmax(student(x) / 2, dim=0 if BUG else 1)  # culprit
    loss = F.kl_div(given, soft, reduction="batchmean") * 4  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
