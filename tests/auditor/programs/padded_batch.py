# rule: padding-leak
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 12, padding_idx=0)
        self.rnn = nn.LSTM(12, 12, batch_first=True)
        self.out = nn.Linear(12, 2)

    def forward(self, tokens, lengths):
        steps, (last, _) = self.rnn(self.emb(tokens))
        if BUG:
            return self.out(steps[:, -1, :])  # culprit
        return self.out(steps[torch.arange(len(tokens)), lengths - 1])


torch.manual_seed(0)
texts = [torch.randint(1, 50, (n,)) for n in (9, 4, 6, 3)]
lengths = torch.tensor([len(t) for t in texts])
batch = pad_sequence(texts, batch_first=True)
labels = torch.tensor([0, 1, 0, 1])
model = Reader()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(batch, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
