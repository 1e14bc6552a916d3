import torch
from torch import nn


class Decoder(nn.Module):
    """Given the tokens one by one, it answers for each but the last."""

    def __init__(self, words, width):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cell, self.out = nn.GRUCell(width, width), nn.Linear(width, words)

    def forward(self, state, target):
        answers = []
        for t in range(1, target.size(1)):
            state = self.cell(self.embedding(target[:, t - 1]), state)
            answers.append(self.out(state))
        return torch.stack(answers, 1)


torch.manual_seed(0)
encoder, decoder = nn.Linear(5, 16), Decoder(12, 16)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
loss_of = nn.CrossEntropyLoss(ignore_index=0)
for _ in range(4):
    lengths = torch.randint(4, 9, (8,))
    lengths[2] = 8
    target = torch.randint(1, 12, (8, 8)).masked_fill(torch.arange(8) >= lengths[:, None], 0)
    logits = decoder(torch.tanh(encoder(torch.randn(8, 5))), target)
    loss = loss_of(logits.reshape(-1, 12), target[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
