# says: use_reentrant=False
import torch
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)  # culprit: lost-grad


loss = Net()(torch.randn(3, 4)).mean()
loss.backward()  # culprit: call
