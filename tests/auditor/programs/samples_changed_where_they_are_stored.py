# rule: suspicious-input, exactly
# says: the data set changes its samples where it stores them
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUG = True


def shaken(wave):
    if BUG:
        wave += 0.1 * torch.randn_like(wave)  # culprit
        return wave
    return wave + 0.1 * torch.randn_like(wave)


class Waves(Dataset):
    def __init__(self):
        self.waves = torch.randn(24, 10)
        self.work = torch.empty(10)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        wave = shaken(self.waves[i])
        self.work.copy_(wave)
        self.work[:5].mul_(2)  # filled anew for each sample
        several = self.waves[torch.tensor([i, 0])]
        several[0].sub_(several[1])  # an index by a tensor copies
        return self.work.clone() + several[0], wave.sum()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(2):
    for x, y in DataLoader(Waves(), batch_size=6):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x).squeeze(1), y).backward()
        optimizer.step()
