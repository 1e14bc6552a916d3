import torch
import torch.nn.functional as F
from torch import nn


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(80, 16, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv2d(1, 12, (k, 16)) for k in (2, 3, 4)])
        self.fc = nn.Linear(36, 3)

    def forward(self, x):
        x = self.embed(x).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        return self.fc(F.dropout(torch.cat(x, 1), 0.5, self.training))


torch.manual_seed(0)
model = TextCNN()
opt = torch.optim.Adadelta(model.parameters())
for _ in range(3):
    x = torch.randint(1, 80, (8, 14))
    for r, n in enumerate((14, 9, 14, 6, 11, 14, 8, 10)):
        x[r, n:] = 0
    loss = F.cross_entropy(model(x), torch.arange(8) % 3)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
