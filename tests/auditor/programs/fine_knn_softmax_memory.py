import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
class MoCo(nn.Module):
    def __init__(self, K=32, d=8):
        super().__init__()
        self.q, self.k = (nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, d)) for _ in range(2))
        self.k.load_state_dict(self.q.state_dict())
        self.k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(d, K), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def _enqueue(self, keys):
        p = int(self.ptr)
        self.queue[:, p : p + len(keys)] = keys.T
        self.ptr[0] = (p + len(keys)) % self.queue.shape[1]
    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            for pq, pk in zip(self.q.parameters(), self.k.parameters()):
                pk.data = pk.data * 0.99 + pq.data * 0.01
            k = F.normalize(self.k(b), dim=1)
        pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        self._enqueue(k)
        return torch.cat([pos, neg], 1) / 0.07, torch.zeros(len(q), dtype=torch.long)
m = MoCo()
opt = torch.optim.SGD(m.parameters(), 0.03, momentum=0.9)
for _ in range(3):
    x = torch.randn(8, 10)
    logits, y = m(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(logits, y)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item(), m.queue.sum().item(), m.k[0].weight.sum().item())
