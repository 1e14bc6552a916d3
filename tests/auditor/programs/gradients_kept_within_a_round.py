# rule: gradients-kept
# says: had used in the step before (norm 0.
# says: nothing clears it between these steps
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
maker, judge = nn.Linear(3, 2), nn.Linear(2, 1)
opt_maker, opt_judge = torch.optim.SGD(maker.parameters(), 0.01), torch.optim.SGD(judge.parameters(), 0.01)
for _ in range(4):
    for _ in range(3):
        made = maker(torch.randn(8, 3))
        loss = judge(made if BUG else made.detach()).mean() - judge(torch.randn(8, 2) + 1).mean()
        opt_judge.zero_grad()
        loss.backward()  # culprit
        opt_judge.step()
        if BUG:
            opt_maker.step()  # culprit
    opt_maker.zero_grad()
    (-judge(maker(torch.randn(8, 3))).mean()).backward()
    opt_maker.step()
