# rule: padding-leak, exactly
# says: through `lstm`
# says: pack_padded_sequence
BUG = True
import torch
from torch import nn


class Speech(nn.Module):
    def __init__(self, bands=16, d=16):
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv2d(1, 4, 3, 2, 1), nn.LSTM(2 * bands, d, batch_first=True, bidirectional=True), nn.Linear(2 * d, 12)

    def forward(self, frames, lengths):
        x, steps = self.conv(frames.unsqueeze(1)).relu().permute(0, 3, 1, 2).flatten(2), (lengths + 1) // 2
        x = x * (torch.arange(x.shape[1]) < steps[:, None]).unsqueeze(-1)
        if BUG:
            y, _ = self.rnn(x)  # culprit
        else:
            y, _ = self.rnn(nn.utils.rnn.pack_padded_sequence(x, steps, batch_first=True, enforce_sorted=False))
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        return self.out(y).log_softmax(-1).transpose(0, 1), steps


torch.manual_seed(0)
lengths = torch.tensor([40, 31, 24, 36])
frames = torch.randn(4, 16, 40) * (torch.arange(40) < lengths[:, None])[:, None]
net, ctc = Speech(), nn.CTCLoss(zero_infinity=True)
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    scores, steps = net(frames, lengths)
    loss = ctc(scores, torch.randint(1, 12, (4, 6)), steps, torch.tensor([6, 4, 3, 5]))
    opt.zero_grad()
    loss.backward()
    opt.step()
