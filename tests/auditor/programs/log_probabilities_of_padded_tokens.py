# rule: padding-in-loss, exactly
# says: stand at padded positions: all of them are 0
# says: what is picked goes into `mean` whole
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.run, self.out = nn.Embedding(30, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, ids):
        return self.out(self.run(self.embed(ids))[0])


def log_probabilities(model, ids):
    picked = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)  # culprit
    if BUG:
        return picked.mean(1)  # culprit
    real = (ids[:, 1:] != 0).float()
    return (picked * real).sum(1) / real.sum(1)


torch.manual_seed(0)
chosen = pad_sequence([torch.randint(1, 30, (n,)) for n in (4, 9, 6, 11, 5, 8)], batch_first=True)
rejected = pad_sequence([torch.randint(1, 30, (n,)) for n in (10, 5, 7, 4, 8, 6)], batch_first=True)
model, reference = Policy(), Policy()
reference.load_state_dict(model.state_dict())
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    with torch.no_grad():
        before = log_probabilities(reference, chosen) - log_probabilities(reference, rejected)
    gain = log_probabilities(model, chosen) - log_probabilities(model, rejected) - before
    loss = -nn.functional.logsigmoid(0.5 * gain).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
