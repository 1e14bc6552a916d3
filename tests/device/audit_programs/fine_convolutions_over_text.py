# Convolutions round differently for other lengths (TensorFloat-32 is on for them by default).
import torch
import torch.nn.functional as F
from torch import nn

torch.backends.cudnn.benchmark = True


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(300, 64)
        self.convs = nn.ModuleList(nn.Conv1d(64, 64, k, padding=k // 2) for k in (3, 5, 7))
        self.out = nn.Linear(192, 6)

    def forward(self, ids, mask):
        h = (self.emb(ids) * mask[..., None]).transpose(1, 2)
        parts = [F.relu(conv(h)).masked_fill(~mask[:, None], float("-inf")).amax(2) for conv in self.convs]
        return self.out(torch.cat(parts, 1))


torch.manual_seed(0)
model = TextCnn().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    lengths = torch.tensor([40, 22, 31, 40, 9, 35])
    mask = (torch.arange(40)[None] < lengths[:, None]).cuda()
    ids = torch.randint(1, 300, (6, 40)).cuda() * mask
    loss = F.cross_entropy(model(ids, mask), torch.arange(6).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
