# rule: padding-leak, exactly
# says: padding takes part in an attention
BUG = True
import torch
from torch import nn


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.thin = nn.Conv1d(8, 16, 3, stride=2, padding=1)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1, enable_nested_tensor=False)
        self.out = nn.Linear(16, 7)

    def forward(self, spectrum, durations):
        keep = torch.arange(spectrum.size(2)) < durations[:, None]
        h = torch.relu(self.thin(spectrum * keep.unsqueeze(1))).transpose(1, 2)
        steps = (durations + 1) // 2
        hidden = torch.arange(h.size(1)) >= steps[:, None]
        h = self.layers(h, src_key_padding_mask=None if BUG else hidden)  # culprit
        return self.out(h).log_softmax(-1), steps


torch.manual_seed(0)
durations = torch.tensor([40, 26, 18])
spectrum = torch.randn(3, 8, 40) * (torch.arange(40) < durations[:, None]).unsqueeze(1)
net = Acoustic()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    scores, steps = net(spectrum, durations)
    loss = nn.functional.ctc_loss(scores.transpose(0, 1), torch.randint(1, 7, (12,)), steps, torch.tensor([5, 4, 3]))
    opt.zero_grad()
    loss.backward()
    opt.step()
