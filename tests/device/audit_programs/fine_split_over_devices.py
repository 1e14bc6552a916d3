import torch
from torch import nn


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 32, padding_idx=0)
        self.rnn = nn.LSTM(32, 32, batch_first=True).cuda()
        self.out = nn.Linear(32, 3)

    def forward(self, tokens, lengths):
        h = self.emb(tokens).cuda()
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.rnn(packed)
        return self.out(last[-1].cpu())


torch.manual_seed(0)
model = Split()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    lengths = torch.tensor([9, 4, 6, 9])
    tokens = torch.randint(1, 500, (4, 9)) * (torch.arange(9)[None] < lengths[:, None])
    loss = nn.functional.cross_entropy(model(tokens, lengths), torch.tensor([0, 1, 2, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
