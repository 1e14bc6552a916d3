"""Programs that fail in the loss, or at dtypes and devices, with the lines to be named."""

from forward_harness import Case

CASES = [
    Case("labels-from-one", """\
import torch
import torch.nn.functional as F
scores = torch.randn(4, 3)
labels = torch.tensor([1, 2, 3, 1])  #! create
loss = F.cross_entropy(scores, labels)  #! index
""", "class-out-of-range", ("`labels[2]` = 3", "0…2", "count from 1")),
    Case("class-too-many", """\
import torch
from torch import nn
import torch.nn.functional as F
head = nn.Linear(8, 5)  #! create
labels = torch.tensor([0, 7, 3, 1])  #! create
loss = F.cross_entropy(head(torch.randn(4, 8)), labels)  #! index
""", "class-out-of-range", ("`labels[1]` = 7", "0…4", "8 outputs"), late=False),
    Case("negative-label", """\
import torch
from torch import nn
criterion = nn.CrossEntropyLoss()
scores = torch.randn(4, 3)
labels = torch.tensor([1, 2, -1, 1])  #! create
criterion(scores, labels)  #! index
""", "class-out-of-range", ("ignore_index=-1", "`labels[2]` = -1")),
    Case("one-hot", """\
import torch
import torch.nn.functional as F
labels = torch.tensor([0, 4])  #! create
F.one_hot(labels, 4)  #! index
""", "class-out-of-range", ("`labels[1]` = 4", "0…3")),
    Case("batch-sizes", """\
import torch
import torch.nn.functional as F
logits = torch.randn(6, 3)  #! create
target = torch.zeros(5, dtype=torch.long)  #! create
F.cross_entropy(logits, target)  #! operand
""", "loss-target", ("Batch sizes differ", "[6, 3]", "[5]")),
    Case("class-axis", """\
import torch
import torch.nn.functional as F
logits = torch.randn(2, 7, 5)  #! create
target = torch.zeros(2, 7, dtype=torch.long)  #! create
F.cross_entropy(logits, target)  #! operand
""", "loss-target", ("class axis", "transpose(1, 2)")),
    Case("target-column", """\
import torch
import torch.nn.functional as F
logits = torch.randn(4, 5)
target = torch.zeros(4, 1, dtype=torch.long)  #! create
F.cross_entropy(logits, target)  #! operand
""", "loss-target", ("squeeze(1)",)),
    Case("float-labels", """\
import torch
import torch.nn.functional as F
logits = torch.randn(4, 5)
target = torch.zeros(4)  #! create
F.cross_entropy(logits, target)  #! operand
""", "loss-target", ("float32", ".long()")),
    Case("logits-not-probabilities", """\
import torch
import torch.nn.functional as F
logits = torch.tensor([2.5, -1.0])  #! create
target = torch.tensor([1.0, 0.0])
F.binary_cross_entropy(logits, target)  #! operand
""", "loss-target", ("with_logits", "`logits[0]` = 2.5", "0…1")),
    Case("bce-shape", """\
import torch
from torch import nn
prediction = torch.rand(4, 1)  #! create
target = torch.ones(4)  #! create
nn.BCEWithLogitsLoss()(prediction, target)  #! operand
""", "loss-target", ("[4, 1]", "[4]", "squeeze(-1)")),
    Case("ctc-lengths", """\
import torch
import torch.nn.functional as F
log_probs = torch.randn(5, 2, 4).log_softmax(2)  #! create
targets = torch.ones(2, 3, dtype=torch.long)
lengths = torch.tensor([6, 5])  #! create
F.ctc_loss(log_probs, targets, lengths, torch.tensor([3, 3]))  #! operand
""", "loss-target", ("`lengths[0]` = 6", "0…5")),
    Case("double-input", """\
import torch
from torch import nn
layer = nn.Linear(4, 3)
x = torch.zeros(2, 4, dtype=torch.float64)  #! create
layer(x)  #! operand
""", "dtype-mismatch", ("`x` is float64", "float32", "layer.weight")),
    Case("double-chain", """\
import torch
from torch import nn
layer = nn.Linear(4, 3)
raw = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).double()  #! create
x = (raw - raw.mean()) / 2
layer(x)  #! operand
""", "dtype-mismatch", ("`x` is float64",)),
    Case("matmul-int", """\
import torch
w = torch.randn(3, 2)
counts = torch.tensor([[1, 2, 3]])  #! create
counts @ w  #! operand
""", "dtype-mismatch", ("`counts` is int64", "float32")),
    Case("conv-bytes", """\
import torch
from torch import nn
image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)  #! create
nn.Conv2d(3, 4, 3)(image)  #! operand
""", "dtype-mismatch", ("uint8",)),
    Case("softmax-of-ints", """\
import torch
scores = torch.tensor([1, 2, 3])  #! create
torch.softmax(scores, dim=0)  #! operand
""", "dtype-mismatch", ("int64", ".float()")),
    Case("mean-of-ints", """\
import torch
x = torch.arange(4)  #! create
x.mean()  #! operand
""", "dtype-mismatch", ("int64",)),
    Case("float-into-int", """\
import torch
count = torch.zeros(3, dtype=torch.long)  #! create
count += torch.rand(3)  #! operand
""", "dtype-mismatch", ("int64",)),
    Case("invert-bool", """\
import torch
mask = torch.tensor([True, False])  #! create
-mask  #! operand
""", "dtype-mismatch", ("~",)),
    Case("two-devices", """\
import torch
x = torch.zeros(3, device="meta")  #! create
y = torch.ones(3)  #! create
x + y  #! operand
""", "device-mismatch", ("`y`", "cpu", "meta")),
    Case("model-elsewhere", """\
import torch
from torch import nn
model = nn.Linear(3, 3).to("meta")  #! create
batch = torch.ones(2, 3)  #! create
model(batch)  #! operand
""", "device-mismatch", ("`batch`", "cpu", "meta")),
    Case("plain-attribute", """\
import torch
from torch import nn
class Positions(nn.Module):
    def __init__(self, width, longest=64):
        super().__init__()
        angles = torch.arange(longest)[:, None] * torch.ones(width // 2)
        self.table = torch.cat([angles.sin(), angles.cos()], 1)  #! create
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(30, 16), Positions(16)
    def forward(self, ids):
        return self.words(ids) + self.positions.table[: ids.size(1)]  #! operand
model = Model().to("meta")
model(torch.randint(0, 30, (2, 9), device="meta"))  #! create
""", "device-mismatch", ("kept as a plain attribute", 'register_buffer("table", ...)'), late=False),
    Case("ambiguous-truth", """\
import torch
x = torch.tensor([1.0, -1.0])
good = x > 0  #! create
if good:  #! operand
    pass
""", "not-a-scalar", (".all()",)),
    Case("item-of-many", """\
import torch
losses = torch.rand(3)  #! create
print(losses.item())  #! operand
""", "not-a-scalar", ("[3]",)),
    Case("generic", """\
import torch
step = -1
torch.arange(5, 1)  #! operand
""", "torch-error", ("upper bound",)),
    Case("generic-argument", """\
import torch
import torch.nn.functional as F
rate = 2.0  #! create
F.dropout(torch.zeros(3), p=rate)  #! operand
""", "torch-error", ("`p` = 2.0", "rate"), late=False),
]
