# rule: view-for-transpose, exactly
BUG = True
import torch
from torch import nn


class Segments(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.patches, self.place = nn.Conv2d(3, dim, 8, 8), nn.Parameter(torch.randn(1, 16, dim))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 3, 48, batch_first=True), 1, enable_nested_tensor=False)
        self.out = nn.ConvTranspose2d(dim, 5, 8, 8)

    def forward(self, images):
        h = self.patches(images)
        b, c, height, width = h.shape
        h = h.reshape(b, height * width, c) if BUG else h.flatten(2).transpose(1, 2)  # culprit
        h = self.encoder(h + self.place)
        return self.out(h.reshape(b, c, height, width) if BUG else h.transpose(1, 2).reshape(b, c, height, width))  # culprit


torch.manual_seed(0)
m = Segments()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(m(torch.randn(4, 3, 32, 32)), torch.randint(0, 5, (4, 32, 32)))
    opt.zero_grad()
    loss.backward()
    opt.step()
