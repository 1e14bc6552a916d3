"""Two inputs of different lengths, each with lengths of its own, in another order than the inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Aligner(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.table, self.query, self.out = nn.Embedding(30, width), nn.Linear(8, width), nn.Linear(2 * width, 8)

    def forward(self, text, mel, text_lens, mel_lens):
        keys, query = self.table(text), self.query(F.pad(mel, (0, 0, 1, 0))[:, :-1])
        real = torch.arange(text.size(1)) < text_lens[:, None]
        weights = (query @ keys.transpose(1, 2) / 4).masked_fill(~real[:, None], -1e4).softmax(-1)
        return self.out(torch.cat([query, weights @ keys], -1)) * (torch.arange(mel.size(1)) < mel_lens[:, None])[..., None]


torch.manual_seed(0)
model = Aligner()
optimizer = torch.optim.Adam(model.parameters())
text_lens, mel_lens = torch.tensor([3, 7, 5, 4]), torch.tensor([20, 9, 14, 11])
text, real = torch.randint(1, 30, (4, 7)) * (torch.arange(7) < text_lens[:, None]), torch.arange(20) < mel_lens[:, None]
mel = torch.randn(4, 20, 8) * real[..., None]
loss = F.l1_loss(model(text, mel, text_lens, mel_lens)[real], mel[real])
optimizer.zero_grad()
loss.backward()
optimizer.step()
