# rule: label-shift, exactly
# says: the labels are shifted the wrong way
BUG = True
import torch
from torch import nn

PAD, START = 0, 1


def decoder_inputs(labels):
    moved = torch.full_like(labels, PAD)
    if BUG:
        moved[:, :-1] = labels[:, 1:]  # culprit
    else:
        moved[:, 1:] = labels[:, :-1]
        moved[:, 0] = START
    return moved.masked_fill(moved == -100, PAD)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.run, self.out = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, picture, labels):
        states, _ = self.run(self.embed(decoder_inputs(labels)), picture[None])
        scores = self.out(states)
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), scores  # culprit


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.Adam(model.parameters())
labels = torch.randint(3, 30, (6, 9))
for row, length in enumerate((9, 5, 7, 6, 8, 4)):
    labels[row, length:] = -100
for _ in range(2):
    loss, _ = model(torch.randn(6, 16), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
