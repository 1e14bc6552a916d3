# rule: padding-in-loss
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, features=6, width=12):
        super().__init__()
        self.rnn, self.out = nn.GRU(features, width, batch_first=True), nn.Linear(width, features)

    def forward(self, noisy, lengths):
        return self.out(self.rnn(noisy)[0])


torch.manual_seed(0)
lengths = torch.tensor([12, 5, 9, 7])
real = torch.arange(12) < lengths[:, None]
model = Denoiser()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    clean = torch.randn(4, 12, 6) * real[..., None]
    guess = model((clean + 0.3 * torch.randn(4, 12, 6)) * real[..., None], lengths)
    if BUG:
        loss = F.l1_loss(guess, clean)  # culprit
    else:
        loss = F.l1_loss(guess[real], clean[real])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
