# rule: padding-leak, exactly
# says: padded time steps of row
BUG = True
import torch
from torch import nn


class Speaker(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.front, self.mid, self.out = nn.Conv1d(1, d, 40, stride=20), nn.Conv1d(d, d, 1), nn.Linear(d, 4)

    def forward(self, wave, lengths):
        h = self.mid(torch.relu(self.front(wave.unsqueeze(1)))).relu().transpose(1, 2)
        frames = (lengths - 40) // 20 + 1
        keep = torch.arange(h.shape[1]) < frames[:, None]
        if BUG:
            return self.out(h.mean(1))  # culprit
        return self.out((h * keep[..., None]).sum(1) / frames[:, None])


torch.manual_seed(0)
waves = [torch.randn(n) for n in (390, 220, 300, 170, 260)]
batch, lengths = nn.utils.rnn.pad_sequence(waves, batch_first=True), torch.tensor([len(wave) for wave in waves])
batch[:, 7] = 0.0  # silence now and then is no padding
net = Speaker()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(batch, lengths), torch.tensor([0, 1, 2, 3, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
