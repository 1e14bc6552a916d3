import torch, torch.nn as nn, copy
torch.manual_seed(7)
class QR(nn.Module):
    def __init__(s, o, a, n):
        super().__init__(); s.a, s.n = a, n
        s.net = nn.Sequential(nn.Linear(o, 32), nn.ReLU(), nn.Linear(32, a * n))
    def forward(s, x): return s.net(x).view(-1, s.a, s.n)
N = 8
online = QR(4, 3, N); target = copy.deepcopy(online).requires_grad_(False)
tau = ((2 * torch.arange(N) + 1) / (2. * N)).view(1, -1)
opt = torch.optim.Adam(online.parameters(), 5e-4)
def huber(x, k=1.): return torch.where(x.abs() <= k, .5 * x.pow(2), k * (x.abs() - .5 * k))
for it in range(5):
    s, s2 = torch.randn(16, 4), torch.randn(16, 4)
    a, r, d = torch.randint(3, (16,)), torch.randn(16), (torch.rand(16) < .1).float()
    theta = online(s)[torch.arange(16), a]
    with torch.no_grad():
        z = target(s2)
        za = z[torch.arange(16), z.mean(2).max(1)[1]]
        T = r.unsqueeze(-1) + .99 * (1 - d).unsqueeze(-1) * za
    diff = T.t().unsqueeze(-1) - theta
    loss = huber(diff) * (tau - (diff.detach() < 0).float()).abs()
    loss = loss.mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if it % 2 == 1: target.load_state_dict(online.state_dict())
    print(it, loss.item())
