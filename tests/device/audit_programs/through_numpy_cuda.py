# rule: gradient-cut
BUG = True
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(12, 6).cuda(), nn.Linear(6, 12).cuda()
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
for step in range(3):
    x = torch.randn(10, 12, device="cuda")
    code = torch.tanh(encoder(x))
    if BUG:
        code = torch.from_numpy(np.clip(code.detach().cpu().numpy(), -0.9, 0.9)).cuda()  # culprit
    else:
        code = code.clamp(-0.9, 0.9)
    loss = nn.functional.mse_loss(decoder(code), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
