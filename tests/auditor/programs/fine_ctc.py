import torch
from torch import nn


class DeepSpeech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(20, 32, 5, padding=2), nn.BatchNorm1d(32), nn.Hardtanh())
        self.rnn = nn.GRU(32, 24, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(48, 12)

    def forward(self, specs, spec_lengths):
        mask = torch.arange(specs.shape[2])[None] < spec_lengths[:, None]
        h = self.conv(specs) * mask[:, None]
        p = nn.utils.rnn.pack_padded_sequence(h.transpose(1, 2), spec_lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, n = nn.utils.rnn.pad_packed_sequence(self.rnn(p)[0], batch_first=True)
        return self.fc(h).log_softmax(-1).transpose(0, 1), n


torch.manual_seed(0)
model = DeepSpeech()
opt = torch.optim.AdamW(model.parameters(), 3e-4)
ctc = nn.CTCLoss(zero_infinity=True)
for _ in range(3):
    lengths = torch.tensor([40, 28, 33])
    specs = torch.randn(3, 20, 40) * (torch.arange(40)[None, None] < lengths[:, None, None])
    targets, tl = torch.randint(1, 12, (3, 8)), torch.tensor([8, 5, 6])
    lp, n = model(specs, lengths)
    loss = ctc(lp, targets, n, tl)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
