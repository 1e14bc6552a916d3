import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
D = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
for step in range(3):
    fake = G(torch.randn(6, 4))
    score = D(fake)  # culprit: save
    loss_d = score.mean()
    loss_g = -score.mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()  # culprit: mutate
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
# says: D.2.weight
