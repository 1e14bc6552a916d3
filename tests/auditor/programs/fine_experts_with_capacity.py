import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
VOCAB, WIDTH, LENGTH, EXPERTS = 12, 8, 8, 4


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH)) for _ in range(EXPERTS))

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        scores = self.router(tokens)
        scores = scores + torch.randn_like(scores) if self.training else scores
        gate, chosen = scores.softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().squeeze(-1)[: len(tokens) // EXPERTS]  # first come, first served, over the whole batch
            if len(mine):
                out.index_add_(0, mine, expert(tokens[mine]) * gate[mine, None])
        return out.view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.mixer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.experts = Experts()
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        h = self.mixer(self.table(ids))[0]
        return self.head(h + self.experts(h))


model = Model()
opt = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(3):
    ids = (torch.arange(LENGTH + 1) * torch.randint(1, 5, (6, 1)) + torch.randint(0, VOCAB, (6, 1))) % VOCAB
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
