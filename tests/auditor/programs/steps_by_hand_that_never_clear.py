# rule: gradients-kept, exactly
# says: no optimizer holds it
"""A line fitted by hand: the gradient of the slope is cleared after each step, that of the offset is not."""

import torch

BUG = True
torch.manual_seed(0)
points = torch.linspace(-1, 1, 30)
wanted = 2 * points + 1 + 0.05 * torch.randn(30)
slope, offset = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
for _ in range(8):
    loss = (slope * points + offset - wanted).square().mean()
    loss.backward()  # culprit
    with torch.no_grad():
        slope -= 0.1 * slope.grad
        offset -= 0.1 * offset.grad  # culprit
    slope.grad.zero_()
    if not BUG:
        offset.grad.zero_()
print(float(loss.detach()))
