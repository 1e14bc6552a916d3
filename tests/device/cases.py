"""Programs that end in a device-side assert, each with the line that made it and what the report must say.

`DEVICE` is the real GPU or the pretended one. The mark `# here` stands on the culprit's line; the error itself comes up
at some later line.
"""

from __future__ import annotations

from dataclasses import dataclass

_HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
"""
_TAIL = """
later = torch.ones(3, device=DEVICE) * 2
for _ in range(3):
    later = later + 1
print(later.sum().item(), {result})
"""


@dataclass(frozen=True)
class Case:
    name: str
    body: str
    says: tuple[str, ...]
    rule: str = "index-out-of-range"
    result: str = "result.sum().item()"
    gpu_only: bool = False
    head: str = ""

    def program(self, device: str) -> str:
        return f'{_HEAD}{self.head}DEVICE = "{device}"\n{self.body}{_TAIL.replace("{result}", self.result)}'

    @property
    def line(self) -> int:
        """Of the culprit, counted from 1."""
        lines = self.program("cuda").splitlines()
        return next(number for number, line in enumerate(lines, 1) if line.endswith("# here"))


CASES = (
    Case("embedding in a module of a module", """
class Words(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.table = nn.Embedding(count, 4)
    def forward(self, ids):
        return self.table(ids)  # here
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = Words(20)
        self.out = nn.Linear(4, 2)
    def forward(self, ids):
        return self.out(self.words(ids))
model = Model().to(DEVICE)
ids = torch.arange(12).reshape(3, 4)
ids[2, 1] = 23
result = model(ids.to(DEVICE))
""", ("`ids[2, 1]` = 23", "0…19", "model.words.table", "[20, 4]")),
    Case("embedding called as a function", """
weight = torch.randn(10, 4, device=DEVICE)
ids = torch.tensor([3, 10, 1], device=DEVICE)
result = F.embedding(ids, weight)  # here
""", ("`ids[1]` = 10", "0…9", "`weight`")),
    Case("negative id in an embedding", """
table = nn.Embedding(10, 4).to(DEVICE)
ids = torch.tensor([3, -100, 1], device=DEVICE)
result = table(ids)  # here
""", ("`ids[1]` = -100", "0…9", "ignore")),
    Case("int32 ids", """
table = nn.Embedding(10, 4).to(DEVICE)
ids = torch.tensor([[3, 1], [12, 0]], dtype=torch.int32, device=DEVICE)
result = table(ids)  # here
""", ("`ids[1, 0]` = 12", "0…9", "int32")),
    Case("columns of one batch", """
tables = nn.ModuleList(nn.Embedding(n, 4) for n in (5, 6, 7)).to(DEVICE)
batch = torch.tensor([[4, 5, 6], [0, 6, 0]], device=DEVICE)
parts = []
for column, table in enumerate(tables):
    parts.append(table(batch[:, column]))  # here
result = torch.cat(parts)
""", ("tables", "6", "0…5")),
    Case("after a batch that is gone", """
table = nn.Embedding(8, 4).to(DEVICE)
def use(ids):
    return table(ids)  # here
for step in range(3):
    batch = torch.randint(0, 8, (4, 2)).to(DEVICE)
    for column in range(2):
        result = use(batch[:, column])
del batch
result = use(torch.tensor([1, 8], device=DEVICE))
""", ("`ids[1]` = 8", "0…7")),
    Case("many steps of one function", """
tables = nn.ModuleList(nn.Embedding(n, 4) for n in (5, 6, 7)).to(DEVICE)
def step(batch):
    parts = [tables[0](batch[:, 0]), tables[1](batch[:, 1]), tables[2](batch[:, 2])]  # here
    return torch.cat(parts)
for number in range(20):
    batch = torch.randint(0, 5, (4, 3)).to(DEVICE)
    if number == 17:
        batch = batch + torch.tensor([0, 0, 9], device=DEVICE)
    result = step(batch)
""", ("`tables.2`", "0…6", "batch[:, 2]")),
    Case("bag of embeddings", """
bag = nn.EmbeddingBag(8, 3).to(DEVICE)
words = torch.tensor([1, 2, 9, 4], device=DEVICE)
result = bag(words, torch.tensor([0, 2], device=DEVICE))  # here
""", ("`words[2]` = 9", "0…7")),
    Case("positions past the maximum", """
class Encoder(nn.Module):
    def __init__(self, longest=16):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.positions = nn.Embedding(longest, 8)
    def forward(self, ids):
        where = torch.arange(ids.size(1), device=ids.device)
        return self.tokens(ids) + self.positions(where)  # here
encoder = Encoder().to(DEVICE)
result = encoder(torch.randint(0, 50, (2, 20)).to(DEVICE))
""", ("`where", "16", "0…15", "encoder.positions")),
    Case("one index tensor", """
values = torch.randn(6, 3, device=DEVICE)
rows = torch.tensor([0, 5, 6], device=DEVICE)
result = values[rows]  # here
""", ("`rows[2]` = 6", "-6…5", "`values`")),
    Case("two index tensors", """
def pick(table, rows, columns):
    return table[rows, columns]  # here
values = torch.randn(6, 3, device=DEVICE)
result = pick(values, torch.tensor([0, 5], device=DEVICE), torch.tensor([2, 3], device=DEVICE))
""", ("`columns[1]` = 3", "-3…2", "dimension 1")),
    Case("index after a slice", """
values = torch.randn(2, 6, device=DEVICE)
picks = torch.tensor([[0, -7]], device=DEVICE)
result = values[:, picks]  # here
""", ("`picks[0, 1]` = -7", "-6…5", "dimension 1")),
    Case("indexed assignment", """
board = torch.zeros(4, 4, device=DEVICE)
rows = torch.tensor([1, 4], device=DEVICE)
board[rows] = 1.0  # here
result = board
""", ("`rows[1]` = 4", "-4…3")),
    Case("index_select", """
values = torch.randn(3, 5, device=DEVICE)
keep = torch.tensor([4, 5], device=DEVICE)
result = torch.index_select(values, 1, keep)  # here
""", ("`keep[1]` = 5", "0…4", "dimension 1")),
    Case("index_add", """
sums = torch.zeros(3, 2, device=DEVICE)
groups = torch.tensor([0, 3], device=DEVICE)
sums.index_add_(0, groups, torch.ones(2, 2, device=DEVICE))  # here
result = sums
""", ("`groups[1]` = 3", "0…2")),
    Case("index_copy", """
target = torch.zeros(3, 2, device=DEVICE)
where = torch.tensor([0, 3], device=DEVICE)
result = target.index_copy(0, where, torch.ones(2, 2, device=DEVICE))  # here
""", ("`where[1]` = 3",)),
    Case("gather", """
scores = torch.randn(2, 5, device=DEVICE, requires_grad=True)
best = torch.tensor([[4], [5]], device=DEVICE)
result = scores.gather(1, best)  # here
result.sum().backward()
""", ("`best[1, 0]` = 5", "0…4", "`scores`")),
    Case("scatter", """
labels = torch.tensor([[0], [3]], device=DEVICE)
result = torch.zeros(2, 3, device=DEVICE).scatter_(1, labels, 1.0)  # here
""", ("`labels[1, 0]` = 3", "0…2")),
    Case("scatter_add", """
nodes = torch.tensor([0, 1, 4], device=DEVICE)
result = torch.zeros(4, device=DEVICE).scatter_add(0, nodes, torch.ones(3, device=DEVICE))  # here
""", ("`nodes[2]` = 4", "0…3")),
    Case("take", """
values = torch.randn(2, 3, device=DEVICE)
result = values.take(torch.tensor([5, 6], device=DEVICE))  # here
""", ("6", "-6…5")),
    Case("one_hot", """
labels = torch.tensor([1, 4], device=DEVICE)
result = F.one_hot(labels, 4)  # here
""", ("`labels[1]` = 4", "0…3"), "class-out-of-range", gpu_only=True),
    Case("labels that count from 1", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(x)
def loss_of(scores, labels):
    return F.cross_entropy(scores, labels)  # here
net = Net().to(DEVICE)
labels = torch.tensor([1, 2, 3, 1], device=DEVICE)
result = loss_of(net(torch.randn(4, 4, device=DEVICE)), labels)
result.backward()
""", ("`labels[2]` = 3", "0…2", "count from 1"), "class-out-of-range"),
    Case("-1 for no label", """
criterion = nn.CrossEntropyLoss()
scores = torch.randn(3, 5, device=DEVICE, requires_grad=True)
labels = torch.tensor([0, -1, 4], device=DEVICE)
result = criterion(scores, labels)  # here
result.backward()
""", ("`labels[1]` = -1", "0…4"), "class-out-of-range"),
    Case("segmentation labels", """
masks = torch.zeros(2, 4, 4, dtype=torch.long)
masks[1, 2, 3] = 5
masks[0, 0, 0] = 255
scores = torch.randn(2, 5, 4, 4, device=DEVICE)
labels = masks.to(DEVICE)
result = F.cross_entropy(scores, labels, ignore_index=255)  # here
""", ("`labels[1, 2, 3]` = 5", "0…4", "255"), "class-out-of-range"),
    Case("raw scores in binary_cross_entropy", """
scores = torch.tensor([0.2, 1.5, -3.0], device=DEVICE)
result = F.binary_cross_entropy(scores, torch.ones(3, device=DEVICE))  # here
""", ("`scores[1]` = 1.5", "0…1", "logits"), "device-side-assert"),
    Case("targets of binary_cross_entropy", """
chances = torch.tensor([0.2, 0.5], device=DEVICE)
truth = torch.tensor([1.0, 2.0], device=DEVICE)
result = F.binary_cross_entropy(chances, truth)  # here
""", ("`truth[1]` = 2", "0…1"), "device-side-assert"),
    Case("negative weights in multinomial", """
weights = torch.tensor([[0.5, -0.5, 1.0]], device=DEVICE)
result = torch.multinomial(weights, 2, replacement=True)  # here
""", ("`weights[0, 1]` = -0.5", "0 and up"), "device-side-assert"),
    Case("more True than values", """
mask = torch.tensor([True, True, False, True], device=DEVICE)
result = torch.zeros(4, device=DEVICE).masked_scatter(mask, torch.ones(2, device=DEVICE))  # here
""", ("more True",), "device-side-assert"),
    Case("without gradients", """
table = nn.Embedding(10, 4).to(DEVICE)
with torch.no_grad():
    ids = torch.tensor([3, 11], device=DEVICE)
    result = table(ids)  # here
""", ("`ids[1]` = 11",)),
    Case("inference mode", """
table = nn.Embedding(10, 4).to(DEVICE)
with torch.inference_mode():
    ids = torch.tensor([3, 11], device=DEVICE)
    result = table(ids)  # here
""", ("`ids[1]` = 11",)),
    Case("inside a checkpoint", """
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 4)
    def forward(self, ids):
        return self.table(ids) * 2  # here
block = Block().to(DEVICE)
result = checkpoint(block, torch.tensor([1, 6], device=DEVICE), use_reentrant=False)
""", ("`ids[1]` = 6", "block.table")),
    Case("under autocast", """
table = nn.Embedding(6, 4).to(DEVICE)
fc = nn.Linear(4, 4).to(DEVICE)
with torch.autocast(DEVICE, torch.bfloat16):
    ids = torch.tensor([1, 6], device=DEVICE)
    result = fc(table(ids))  # here
result = result.float()
""", ("`ids[1]` = 6",)),
    Case("in another thread", """
import threading
table = nn.Embedding(6, 4).to(DEVICE)
found = []
def work(ids):
    found.append(table(ids))  # here
thread = threading.Thread(target=work, args=(torch.tensor([1, 6], device=DEVICE),))
thread.start()
thread.join()
result = found[0]
""", ("`ids[1]` = 6",)),
    Case("inside a custom Function", """
class Pick(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rows):
        return x[rows]  # here
    @staticmethod
    def backward(ctx, grad):
        return grad, None
result = Pick.apply(torch.randn(3, 2, device=DEVICE, requires_grad=True), torch.tensor([0, 3], device=DEVICE))
""", ("`rows[1]` = 3", "-3…2")),
    Case("an index of a million", """
table = nn.Embedding(1000, 4).to(DEVICE)
ids = torch.randint(0, 1000, (1000, 1000), device=DEVICE)
ids[123, 456] = 1000
result = table(ids)  # here
""", ("`ids[123, 456]` = 1000", "at least 1", "0…999"), gpu_only=True),
    Case("on another stream", """
table = nn.Embedding(6, 4).to(DEVICE)
ids = torch.tensor([1, 6], device=DEVICE)
torch.cuda.synchronize()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    result = table(ids)  # here
fine = table(torch.tensor([1, 2], device=DEVICE))
""", ("`ids[1]` = 6",), gpu_only=True),
    Case("from a DataLoader with pinned memory", """
from torch.utils.data import DataLoader, TensorDataset
rows = torch.arange(40).reshape(10, 4)
table = nn.Embedding(38, 4).to(DEVICE)
for (batch,) in DataLoader(TensorDataset(rows), batch_size=2, pin_memory=True):
    ids = batch.to(DEVICE, non_blocking=True)
    result = table(ids)  # here
""", ("`ids[1, 2]` = 38", "0…37"), gpu_only=True),
    Case("after thousands of operations", """
table = nn.Embedding(30, 4).to(DEVICE)
for step in range(3000):
    ids = torch.tensor([step % 30, 1], device=DEVICE)
    if step == 2990:
        ids = ids + 30
    result = table(ids)  # here
    if step % 500 == 499:
        print(result.sum().item())
""", ("`ids[", "0…29"), gpu_only=True),
)  # fmt: skip
