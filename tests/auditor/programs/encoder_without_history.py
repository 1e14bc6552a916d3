# rule: gradient-cut
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(6, 8), nn.Linear(8, 6)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
x = torch.randn(10, 6)
for _ in range(2):
    with torch.set_grad_enabled(not BUG):
        code = torch.relu(encoder(x))  # culprit
    loss = F.mse_loss(decoder(code), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
