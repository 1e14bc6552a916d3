# rule: padding-leak
BUG = True
import torch
from torch import nn


class InferSent(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 10, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(20, 3)

    def encode(self, tok, n):
        p = nn.utils.rnn.pack_padded_sequence(self.emb(tok), n.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(p)[0], batch_first=True)
        if not BUG:
            out = out.masked_fill((torch.arange(out.size(1)) >= n[:, None]).unsqueeze(2), -1e9)
        return torch.max(out, 1)[0]  # culprit

    def forward(self, tok, lengths):
        return self.fc(self.encode(tok, lengths))


torch.manual_seed(0)
m = InferSent()
opt = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(2):
    n = torch.tensor([8, 5, 6, 3])
    tok = torch.randint(1, 50, (4, 8)) * (torch.arange(8) < n[:, None])
    loss = nn.functional.cross_entropy(m(tok, n), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
