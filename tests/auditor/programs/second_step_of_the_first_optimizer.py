# rule: no-update
# says: takes a second step, with no `backward()` since its first
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(6, 5), nn.Linear(5, 3)
of_encoder = torch.optim.Adam(encoder.parameters())
of_head = torch.optim.Adam(head.parameters())
for _ in range(5):
    of_encoder.zero_grad()
    of_head.zero_grad()
    loss = nn.functional.cross_entropy(head(torch.relu(encoder(torch.randn(7, 6)))), torch.randint(0, 3, (7,)))
    loss.backward()
    of_encoder.step()
    (of_encoder if BUG else of_head).step()  # culprit
