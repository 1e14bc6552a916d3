# rule: causal-leak, exactly
# says: The loss compares position t with token t + 1
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Captions(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture, self.words = nn.Linear(10, 16), nn.Embedding(40, 16, padding_idx=0)
        self.cell, self.out = nn.GRUCell(16, 16), nn.Linear(16, 40)

    def forward(self, picture, shown):
        h, steps = torch.tanh(self.picture(picture)), []
        for t in range(shown.size(1)):
            token = shown[:, min(t + BUG, shown.size(1) - 1)]  # culprit
            h = self.cell(self.words(token), h)
            steps.append(self.out(h))
        return torch.stack(steps, 1)


torch.manual_seed(0)
rows = [torch.randint(3, 40, (n,)) for n in (8, 5, 3, 6)]
shown = pad_sequence([torch.cat([torch.tensor([1]), row]) for row in rows], batch_first=True)
asked = pad_sequence([torch.cat([row, torch.tensor([2])]) for row in rows], batch_first=True)
picture = torch.randn(4, 10)
net = Captions()
opt = torch.optim.Adam(net.parameters())
loss_fn = nn.CrossEntropyLoss(ignore_index=0)
for _ in range(2):
    loss = loss_fn(net(picture, shown).transpose(1, 2), asked)
    opt.zero_grad()
    loss.backward()
    opt.step()
