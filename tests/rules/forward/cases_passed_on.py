"""Programs whose bad index goes through many hands: what only passes it on is no culprit."""

from forward_harness import Case

CASES = [
    Case("padding-of-a-collator-object", """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
class Pad:
    def __init__(self, filler, longest=9):
        self.filler, self.longest = filler, longest
    def __call__(self, rows):
        ids = [row["ids"][:self.longest] for row in rows]
        width = max(map(len, ids))
        ids = [row + [self.filler] * (width - len(row)) for row in ids]
        return {"ids": torch.as_tensor(ids).long(), "kind": torch.as_tensor(np.asarray([row["kind"] for row in rows]))}
rows = [{"ids": [3, 4, 5, 6], "kind": 0}, {"ids": [8, 9], "kind": 1}]
join = Pad(filler=-1)  #! create
table = nn.Embedding(20, 4)
for batch in DataLoader(rows, batch_size=2, collate_fn=join):
    batch = {name: part.to("cpu") for name, part in batch.items()}
    table(batch["ids"])  #! index
""", "index-out-of-range", ("= -1", "0…19", "the value -1 comes from here")),
    Case("padding-of-a-partial", """\
import functools
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
letters = {letter: k for k, letter in enumerate("abcdefghij")}
SPECIAL = {"<s>": 11, "<pad>": 10}  #! create
def join(words, filler):
    rows = [torch.tensor([letters[c] for c in word]) for word in words]
    return pad_sequence(rows, batch_first=True, padding_value=filler)  #! create
loader = DataLoader(["cab", "fidge", "he"], batch_size=3, collate_fn=functools.partial(join, filler=SPECIAL["<pad>"]))
table = nn.Embedding(len(letters), 5)  #! create
for ids in loader:
    table(ids)  #! index
""", "index-out-of-range", ("= 10", "0…9"), late=(12, 13, 14)),
    Case("unknown-word-of-a-padded-batch", """\
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
class Texts(Dataset):
    def __init__(self, texts):
        self.texts, words = texts, sorted({word for text in texts[:2] for word in text.split()})
        self.number = {word: k for k, word in enumerate(words)}
        self.unknown = 99  #! create
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, i):
        return torch.tensor([self.number.get(word, self.unknown) for word in self.texts[i].split()]), i
data = Texts(["a fine day", "a bad film", "what a day"])
loader = DataLoader(data, batch_size=3, collate_fn=lambda batch: pad_sequence([ids for ids, _ in batch], batch_first=True))
table = nn.Embedding(len(data.number), 4)  #! create
for ids in loader:
    table(ids)  #! index
""", "index-out-of-range", ("= 99", "0…4", "the value 99 comes from here")),
    Case("steps-of-a-named-tuple", """\
import random
import torch
from collections import namedtuple
from torch import nn
Step = namedtuple("Step", "state action reward")
class Memory:
    def __init__(self):
        self.steps = []
    def push(self, *parts):
        self.steps.append(Step(*parts))
    def sample(self, count):
        return random.sample(self.steps, count)
def act(step):
    return 2 if step == 4 else step % 2  #! create
memory, net = Memory(), nn.Linear(4, 2)  #! create
for step in range(9):
    memory.push(torch.randn(4), act(step), 1.0)
batch = Step(*zip(*memory.sample(9)))
actions = torch.tensor(batch.action)[:, None]
net(torch.stack(batch.state)).gather(1, actions)  #! index
""", "index-out-of-range", ("= 2", "0…1", "the value 2 comes from here"), late=False),
    Case("label-of-a-dataclass", """\
import torch
from dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader
class Settings:
    kinds = 4  #! create
    width = 3
@dataclass
class Sample:
    x: list
    label: int
SAMPLES = [Sample([1.0, 2.0, 3.0], 0), Sample([0.0, 1.0, 0.0], 4)]  #! create
def join(samples):
    return torch.tensor([s.x for s in samples]), torch.tensor([s.label for s in samples])
class Head(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.out = nn.Linear(settings.width, settings.kinds)  #! create
    def forward(self, x):
        return self.out(x)
head = Head(Settings)
for x, y in DataLoader(SAMPLES, batch_size=2, collate_fn=join):
    nn.functional.cross_entropy(head(x), y)  #! index
""", "class-out-of-range", ("`y[1]` = 4", "the label 4 comes from here"), late=(12, 20, 23)),
    Case("ids-of-a-generator", """\
import torch
from enum import IntEnum
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
class Mark(IntEnum):
    START = 0
    STOP = 30  #! create
class Lines(IterableDataset):
    def __init__(self, lines):
        self.lines = lines
    def __iter__(self):
        for line in self.lines:
            yield torch.tensor([Mark.START, *line, Mark.STOP])
table = nn.Embedding(30, 4)  #! create
for ids in DataLoader(Lines([[3, 4], [5, 6]]), batch_size=2):
    table(ids)  #! index
""", "index-out-of-range", ("= 30", "0…29")),
    Case("number-kept-by-a-base", """\
import torch
from torch import nn
class Base:
    def __init__(self, unknown):
        self.unknown = unknown
        self.number = {}
class Words(Base):
    def __init__(self, words):
        super().__init__(unknown=len(words))  #! create
        self.number.update({word: k for k, word in enumerate(words)})
    def read(self, text):
        return torch.tensor([self.number.get(word, self.unknown) for word in text.split()])
words = Words(["a", "b", "c"])
table = nn.Embedding(3, 4)  #! create
ids = words.read("a b z")
table(ids)  #! index
""", "index-out-of-range", ("= 3", "0…2"), late=False),
    Case("channels-last-of-one", """\
import torch
from torch import nn
def load(count):
    rows = [torch.sin(torch.linspace(0, 6, 64)) for _ in range(count)]
    return torch.stack([row.unsqueeze(-1) for row in rows])  #! create
layer = nn.Conv1d(1, 8, kernel_size=5)
layer(load(4))  #! operand
""", "conv-shape", ("the channels come last here", "permute(0, 2, 1)"), late=False),
]  # fmt: skip
CASES += [
    Case("size-made-by-a-thread", """\
import queue
import threading
import torch
from torch import nn
ready = queue.Queue()
def produce(count, width):
    for _ in range(count):
        rows = torch.randn(4, width)  #! create
        ready.put(rows)
    ready.put(None)
net = nn.Linear(10, 2)  #! create
worker = threading.Thread(target=produce, args=(3, 12))  #! create
worker.start()
worker.join()
while (batch := ready.get()) is not None:
    net(batch)  #! operand
""", "matmul-shape", ("its 12 at dimension 1 comes from `torch.randn(4, width)` (line 8)",)),
    Case("length-of-an-object", """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
class Sentence:
    def __init__(self, ids):
        self.ids = torch.tensor(ids)
    def __len__(self):
        return len(self.ids) - 1  #! create
sentences = [Sentence(ids) for ids in ([4, 5, 6], [7], [1, 2])]
x = torch.randn(3, 3, 6)
lengths = torch.tensor([len(sentence) for sentence in sentences])
pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  #! operand
""", "recurrent-state", ("`lengths[1]` = 0", "the length 0 comes from here"), late=False),
    Case("heads-that-do-not-divide", """\
import torch
from torch import nn
class Settings:
    width = 100  #! create
    heads = 8  #! create
class Attention(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.heads = settings.heads
        self.each = settings.width // settings.heads  #! create
        self.queries = nn.Linear(settings.width, settings.width)  #! create
    def forward(self, x):
        b, t, _ = x.shape
        return self.queries(x).view(b, t, self.heads, self.each)  #! operand
Attention(Settings())(torch.randn(2, 5, 100))
""", "view-size", ("100 is not divisible by 8", "the 100 is set here"), late=False),
    Case("scale-below-zero", """\
import torch
from torch import nn
torch.manual_seed(0)
scale = nn.Linear(3, 2)(torch.randn(4, 3))  #! create
torch.distributions.Normal(torch.zeros(4, 2), scale)  #! operand
""", "distribution-constraint", ("of 8 values are refused", "greater than 0.0"), late=True),
]  # fmt: skip

CASES += [
    Case("as-large-as-the-padding", """\
import zlib
import torch
from torch import nn
from torch.utils.data import DataLoader
PAD = 40
def encode(text):
    return [zlib.crc32(word.encode()) % 3 + 38 for word in text.split()]
def join(batch):
    longest = max(len(row) for row in batch)
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in batch])  #! create
rows = list(map(encode, ["a b c d e f g", "h i j k l m n"]))
table = nn.Embedding(40, 4)  #! create
for ids in DataLoader(rows, batch_size=2, collate_fn=join):
    table(ids)  #! index
""", "index-out-of-range", ("= 40", "the value 40 passes here"), late=(10, 12, 14)),
    Case("shuffled-into-too-many", """\
import torch
from collections import namedtuple
from torch import nn
Options = namedtuple("Options", ["scale", "width"])
class Up(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.conv = nn.Conv2d(3, options.width, 3)  #! create
        self.shuffle = nn.PixelShuffle(options.scale)  #! create
    def forward(self, x):
        return self.shuffle(self.conv(x))  #! operand
class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.up = Up(options)
    def forward(self, x):
        return self.up(x)
net = Net(Options(scale=3, width=32))  #! create
net(torch.rand(1, 3, 9, 9))
""", "torch-error", ("`upscale_factor` = 3", "the layer is made here"), late=(9, 11)),
    Case("kept-on-meta", """\
import torch
from torch import nn
class Turn(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.speeds = torch.arange(0, width, 2).float() / width  #! create
    def forward(self, n):
        return torch.outer(torch.arange(n).float(), self.speeds)  #! operand
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = Turn(8)
    def forward(self, n):
        return self.turn(n)
with torch.device("meta"):  #! create
    net = Net()
net = net.to_empty(device="cpu")
net(5)
""", "device-mismatch", ("on meta", "this chooses the device"), late=(6, 8)),
]  # fmt: skip
