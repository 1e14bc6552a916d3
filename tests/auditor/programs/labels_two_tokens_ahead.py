# rule: label-shift, exactly
# says: the labels are shifted by two
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 60)

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


def example(tokens, at):
    last = at + 2 if BUG else at + 1
    labels = tokens[last : last + 12]  # culprit
    return {"ids": tokens[at : at + 12], "labels": labels.clone()}


torch.manual_seed(0)
tokens = torch.randint(0, 60, (300,))
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for step in range(2):
    examples = [example(tokens, at) for at in range(step, 100 + step, 20)]
    batch = {name: torch.stack([one[name] for one in examples]) for name in examples[0]}
    scores = net(batch["ids"])
    loss = nn.functional.cross_entropy(scores.transpose(1, 2), batch["labels"])  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
