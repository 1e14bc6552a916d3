"""Programs whose size, dtype or number was made where several steps lie between: arrays kept in objects, halved pictures, windows, vocabularies."""

from forward_harness import Case

CASES = [
    Case("an-array-bound-again-before-it-is-returned", """\
import numpy as np
import torch
from torch import nn
def load():
    return np.arange(18.0).reshape(6, 3), np.zeros(6)
def tensors():
    x, y = load()
    x = torch.from_numpy(x / x.max())  #! create
    return x, torch.from_numpy(y)
x, y = tensors()
batch = x[:4]
nn.Linear(3, 2)(batch)  #! operand
""", "dtype-mismatch", ("`batch` is float64",)),
    Case("an-array-kept-by-a-dataset", """\
import numpy as np
import torch
from torch import nn
class Table(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = torch.from_numpy(rows)  #! create
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, k):
        return {"x": self.rows[k, 1:], "y": self.rows[k, 0]}
net = nn.Linear(3, 2)
for batch in torch.utils.data.DataLoader(Table(np.ones((6, 4))), batch_size=2):
    net(batch["x"])  #! operand
""", "dtype-mismatch", ("float64",)),
    Case("two-arrays-kept-at-once", """\
import numpy as np
import torch
from torch import nn
def prepared(x, y):
    x = torch.from_numpy(x - x.mean())  #! create
    return x, torch.as_tensor(y)
class Fit:
    def __init__(self):
        self.x, self.y = prepared(np.ones((6, 3)), np.zeros(6))
        self.net = nn.Linear(3, 1)
    def step(self, rows):
        return self.net(self.x[rows])  #! operand
Fit().step(torch.tensor([0, 2]))
""", "dtype-mismatch", ("float64",), late=False),
    Case("halved-with-a-rest", """\
import torch
import torch.nn.functional as F
from torch import nn
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.top, self.low = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
    def forward(self, x):
        a = self.top(x)
        b = self.low(F.max_pool2d(a, 2))  #! create
        return torch.cat([self.up(b), a], dim=1)  #! operand
def cropped(images, size):
    return images[..., :size, :size]  #! create
UNet()(cropped(torch.rand(1, 1, 20, 20), 15))  #! create
""", "cat-shape", ("15 becomes 7 here, and 2 × 7 is 14", "In `F.max_pool2d(a, 2)` (line 11) 15 becomes 7"), late=False),
    Case("a-decoder-that-does-not-come-back", """\
import torch
from torch import nn
class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv1d(1, 4, 3, padding=1), nn.MaxPool1d(2)
        self.up = nn.ConvTranspose1d(4, 1, 2, stride=2)
    def forward(self, x):
        h = self.pool(self.conv(x))  #! create
        return self.up(h)  #! create
x = torch.rand(3, 1, 21)  #! create
torch.nn.functional.mse_loss(Autoencoder()(x), x)  #! operand
""", "broadcast-mismatch", ("21 becomes 10 here, and 2 × 10 is 20",), late=False),
    Case("a-mask-as-long-as-the-model-reads", """\
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.register_buffer("mask", torch.triu(torch.full((longest, longest), -1e9), 1))  #! create
    def forward(self, scores):
        return scores + self.mask  #! operand
class Model(nn.Module):
    def __init__(self, longest=16):  #! create
        super().__init__()
        self.attention = Attention(longest)
    def forward(self, scores):
        return self.attention(scores)
Model()(torch.randn(2, 3, 12, 12))  #! create
""", "broadcast-mismatch", ("torch.full((longest, longest), -1e9)", "the 16 is set here"), late=(8, 12, 15)),
    Case("windows-that-reach-past-the-end", """\
import torch
class Windows(torch.utils.data.Dataset):
    def __init__(self, series, size, ahead):
        self.series, self.size, self.ahead = series, size, ahead
    def __len__(self):
        return len(self.series) - self.size  #! create
    def __getitem__(self, i):
        return self.series[i : i + self.size], self.series[i + self.size + self.ahead - 1]  #! index
for x, y in torch.utils.data.DataLoader(Windows(torch.arange(20.0), 5, 3), batch_size=4):
    x = x * 2
""", "index-out-of-range", ("`i` is 13, and `i + self.size + self.ahead - 1` 7 more: 20 values are enough for 13 samples", "says here how many samples")),
    Case("pairs-of-neighbours", """\
import torch
class Pairs(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)  #! create
    def __getitem__(self, k):
        following = k + 1  #! create
        return self.rows[k], self.rows[following]  #! index
loader = torch.utils.data.DataLoader(Pairs(torch.randn(11, 3)), batch_size=4)
for one, other in loader:
    one = one - other
""", "index-out-of-range", ("`k` is 10, and `k + 1` 1 more: 11 values are enough for 10 samples",)),
    Case("words-counted-from-one-in-a-padded-batch", """\
import torch
from torch import nn
class Words:
    def __init__(self, text):
        self.known = sorted(set(text.split()))
        self.number = {word: k + 1 for k, word in enumerate(self.known)}  #! create
    def __len__(self):
        return len(self.known)
    def ids(self, text):
        return [self.number[word] for word in text.split()]
def padded(rows):
    out = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for k, ids in enumerate(rows):
        out[k, : len(ids)] = torch.tensor(ids)
    return out
words = Words("a b c d")
table = nn.Embedding(len(words), 3)  #! create
batch = padded([words.ids("a d b"), words.ids("c a")])
table(batch)  #! index
""", "index-out-of-range", ("`batch[0, 1]` = 4", "the value 4 comes from here"), late=False),
    Case("stars-from-one-to-five", """\
import torch
from torch import nn
class Reviews(torch.utils.data.Dataset):
    def __init__(self):
        self.stars = []
        for stars in "1 2 3 4 5 2".split():
            self.stars.append(int(stars))  #! create
    def __len__(self):
        return len(self.stars)
    def __getitem__(self, k):
        return torch.ones(3), self.stars[k]
net = nn.Linear(3, 5)
loader = torch.utils.data.DataLoader(Reviews(), batch_size=2)
for x, stars in loader:
    nn.functional.cross_entropy(net(x), stars)  #! index
""", "class-out-of-range", ("The labels run from 1 to 5", "`stars - 1`"), late=False),
    Case("channels-that-are-a-product", """\
import torch
from torch import nn
WIDTH = 4
SIDE = 32  #! create
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 2 * WIDTH, 3, padding=1), nn.MaxPool2d(4)
        self.head = nn.Linear(2 * WIDTH * (SIDE // 4) ** 2, 10)  #! create
    def forward(self, x):
        return self.head(self.pool(self.conv(x)).flatten(1))  #! operand
Net()(torch.rand(2, 1, 28, 28))  #! create
""", "matmul-shape", ("are 8 × 7 × 7", "the 512 is computed from this"), late=False),
    Case("scores-of-one-sample", """\
import torch
from torch import nn
net = nn.Linear(3, 4)  #! create
labels = torch.tensor([2, 0])  #! create
nn.functional.cross_entropy(net(torch.ones(3)), labels)  #! operand
""", "loss-target", ("The scores have no batch dimension", "read as 4 classes", "[2, C]"), late=False),
]
