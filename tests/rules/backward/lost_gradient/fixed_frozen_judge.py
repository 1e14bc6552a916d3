import torch
from torch import nn

torch.manual_seed(0)
decoder, judge = nn.Linear(3, 4), nn.Linear(4, 2)
judge.requires_grad_(False)  # a judge of what the decoder makes: frozen as it should be
opt = torch.optim.SGD([*decoder.parameters(), *judge.parameters()], lr=0.1)
picture = decoder(torch.randn(5, 3))
loss = nn.functional.mse_loss(judge(picture), judge(torch.randn(5, 4)))
loss.backward()
