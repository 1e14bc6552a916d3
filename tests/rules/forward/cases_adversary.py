"""Programs of a third round of users' code: what they were once told wrongly, or not told at all."""

from forward_harness import Case

CASES = [
    Case("padded-and-joined", """\
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
words = {"<pad>": 0, "a": 1, "b": 2}
def encoded(text):
    return torch.tensor([words[w] for w in text.split()] + [len(words)])  #! create
batch = pad_sequence([encoded("a b a b"), encoded("b")], batch_first=True, padding_value=0)
nn.Embedding(len(words), 4)(batch)  #! index
""", "index-out-of-range", ("holds 3", "3 rows"), late=(6, 8)),
    Case("mask-without-the-added-token", """\
import torch
from torch import nn
attention, first = nn.MultiheadAttention(8, 2, batch_first=True), nn.Parameter(torch.zeros(1, 1, 8))
words = torch.randn(3, 7, 8)
padding = torch.zeros(3, 7, dtype=torch.bool)  #! create
x = torch.cat([first.expand(3, -1, -1), words], 1)  #! create
attention(x, x, x, key_padding_mask=padding)  #! operand
""", "attention-mask", ("`padding` [3, 7]", "Give the mask 8 columns"), late=False),
    Case("loss-of-whole-numbers", """\
import torch
from torch import nn
scores = nn.Linear(3, 1)(torch.randn(4, 3)).squeeze(1)
clicked = torch.randint(0, 2, (4,))  #! create
nn.BCEWithLogitsLoss()(scores, clicked)  #! operand
""", "dtype-mismatch", ("`clicked` is int64", "float32 is needed"), late=False),
    Case("padding-itself", """\
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
batch = pad_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])], batch_first=True, padding_value=-1)  #! create
nn.Embedding(9, 4)(batch)  #! index
""", "index-out-of-range", ("`batch[1, 2]` = -1",)),
    Case("odd-sizes-in-a-unet", """\
import torch
from torch import nn
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.last = nn.Conv2d(8, 1, 3, padding=1)
    def forward(self, x):
        skip = self.down(x)
        deep = self.middle(self.pool(skip))  #! create
        return self.last(torch.cat([self.up(deep), skip], dim=1))  #! operand
image = torch.randn(2, 1, 25, 25)  #! create
UNet()(image)
""", "cat-shape", ("`skip`, has 25", "`self.up(deep)` has shape [2, 4, 24, 24]"), late=False),
    Case("pooled-beside-flat", """\
import torch
from torch import nn
pool, line = nn.AdaptiveAvgPool2d(1), nn.Linear(5, 4)
image, table = torch.randn(2, 4, 8, 8), torch.randn(2, 5)
torch.cat([pool(image), line(table)], dim=1)  #! operand
""", "cat-shape", ("`pool(image)` has shape [2, 4, 1, 1]", ".flatten(1)"), late=False),
    Case("turned-before-a-comparison", """\
import torch
scores, labels = torch.randn(8, 5), torch.randint(0, 5, (8,))
best = scores.topk(3, 1).indices
best = best.t()  #! create
right = best.eq(labels.view(1, -1).expand_as(best))
right[:3].view(-1).float().sum()  #! operand
""", "view-size", ("`best.t()`", "not contiguous"), late=False),
    Case("checkpoint-of-another-size", """\
import torch
from torch import nn
def built(classes):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes))  #! create
saved = built(1000).state_dict()  #! create
model = built(10)  #! create
model.load_state_dict(saved)  #! operand
""", "state-dict", ("`2.weight`", "[1000, 8]", "[10, 8]"), late=False),
    Case("checkpoint-with-a-prefix", """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(2, 2))
saved = {f"module.{key}": value for key, value in model.state_dict().items()}
model.load_state_dict(saved)  #! operand
""", "state-dict", ("`module.`", "DataParallel"), late=False),
    Case("whole-checkpoint", """\
import torch
from torch import nn
def resume(model, checkpoint):
    model.load_state_dict(checkpoint)  #! operand
    return checkpoint["epoch"]
model = nn.Linear(2, 2)
resume(model, {"epoch": 3, "weights": model.state_dict()})
""", "state-dict", ("'weights'", "one level deeper"), late=False),
    Case("lengths-not-sorted", """\
import torch
from torch.nn.utils.rnn import pack_padded_sequence
lengths = torch.tensor([2, 5, 3])  #! create
pack_padded_sequence(torch.randn(3, 5, 4), lengths, batch_first=True)  #! operand
""", "recurrent-state", ("not in decreasing order", "from 2 to 5", "enforce_sorted=False")),
    Case("length-of-nothing", """\
import torch
from torch.nn.utils.rnn import pack_padded_sequence
texts = [[3, 4, 1], [], [5]]
lengths = torch.tensor([len(text) for text in texts])  #! create
pack_padded_sequence(torch.randn(3, 3, 2), lengths, batch_first=True, enforce_sorted=False)  #! operand
""", "recurrent-state", ("`lengths[1]` = 0", "length of 0")),
    Case("nothing-left-to-choose", """\
import torch
def best(boxes, scores, least):
    boxes, scores = boxes[scores > least], scores[scores > least]  #! create
    return boxes[scores.argmax()]  #! operand
best(torch.rand(4, 4), torch.tensor([0.1, 0.2, 0.3, 0.4]), 0.5)
""", "empty-tensor", ("`scores` is empty", "`argmax`"), late=False),
    Case("batch-first-forgotten", """\
import torch
from torch import nn
layer = nn.TransformerEncoderLayer(8, 2, 16)  #! create
x = torch.randn(5, 12, 8)
padding = torch.zeros(5, 12, dtype=torch.bool)  #! create
layer(x, src_key_padding_mask=padding)  #! operand
""", "attention-mask", ("`padding` [5, 12]", "batch_first=True"), late=False),
    Case("both-directions", """\
import torch
from torch import nn
class Tagger(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.rnn = nn.LSTM(4, width, bidirectional=True, batch_first=True)  #! create
        self.out = nn.Linear(width, classes)  #! create
    def forward(self, x):
        h, _ = self.rnn(x)  #! create
        return self.out(h)  #! operand
Tagger(16, 3)(torch.randn(2, 7, 4))  #! create
""", "matmul-shape", ("2 × 16 = 32", "bidirectional"), late=False),
    Case("groups-do-not-divide", """\
import torch
from torch import nn
def block(channels, groups=8):  #! create
    return nn.Sequential(nn.Conv2d(3, channels, 3), nn.GroupNorm(groups, channels))  #! operand
block(16), block(20)  #! create
""", "norm-shape", ("20 channels into 8 groups",)),
    Case("no-class-here", """\
import torch
from torch import nn
mask = torch.randint(0, 3, (2, 5, 5))
mask[:, 0] = 255  #! create
nn.CrossEntropyLoss()(torch.randn(2, 3, 5, 5), mask)  #! index
""", "class-out-of-range", ("255", "ignore_index=255"), late=True),
    Case("losses-to-numpy", """\
import numpy as np
import torch
w = torch.ones(2, requires_grad=True)
losses = [(w * k).sum() for k in range(3)]  #! create
np.mean(losses)  #! operand
""", "numpy-conversion", ("[value.item() for value in losses]",)),
    Case("the-name-of-the-argument", """\
import torch
def normalised(x, axis):
    return x - x.mean(axis, keepdim=True)  #! index
features = torch.randn(16)  #! create
normalised(features, 1)  #! create
""", "dimension-out-of-range", ("`dim` = 1 (your `axis`)",), late=False),
    Case("one-row-of-the-edges", """\
import torch
edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])  #! create
source, goal = edges
torch.zeros(4).index_add_(0, goal, torch.ones(4))  #! index
""", "index-out-of-range", ("`goal[3]` = 4", "Keep the values of `goal` within 0…3")),
    Case("numbers-stacked", """\
import torch
actions = []  #! create
for _ in range(3):
    actions.append(torch.randint(0, 2, ()).item())
torch.stack(actions)  #! operand
""", "cat-shape", ("Element 0 of `actions` is of type int", "torch.tensor(actions)"), late=False),
    Case("a-mask-of-the-batchs-size", """\
import torch
from torch import nn
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
words = torch.randn(4, 6, 8)  #! create
mask = nn.Transformer.generate_square_subsequent_mask(words.size(0))  #! create
layer(words, src_mask=mask)  #! operand
""", "attention-mask", ("[4, 4]; [6, 6] is needed", "Make the mask [6, 6]"), late=False),
    Case("two-sizes-of-state", """\
import torch
from torch import nn
reader = nn.GRU(8, 16, batch_first=True)  #! create
writer = nn.GRUCell(8, 32)  #! create
_, state = reader(torch.randn(4, 10, 8))  #! create
writer(torch.zeros(4, 8), state[-1])  #! operand
""", "recurrent-state", ("`state[-1]` has 16 features", "a state of 32"), late=False),
    Case("the-state-of-another-batch", """\
import torch
from torch import nn
cell = nn.LSTMCell(5, 6)
h, c = torch.zeros(8, 6), torch.zeros(8, 6)  #! create
for batch in torch.randn(20, 5).split(8):  #! create
    h, c = cell(batch, (h.detach(), c.detach()))  #! operand
""", "recurrent-state", ("has a batch of 8; the input has 4",), late=False),
    Case("sizes-from-a-configuration", """\
import torch
from dataclasses import dataclass, field
from torch import nn
@dataclass
class Config:
    width: int = 64  #! create
    sizes: list = field(default_factory=lambda: [32, 48, 10])  #! create
class Block(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)  #! create
    def forward(self, x):
        return torch.relu(self.fc(x))  #! operand
class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = Block(16, cfg.width)  #! create
        self.blocks = nn.Sequential(*[Block(a, b) for a, b in zip(cfg.sizes, cfg.sizes[1:])])  #! create
    def forward(self, x):
        return self.blocks(self.inp(x))
net = Net(Config())
net(torch.randn(8, 16))
""", "matmul-shape", ("the 64 is set here", "the 32 is set here", "`net.blocks.0.fc` takes 32"), late=False),
    Case("sizes-from-nested-tables", """\
import torch
from torch import nn
HIDDEN = 24  #! create
CFG = {"model": {"d": 12, "layers": [HIDDEN, 30]}}  #! create
def build(cfg):
    d = cfg["model"]["d"]
    first = nn.Linear(20, d)  #! create
    return nn.Sequential(first, nn.ReLU(), nn.Linear(cfg["model"]["layers"][0], 2))  #! create
m = build(CFG)
m(torch.randn(3, 20))  #! operand
""", "matmul-shape", ("the 12 is set here", "the 24 is set here"), late=(8, 10)),
    Case("numbers-through-keywords", """\
import torch
from torch import nn
CONFIG = {
    "encoder": {"in_dim": 20, "out_dim": 32},  #! create
    "decoder": {"in_dim": 30, "out_dim": 20},  #! create
}
class Part(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.fc = nn.Linear(in_dim, out_dim)  #! create
    def forward(self, x):
        return self.fc(x)  #! operand
KINDS = {"part": Part}
def build(kind, **options):
    return KINDS[kind](**options)
encoder, decoder = build("part", **CONFIG["encoder"]), build("part", **CONFIG["decoder"])
decoder(encoder(torch.randn(8, 20)))
""", "matmul-shape", ("32 features", "takes 30"), late=False),
    Case("heads-replaced", """\
import torch
from torch import nn
from dataclasses import dataclass, replace
@dataclass
class Config:
    width: int = 64
    heads: int = 8
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)  #! create
    def forward(self, x):
        b, t, c = x.shape
        return self.q(x).view(b, t, self.heads, c // self.heads)  #! operand
base = Config(width=60)  #! create
config = replace(base, heads=7)  #! create
net = Attention(config.width, config.heads)  #! create
net(torch.randn(2, 5, config.width))
""", "view-size", ("60 is not divisible by 7",), late=False),
    Case("configuration-updated", """\
import torch
from torch import nn
DEFAULTS = {"width": 64, "heads": 4}  #! create
def parsed(changes):
    config = DEFAULTS.copy()
    config.update(changes)
    return config
class Mixer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads)  #! create
    def forward(self, x):
        return self.attention(x, x, x)[0]  #! operand
mixer = Mixer(**parsed({"width": 96}))  #! create
mixer(torch.randn(4, 10, DEFAULTS["width"]))  #! create
""", "attention-mask", ("64 features", "built for 96"), late=False),
    Case("number-beside-arithmetic", """\
import torch
from torch import nn
class Bottleneck(nn.Module):
    def __init__(self, planes, expansion):
        super().__init__()
        self.last = nn.Conv2d(planes, planes * expansion, 1)  #! create
    def forward(self, x):
        return self.last(x) + x  #! operand
def stage(count):
    return Bottleneck(count * 2, 4)
stage(4)(torch.randn(2, 8, 5, 5))  #! create
""", "broadcast-mismatch", ("32 against 8",), late=False),
    Case("vocabulary-without-its-special-words", """\
import torch
from torch import nn
words = "the cat sat on the mat".split()
names = ["<pad>", "<unk>"] + sorted(set(words))
index = {word: number for number, word in enumerate(names)}  #! create
class Reader(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.table = nn.Embedding(size, 8)  #! create
    def forward(self, ids):
        return self.table(ids)  #! index
size = len(set(words))  #! create
reader = Reader(size)  #! create
reader(torch.tensor([index[word] for word in words]))
""", "index-out-of-range", ("legal: 0…4", "5 rows"), late=False),
    Case("lined-up-with-the-last", """\
import torch
from torch import nn
time = nn.Linear(16, 32)
image = torch.randn(4, 32, 10, 10)
image + time(torch.randn(4, 16))  #! operand
""", "broadcast-mismatch", ("lined up with the last", "[..., None, None]"), late=(4, 5)),
    Case("too-few-outputs", """\
import torch
from torch import nn
def build(hidden=16, classes=3):  #! create
    return nn.Sequential(nn.Linear(12, hidden), nn.Linear(hidden, classes))  #! create
labels = torch.tensor([0, 1, 3, 2])  #! create
nn.functional.cross_entropy(build()(torch.randn(4, 12)), labels)  #! index
""", "class-out-of-range", ("4 outputs",), late=False),
    Case("handed-on", """\
import torch
from torch.nn import functional as F
def each(prediction, y):
    return F.mse_loss(prediction, y, reduction="none").mean(dim=1)  #! create
loss = each(torch.randn(8, 5), torch.randn(8, 5))
best = torch.zeros(8)
now = loss.detach()
if now < best:  #! operand
    best = now
""", "not-a-scalar", ("`now < best` [8]",), late=(7, 8)),
    Case("shuffled-channels", """\
import torch
from torch import nn
body = nn.Conv2d(3, 10 * 4, 3, padding=1)  #! create
shuffle = nn.PixelShuffle(4)  #! create
shuffle(body(torch.randn(1, 3, 8, 8)))  #! operand
""", "torch-error", ("upscale_factor", "40"), late=False),
    Case("one-step-shorter", """\
import torch
from torch import nn
from torch.nn import functional as F
model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
ids = torch.randint(0, 30, (4, 12))  #! create
scores, targets = model(ids), ids[:, 1:]  #! create
F.cross_entropy(scores.reshape(-1, 30), targets.reshape(-1))  #! operand
""", "loss-target", ("are 4 × 12", "are 4 × 11", "one step shorter"), late=False),
    Case("positions-counted", """\
import torch
from torch import nn
class Reader(nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.table = nn.Embedding(longest, 8)  #! create
    def forward(self, ids):
        batch, steps = ids.shape
        return self.table(torch.arange(steps))  #! index
reader = Reader(longest=16)  #! create
reader(torch.zeros(2, 20, dtype=torch.long))  #! create
""", "index-out-of-range", ("= 16", "0…15"), late=False),
    Case("made-without-memory", """\
import torch
from torch import nn
def empty(size):
    with torch.device("meta"):  #! create
        return nn.Linear(size, size)  #! create
x = torch.randn(2, 4)  #! create
empty(4)(x)  #! operand
""", "device-mismatch", ("on meta", "to_empty"), late=False),
    Case("the-same-number-twice", """\
import torch
from torch import nn
hidden, out = 32, 32  #! create
class Net(nn.Module):
    def __init__(self, n_hidden, n_out):
        super().__init__()
        self.a = nn.Linear(n_hidden, n_out)  #! create
        self.b = nn.Linear(24, 2)  #! create
    def forward(self, x):
        return self.b(self.a(x))  #! operand
net = Net(hidden, out)  #! create
net(torch.randn(4, 32))
""", "matmul-shape", ("32 features", "takes 24"), late=False),
    Case("two-dimensions-split", """\
import torch
def windows(x, size):
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c)  #! operand
side = 7  #! create
windows(torch.randn(1, 32, 32, 3), side)  #! create
""", "view-size", ("Dimension 2 of `x` has size 32; it is to be split into 4 × 7 = 28",), late=False),
    Case("keyword-of-a-factory", """\
import torch
from torch import nn
class Pool(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.axis = axis
    def forward(self, x):
        return x.mean(dim=self.axis)  #! index
def make(kind, **options):
    return {"pool": Pool}[kind](**options)
pool = make("pool", axis=3)  #! create
pool(torch.randn(2, 16, 8))  #! create
""", "dimension-out-of-range", ("`dim` = 3",), late=False),
    Case("counted-in-a-loop", """\
import torch
from torch import nn
def build(spec, c, side):
    layers, flat = [], False
    for kind, out in spec:
        if kind == "conv":
            layers.append(nn.Conv2d(c, out, 3, padding=1))
        elif not flat:
            layers.append(nn.Flatten())
            c, flat = c * side, True  #! create
        if kind == "linear":
            layers.append(nn.Linear(c, out))  #! create
        c = out
    return nn.Sequential(*layers)
net = build([("conv", 16), ("linear", 10)], 3, 8)
net(torch.randn(4, 3, 8, 8))  #! operand
""", "matmul-shape", ("1024 features", "takes 128"), late=(15, 16)),
    Case("reflected-too-far", """\
import torch
from torch.nn import functional as F
clip = torch.randn(1, 1, 300)  #! create
F.pad(clip, (512, 512), mode="reflect")  #! operand
""", "conv-shape", ("300 values at dimension 2", "must be smaller than the dimension"), late=True),
    Case("as-many-pixels-as-channels", """\
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(8, 32, 1), nn.BatchNorm2d(8))  #! create
net(torch.randn(2, 8, 8, 8))  #! operand
""", "norm-shape", ("32 channels", "Build the layer with 32 features"), late=False),
]
