# rule: padding-in-loss, exactly
# says: 20 of 66 labels that count
# says: is made without `ignore_index=0`
BUG = True
import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn, self.out = nn.Embedding(25, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 25)

    def forward(self, ids):
        return self.out(self.rnn(self.embedding(ids))[0])


class Trainer:
    def __init__(self, model):
        self.model, self.optimizer = model, torch.optim.Adam(model.parameters(), 1e-3)
        settings = {} if BUG else {"ignore_index": 0}
        self.criterion = nn.CrossEntropyLoss(**settings)  # culprit

    def step(self, ids):
        scores = self.model(ids[:, :-1])
        loss = self.criterion(scores.flatten(0, 1), ids[:, 1:].flatten())  # culprit
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


torch.manual_seed(0)
trainer = Trainer(Words())
for _ in range(2):
    ids = torch.randint(1, 25, (6, 12))
    for row, length in enumerate([12, 9, 7, 11, 5, 8]):  # the row of 11 has no padding among what is shown, and is asked for it
        ids[row, length:] = 0
    trainer.step(ids)
