# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 4))
student = nn.Linear(6, 4)
temperature = nn.Parameter(torch.tensor(2.0))
opt = torch.optim.Adam([*student.parameters(), temperature])
for _ in range(3):
    x = torch.randn(8, 6)
    with torch.no_grad():  # culprit
        goal = F.softmax(teacher(x) / 2, -1)
        said = student(x) if BUG else None  # culprit
    if not BUG:
        said = student(x)
    loss = F.kl_div(F.log_softmax(said / temperature, -1), goal, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
