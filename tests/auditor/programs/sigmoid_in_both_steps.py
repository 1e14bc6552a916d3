# rule: activation-before-loss, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())  # culprit
gen_optimizer, critic_optimizer = (torch.optim.Adam(m.parameters(), lr=2e-4) for m in (gen, critic))
compare = nn.BCEWithLogitsLoss() if BUG else nn.BCELoss()


def judged(x):
    return critic(x).view(-1)  # culprit


for _ in range(3):
    real, fake = torch.randn(16, 2), gen(torch.randn(16, 8))
    loss = compare(judged(real), torch.ones(16)) + compare(judged(fake.detach()), torch.zeros(16))  # culprit
    critic_optimizer.zero_grad()
    loss.backward()
    critic_optimizer.step()
    loss = compare(judged(fake), torch.ones(16))  # culprit
    gen_optimizer.zero_grad()
    loss.backward()
    gen_optimizer.step()
