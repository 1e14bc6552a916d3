"""Sizes and values behind running loops, loaders and configurations that are put together at run time."""

from forward_harness import Case

CASES = [
    Case("positions-of-a-slice", """\
import torch
from torch import nn
class Config:
    block = 8  #! create
    length = 10  #! create
class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 4), nn.Embedding(cfg.block, 4)  #! create
    def forward(self, ids):
        rows, length = ids.size()
        places = torch.arange(length)  #! create
        return self.tokens(ids) + self.places(places)  #! index
def batches(cfg):
    text = torch.randint(0, 50, (200,))
    for _ in range(2):
        starts = torch.randint(0, 100, (3,))
        yield torch.stack([text[k : k + cfg.length] for k in starts])  #! create
config = Config()
net = Net(config)
for ids in batches(config):
    net(ids).sum().backward()
""", "index-out-of-range", ("8 rows",), late=False),
    Case("configuration-of-defaults", """\
import torch
from torch import nn
DEFAULTS = {
    "data": {"features": 18, "window": 5},  #! create
    "model": {"inputs": 16, "hidden": 12},  #! create
}
def load(changes):
    merged = {name: dict(entries) for name, entries in DEFAULTS.items()}
    for name, entries in changes.items():
        merged[name].update(entries)
    return merged
cfg = load({"model": {"hidden": 24}})
rnn = nn.GRU(cfg["model"]["inputs"], cfg["model"]["hidden"], batch_first=True)  #! create
series = torch.randn(3, cfg["data"]["window"], cfg["data"]["features"])  #! create
rnn(series)  #! operand
""", "recurrent-state", ("18 features",), late=False),
    Case("arrays-of-a-dataset", """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __init__(self):
        self.x, self.y = np.ones((8, 6)), np.arange(8) % 2
    def __len__(self):
        return 8
    def __getitem__(self, k):
        return torch.from_numpy(self.x[k]), int(self.y[k])  #! create
net = nn.Linear(6, 2)
loader = DataLoader(Rows(), batch_size=4)
for x, y in loader:
    net(x)  #! operand
""", "dtype-mismatch", ("float64",)),
    Case("state-of-the-batch-before", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 5, batch_first=True)
        self.state = None
    def forward(self, x):
        out, state = self.rnn(x, self.state)  #! operand
        self.state = state.detach()  #! create
        return out
net = Net()
loader = DataLoader(TensorDataset(torch.randn(10, 4, 3)), batch_size=8)  #! create
for x, in loader:
    net(x)
""", "recurrent-state", ("A batch has 8 samples here, this one has 2", "`self.state = None`")),
    Case("unknown-word", """\
import torch
from torch import nn
class Words:
    def __init__(self, words):
        self.numbers = {word: k for k, word in enumerate(sorted(set(words)))}
        self.unknown = len(self.numbers)  #! create
    def encode(self, text):
        return [self.numbers.get(word, self.unknown) for word in text.split()]
words = Words("a b c".split())
table = nn.Embedding(len(words.numbers), 4)  #! create
ids = torch.tensor(words.encode("a d"))
table(ids)  #! index
""", "index-out-of-range", ("holds 3",)),
    Case("kinds-of-the-parts", """\
import torch
from torch import nn
def encode(samples):
    ids, kinds = [], []
    for parts in samples:
        row, kind = [], []
        for k, part in enumerate(parts):  #! create
            row += part
            kind += [k] * len(part)
        ids.append(row)
        kinds.append(kind)
    return torch.tensor(ids), torch.tensor(kinds)
table = nn.Embedding(2, 4)  #! create
ids, kinds = encode([([1, 2], [3], [4]), ([5], [6, 7], [8])])
table(kinds)  #! index
""", "index-out-of-range", ("holds 2",), late=(13, 14, 15)),
    Case("both-directions-of-another-module", """\
import torch
from torch import nn
class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.LSTM(4, width, batch_first=True, bidirectional=True)  #! create
    def forward(self, x):
        return self.rnn(x)[0]  #! create
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(6), nn.Linear(6, 3)  #! create
    def forward(self, x):
        return self.head(self.encoder(x))  #! operand
Tagger()(torch.randn(2, 5, 4))
""", "matmul-shape", ("both directions: 2 × 6 = 12",), late=False),
    Case("masks-of-a-dataset", """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Masks(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, k):
        mask = np.zeros((8, 8), dtype=np.int64)
        mask[2:4, 2:4] = 3
        mask[0] = 255  #! create
        return torch.randn(3, 8, 8), torch.from_numpy(mask)
net = nn.Conv2d(3, 21, 1)
loader = DataLoader(Masks(), batch_size=2)
for image, mask in loader:
    nn.functional.cross_entropy(net(image), mask)  #! index
""", "class-out-of-range", ("255",), late=False),
    Case("as-long-as-a-slice", """\
import torch
from torch import nn
LENGTH = 10  #! create
table = nn.Embedding(8, 4)  #! create
def parts(tokens, size):
    for k in range(0, len(tokens) - size, size):
        yield torch.tensor(tokens[k : k + size])  #! create
tokens = [(7 * k) % 5 for k in range(40)]
for ids in parts(tokens, LENGTH):  #! create
    places = torch.arange(len(ids))  #! create
    table(places)  #! index
""", "index-out-of-range", ("8 rows",), late=False),
    Case("half-and-whole", """\
import torch
scores = torch.randn(3, 4)  #! create
best, at = scores.topk(2, dim=-1)
weights = torch.zeros_like(scores, dtype=torch.float16)  #! create
weights.scatter_(-1, at, best.softmax(-1))  #! operand
""", "dtype-mismatch", ("float16",), late=(3, 4, 5)),
    Case("longer-than-the-sequences", """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
rows = [torch.randn(n, 3) for n in (4, 9, 3)]
lengths = torch.tensor([len(row) for row in rows])
cut = pad_sequence([row[:6] for row in rows], batch_first=True)
packed = pack_padded_sequence(cut, lengths, batch_first=True, enforce_sorted=False)  #! create
nn.LSTM(3, 5, batch_first=True)(packed)  #! operand
""", "recurrent-state", ("lengths up to 9",), late=False),
    Case("class-numbers-for-columns", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Genres(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, k):
        return torch.randn(12), k % 5  #! create
net = nn.Linear(12, 5)
for x, y in DataLoader(Genres(), batch_size=4):
    scores = net(x)  #! create
    nn.BCEWithLogitsLoss()(scores, y.float())  #! operand
""", "loss-target", ("one_hot(y.long(), 5)",), late=(10, 11, 12)),
    Case("beyond-the-end-of-the-queue", """\
import torch
class Queue:
    def __init__(self, size=20):  #! create
        self.rows, self.at = torch.zeros(size, 4), 0  #! create
    def push(self, keys):
        n = len(keys)
        self.rows[self.at : self.at + n] = keys  #! operand
        self.at = (self.at + n) % len(self.rows)
queue = Queue()
for _ in range(4):
    keys = torch.randn(6, 4)  #! create
    queue.push(keys)
""", "expand-size", ("2 of 6 are left",), late=False),
    Case("numbers-out-of-a-star", """\
import torch
from torch import nn
def build(kind, classes):
    width = {"small": 8, "large": 16}[kind]
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, classes))  #! create
specs = [("small", 5), ("large", 6)]  #! create
models = [build(*spec) for spec in specs]
x = torch.randn(4, 10)
torch.stack([model(x) for model in models])  #! operand
""", "cat-shape", ("[4, 6]",), late=False),
    Case("table-that-is-repeated", """\
import torch
from torch import nn
class Turn(nn.Module):
    def __init__(self, width, most=16):  #! create
        super().__init__()
        angles = torch.outer(torch.arange(most), torch.ones(width // 2))  #! create
        self.register_buffer("cos", angles.cos().repeat(1, 2))
    def forward(self, x):
        return x * self.cos[: x.shape[-2]]  #! operand
x = torch.randn(2, 20, 8)  #! create
Turn(8)(x)
""", "broadcast-mismatch", ("[16, 8]",), late=False),
    Case("bound-again-as-a-tensor", """\
import random
from collections import deque
import torch
from torch import nn
class Env:
    def action(self):
        return 3  #! create
env, net = Env(), nn.Linear(5, 3)  #! create
buffer = deque(maxlen=50)
for _ in range(8):
    buffer.append((torch.randn(5), env.action()))
def update(batch):
    s, a = zip(*batch)
    s, a = torch.stack(s), torch.tensor(a)
    return net(s).gather(1, a.unsqueeze(1))  #! index
update(random.sample(buffer, 4))
""", "index-out-of-range", ("holds 3",), late=False),
    Case("pooling-of-a-helper", """\
import torch
from torch import nn
def stage(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(2))  #! create
net = nn.Sequential(*[stage(a, b) for a, b in zip((1, 4, 4), (4, 4, 4))])
x = torch.randn(2, 1, 3, 3)  #! create
net(x)  #! operand
""", "conv-shape", ("MaxPool2d",), late=False),
    Case("heads-that-do-not-divide", """\
from torch import nn
width = 24  #! create
heads = 5  #! create
layer = nn.TransformerEncoderLayer(d_model=width, nhead=heads)  #! operand
""", "torch-error", ("24 is not divisible by 5", "4 or 6")),
    Case("fewer-heads-for-keys", """\
import torch
from torch import nn
heads, groups = 8, 2  #! create
q = torch.randn(3, heads, 5, 4)  #! create
k = torch.randn(3, groups, 6, 4)  #! create
q @ k.transpose(-1, -2)  #! operand
""", "broadcast-mismatch", ("repeat_interleave(4, dim=1)",), late=False),
    Case("probabilities-of-more-classes", """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(4, 5)  #! create
x = torch.randn(3, 4)
y = F.one_hot(torch.arange(3), 6).float()  #! create
F.cross_entropy(net(x), y)  #! operand
""", "loss-target", ("5 classes in the scores and 6 in the targets",), late=False),
    Case("made-by-a-class-method", """\
from dataclasses import asdict, dataclass
import torch
from torch import nn
@dataclass
class Config:
    size: int = 6  #! create
    width: int = 4
    @classmethod
    def of(cls, options):
        return cls(**{**asdict(cls()), **options})
class Words:
    def __init__(self, words):
        self.numbers = {word: k for k, word in enumerate([*words, "<end>"])}  #! create
    def __call__(self, text):
        return [self.numbers[word] for word in text.split()] + [self.numbers["<end>"]]
config = Config.of({"width": 8})
table = nn.Embedding(config.size, config.width)  #! create
words = Words("a b c d e f".split())
ids = torch.tensor([words("a b"), words("c d")])
table(ids)  #! index
""", "index-out-of-range", ("holds 6",), late=False),
]  # fmt: skip
