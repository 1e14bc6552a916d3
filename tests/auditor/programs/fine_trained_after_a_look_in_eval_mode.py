# A part is tried out in eval mode when it is built, and trained afterwards; the whole is put in train mode.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.ReLU())
encoder.eval()
with torch.no_grad():
    width = encoder(torch.randn(1, 8)).shape[-1]
model = nn.Sequential(encoder, nn.Linear(width, 3))
opt = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    model.train()
    loss = F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 3, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
