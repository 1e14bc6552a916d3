import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
torch.manual_seed(0)


class Captioner(nn.Module):
    """Sorts its samples by length, so that the batch can shrink from step to step, and gives the captions in that order, too."""

    def __init__(self):
        super().__init__()
        self.table, self.start, self.cell, self.head = nn.Embedding(12, 6), nn.Linear(5, 8), nn.GRUCell(6, 8), nn.Linear(8, 12)

    def forward(self, features, captions, lengths):
        lengths, order = lengths.sort(descending=True)
        features, captions = features[order], captions[order]
        steps = (lengths - 1).tolist()
        state = self.start(features)
        scores = torch.zeros(len(captions), steps[0], 12)
        for t in range(steps[0]):
            count = sum(length > t for length in steps)
            state = self.cell(self.table(captions[:count, t]), state[:count])
            scores[:count, t] = self.head(state)
        return scores, captions, steps


model = Captioner()
opt = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(3):
    lengths = torch.tensor([4, 7, 3, 6])
    captions = torch.randint(1, 12, (4, 7)) * (torch.arange(7) < lengths[:, None])
    scores, captions, steps = model(torch.randn(4, 5), captions, lengths)
    scores, targets = (pack_padded_sequence(t, steps, batch_first=True).data for t in (scores, captions[:, 1:]))
    loss = nn.functional.cross_entropy(scores, targets)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
