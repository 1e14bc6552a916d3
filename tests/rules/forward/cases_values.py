"""Programs whose bad index came out of plain Python: lists, vocabularies, replay buffers, datasets of numbers."""

from forward_harness import Case

CASES = [
    Case("vocabulary-that-grows", """\
import torch
from torch import nn
class Vocabulary:
    def __init__(self):
        self.table = {"<pad>": 0}
    def read(self, text):
        for word in text.split():
            self.table.setdefault(word, len(self.table) + 1)  #! create
    def ids(self, text):
        return torch.tensor([self.table.get(word, 0) for word in text.split()])
words = Vocabulary()
words.read("the cat sat on the mat")
size = len(words.table)  #! create
model = nn.Sequential(nn.Embedding(size, 4), nn.Linear(4, 2))  #! create
model(words.ids("the mat sat"))  #! index
""", "index-out-of-range", ("= 6", "0…5", "`model.0.weight` has its 6 rows"), late=False),
    Case("labels-of-a-dataset", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
stars = [5, 3, 1, 4, 2, 5]  #! create
class Reviews(Dataset):
    def __init__(self, labels):
        self.x, self.labels = torch.randn(len(labels), 3), labels
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, i):
        return self.x[i], self.labels[i]
model = nn.Linear(3, 4)  #! create
for x, y in DataLoader(Reviews(stars), batch_size=3):
    nn.functional.cross_entropy(model(x), y)  #! index
""", "class-out-of-range", ("`y[0]` = 5", "the label 5 comes from here"), late=False),
    Case("actions-from-a-buffer", """\
import random
import torch
from collections import deque
from torch import nn
class Buffer:
    def __init__(self):
        self.steps = deque(maxlen=50)
    def push(self, state, action):
        self.steps.append((state, action))
    def sample(self, count):
        states, actions = zip(*random.sample(self.steps, count))
        return torch.stack(states), torch.tensor(actions)
ACTIONS = 3  #! create
values, buffer = nn.Linear(2, ACTIONS), Buffer()  #! create
for step in range(8):
    action = random.choice([0, 1, 2]) if step else 4  #! create
    buffer.push(torch.randn(2), action)
states, actions = buffer.sample(8)
values(states).gather(1, actions[:, None])  #! index
""", "index-out-of-range", ("= 4", "0…2", "the 3 is set here"), late=(16, 19)),
    Case("kept-by-a-where", """\
import torch
from torch import nn
torch.manual_seed(0)
ids = torch.randint(0, 80, (4, 9))  #! create
kept = torch.where(ids == -100, 0, ids)
table = nn.Embedding(64, 4)  #! create
table(kept)  #! index
""", "index-out-of-range", ("0…63",), late=(5, 6, 7)),
    Case("put-in-by-a-where", """\
import torch
from torch import nn
ids = torch.arange(9)
kept = torch.where(ids % 2 == 0, 64, ids)  #! create
table = nn.Embedding(64, 4)  #! create
table(kept)  #! index
""", "index-out-of-range", ("= 64", "0…63"), late=False),
    Case("which-of-the-joined", """\
import torch
from torch import nn
def started(rows):
    return torch.cat([torch.full((len(rows), 1), END), torch.tensor(rows)], dim=1)  #! create
END = 9  #! create
nn.Embedding(9, 2)(started([[1, 2], [3, 4]]))  #! index
""", "index-out-of-range", ("= 9", "the 9 is set here"), late=False),
    Case("as-many-nodes-as-said", """\
import torch
edges = [(0, 1), (1, 2), (2, 5)]  #! create
nodes = 4  #! create
source, goal = torch.tensor(edges).t()
torch.zeros(nodes, 2).index_add_(0, goal, torch.ones(3, 2))  #! index
""", "index-out-of-range", ("`goal[2]` = 5", "0…3"), late=False),
    Case("scale-of-each-sample", """\
import torch
alphas, image = torch.linspace(0, 1, 20), torch.randn(4, 3, 8, 8)
step = torch.randint(0, 20, (4,))
alpha = alphas[step]  #! create
alpha.sqrt() * image  #! operand
""", "broadcast-mismatch", ("`alpha.sqrt()` [4]", "[..., None, None, None]"), late=False),
    Case("unet-of-a-chosen-size", """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 1, 2, stride=2)
    def forward(self, x):
        return torch.cat([x, self.up(self.down(x))], dim=1)  #! operand
SIDE = 27  #! create
image = torch.randn(2, 1, SIDE, SIDE)  #! create
Net()(image)
""", "cat-shape", ("has 28 where the other has 27",), late=False),
    Case("scale-of-a-raw-output", """\
import torch
from torch.distributions import Normal
def loss(x, y):
    mean, std = x.chunk(2, dim=-1)  #! create
    return -Normal(mean, std).log_prob(y).mean()  #! operand
loss(torch.tensor([[0.5, -0.5]]), torch.zeros(1, 1))
""", "distribution-constraint", ("`std` holds values that are not greater than 0", "softplus(std)"), late=False),
    Case("nan-of-a-constant-column", """\
import torch
from torch.distributions import Normal
layer = torch.nn.Linear(2, 1)
def standardise(batch):
    return (batch - batch.mean(0)) / batch.std(0)  #! create
means = layer(standardise(torch.ones(4, 2)))
Normal(means, torch.ones(4, 1))  #! operand
""", "distribution-constraint", ("`means` holds NaN", "(batch - batch.mean(0)) / batch.std(0)` (line 5) is behind it: 0 / 0 is NaN"), late=(6, 7)),
    Case("actions-from-one", """\
import torch
from torch.distributions import Categorical
actions = torch.tensor([1, 2, 3])  #! create
Categorical(logits=torch.zeros(3, 3)).log_prob(actions)  #! operand
""", "distribution-constraint", ("between 0 and 2", "start counting"), late=False),
    Case("one-word-too-many", """\
import torch
from torch import nn
class Words:
    def __init__(self, words):
        self.ids = {word: k for k, word in enumerate(words)}
    @property
    def size(self):
        return len(self.ids)  #! create
    def encode(self, text):
        return [self.ids[word] for word in text.split()] + [self.size]  #! create
words = Words(["a", "b", "c"])
class Table(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.rows = nn.Embedding(count, 2)  #! create
    def forward(self, text):
        ids = torch.tensor(words.encode(text))
        return self.rows(ids)  #! index
table = Table(words.size)  #! create
table("a c")
""", "index-out-of-range", ("`ids[2]` = 3", "words.size is given here"), late=False),
    Case("levels-of-an-array", """\
import numpy as np
import torch
from torch import nn
levels = np.array([0, 1, 2, 3]) + 1  #! create
nn.Embedding(3, 4)(torch.from_numpy(levels))  #! index
""", "index-out-of-range", ("= 3", "0…2"), late=False),
    Case("width-of-a-file", """\
import json
import torch
from torch import nn
spec = json.loads('{"layers": [{"in": 8, "out": 16}, {"in": 32, "out": 4}]}')  #! create
net = nn.Sequential(*[nn.Linear(layer["in"], layer["out"]) for layer in spec["layers"]])  #! create
net(torch.randn(2, 8))  #! operand
""", "matmul-shape", ("takes 32",), late=False),
    Case("array-in-parts", """\
import numpy as np
import torch
from torch import nn
def load(n):
    table = np.random.rand(n, 4)
    return torch.from_numpy(table), torch.zeros(n)  #! create
def train(net, xs):
    for k in range(0, len(xs), 2):
        part = xs[k : k + 2]
        net(part)  #! operand
xs, ys = load(6)
train(nn.Linear(4, 2), xs)
""", "dtype-mismatch", ("`part` [2, 4] is float64, from `torch.from_numpy(table)`",), late=False),
    Case("written-over-what-was-drawn", """\
import torch
from torch import nn
def drawn(step):
    x = torch.randint(0, 64, (4, 16))
    if step:
        x[2, 5] = 64  #! create
    return x
embed = nn.Embedding(64, 8)  #! create
embed(drawn(0))
embed(drawn(1))  #! index
""", "index-out-of-range", ("`drawn(1)[2, 5]` = 64", "the value 64 comes from here"), late=(6, 8, 10)),
    Case("marker-in-the-first-column", """\
import torch
from torch import nn
MARKER = 30  #! create
def marked(batch):
    out = torch.zeros(batch.size(0), batch.size(1) + 1, dtype=torch.long)
    out[:, 1:] = batch
    out[:, 0] = MARKER  #! create
    return out
embed = nn.Embedding(30, 8)  #! create
embed(marked(torch.randint(0, 30, (2, 5))))  #! index
""", "index-out-of-range", ("[0, 0]` = 30", "the value 30 comes from here", "the 30 is set here"), late=False),
]
