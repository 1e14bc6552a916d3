# rule: gradient-cut
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(5, 3), nn.Linear(3, 5)
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
x = torch.randn(6, 5)
code = encoder(x)
scale = code.abs().max().item() if BUG else code.abs().max()
if BUG:
    code = torch.tensor(code.tolist())  # culprit
loss = ((decoder(code / scale) - x) ** 2).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
print(float(loss))
