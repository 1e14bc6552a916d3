# rule: not-finite, exactly
# says: `x`, shape [15, 4], held 1 NaN, the first at [5, 2]
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Targets that are missing, and left out of the loss, are no mistake."""

    def __init__(self):
        self.x, self.y = torch.randn(90, 4), torch.randn(90, 2)
        self.y[::5, 0] = float("nan")
        if BUG:
            self.x[65, 2] = float("nan")

    def __len__(self):
        return 90

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(2):
    for batch in DataLoader(Rows(), batch_size=15):
        x, y = batch["x"], batch["y"]  # culprit
        known = ~y.isnan()
        pred = net(x)
        loss = nn.functional.mse_loss(pred[known], y[known])
        opt.zero_grad()
        loss.backward()
        opt.step()  # culprit
