# rule: suspicious-input
# says: the mask given to `src_key_padding_mask` hides the words and keeps the padding
# says: `src_key_padding_mask` takes the mask here, and True hides a position there
# says: is made here, True at positions that hold data
# says: the other way round: True at padding
BUG = True
import torch
from torch import nn


def steps_mask(lengths, longest):
    steps = torch.arange(longest)
    if BUG:
        return steps[None] < lengths[:, None]  # culprit
    return steps[None] >= lengths[:, None]


class SpeechEncoder(nn.Module):
    def __init__(self, mels=20, width=16):
        super().__init__()
        self.inp = nn.Linear(mels, width)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 6)

    def forward(self, frames, frame_lengths):
        mask = steps_mask(frame_lengths, frames.size(1))
        h = self.layers(self.inp(frames), src_key_padding_mask=mask)
        keep = torch.arange(frames.size(1))[None] < frame_lengths[:, None]
        return self.out((h * keep[..., None]).sum(1) / frame_lengths[:, None])


torch.manual_seed(0)
model = SpeechEncoder()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    lengths = torch.tensor([17, 12, 9, 15, 6])  # of 18: what is written to disk is padded to a multiple of two
    frames = torch.randn(5, 18, 20) * (torch.arange(18)[None] < lengths[:, None])[..., None]
    loss = nn.functional.cross_entropy(model(frames, lengths), torch.arange(5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
