"""Programs whose shapes do not fit, with the lines to be named."""

from forward_harness import Case

CASES = [
    Case("temporaries", """\
import torch
a = torch.randn(4, 5)  #! create
mask = torch.ones(4, 6)  #! create
out = (a @ a.T @ a) * mask.unsqueeze(0)  #! operand
""", "broadcast-mismatch", ("[4, 5]", "[1, 4, 6]", "5 against 6", "torch.ones(4, 6)")),
    Case("function-boundary", """\
import torch
import torch.nn.functional as F

def pad(batch, length):
    return F.pad(batch, (0, length - batch.shape[1]))  #! create

def make_mask(lengths):
    return torch.arange(5)[None, :] < lengths[:, None]  #! create

x = torch.randn(2, 3)
tokens = pad(x, 6)
mask = make_mask(torch.tensor([3, 2]))
scores = tokens * mask  #! operand
""", "broadcast-mismatch", ("`tokens`", "`mask`", "6 against 5"), late=(11, 12, 13)),
    Case("size-given-by-caller", """\
import torch
def ones(n):
    return torch.ones(2, n)  #! create
a = torch.zeros(2, 3)  #! create
b = ones(4)  #! create
a + b  #! operand
""", "broadcast-mismatch", ("3 against 4",), late=False),
    Case("vector-per-row", """\
import torch
features = torch.randn(8, 5)
weights = torch.rand(8)  #! create
total = (features * weights).sum(0)  #! operand
""", "broadcast-mismatch", ("unsqueeze(-1)",)),
    Case("swapped", """\
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(10, 3, 4))  #! create
    def forward(self, x):
        return x + self.positions  #! operand
model = Model()
batch = torch.randn(3, 10, 4)  #! create
model(batch)
""", "broadcast-mismatch", ("transpose(0, 1)", "model.positions")),
    Case("skip-connection", """\
import torch
from torch import nn
down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
up = nn.ConvTranspose2d(8, 3, 2, stride=2)
image = torch.randn(1, 3, 15, 15)  #! create
h = up(down(image))  #! create
out = h + image  #! operand
""", "broadcast-mismatch", ("differ by one", "15", "16"), late=False),
    Case("in-place-grows", """\
import torch
total = torch.zeros(3)  #! create
rows = torch.ones(4, 3)  #! create
total += rows  #! operand
""", "broadcast-mismatch", ("[3]", "[4, 3]")),
    Case("where", """\
import torch
x = torch.randn(2, 3)  #! create
y = torch.zeros(2, 4)  #! create
torch.where(x > 0, x, y)  #! operand
""", "broadcast-mismatch", ("3 against 4",)),
    Case("mse", """\
import torch
import torch.nn.functional as F
prediction = torch.randn(4, 3)  #! create
target = torch.randn(4, 2)  #! create
F.mse_loss(prediction, target)  #! operand
""", "broadcast-mismatch", ("`prediction`", "`target`")),
    Case("matmul", """\
import torch
a = torch.randn(4, 5)  #! create
b = torch.randn(6, 3)  #! create
c = a @ b  #! operand
""", "matmul-shape", ("5 against 6", "[4, 5]", "[6, 3]")),
    Case("matmul-transposed", """\
import torch
q = torch.randn(2, 7, 16)  #! create
k = torch.randn(2, 7, 16)  #! create
scores = torch.bmm(q, k)  #! operand
""", "matmul-shape", ("transpose(-1, -2)",)),
    Case("linear", """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU())  #! create
        self.head = nn.Linear(32, 2)  #! create
    def forward(self, x):
        return self.head(self.body(x))  #! operand
net = Net(16)  #! create
net(torch.randn(3, 4))
""", "matmul-shape", ("net.head", "16 features", "takes 32", "nn.Linear(32, 2)"), late=False),
    Case("not-flattened", """\
import torch
from torch import nn
net = nn.Linear(28 * 28, 10)  #! create
images = torch.randn(8, 28, 28)  #! create
net(images)  #! operand
""", "matmul-shape", ("flatten(1)", "784")),
    Case("sequential-inner", """\
import torch
from torch import nn
net = nn.Sequential(
    nn.Linear(3, 4),  #! create
    nn.ReLU(),
    nn.Linear(5, 6),  #! create
)
net(torch.zeros(2, 3))  #! operand
""", "matmul-shape", ("net.2", "4 features", "takes 5"), late=False),
    Case("einsum", """\
import torch
a = torch.randn(2, 3)  #! create
b = torch.randn(4, 5)  #! create
torch.einsum("ij,jk->ik", a, b)  #! operand
""", "matmul-shape", ("`j` has size 3 and size 4", "ij,jk->ik")),
    Case("einsum-rank", """\
import torch
a = torch.randn(2, 2, 3)  #! create
torch.einsum("ij->i", a)  #! operand
""", "matmul-shape", ("3 dimensions", "2 letters")),
    Case("last-batch", """\
import torch
from torch.utils.data import DataLoader, TensorDataset
BATCH = 4  #! create
data = TensorDataset(torch.randn(10, 6))
for (x,) in DataLoader(data, batch_size=BATCH):  #! create
    y = x.view(BATCH, 2, 3)  #! operand
""", "view-size", ("This batch has 2 rows", "line 3", "drop_last", "x.size(0)"), late=False),
    Case("hard-coded-view", """\
import torch
x = torch.randn(7, 10)  #! create
y = x.view(32, -1)  #! operand
""", "view-size", ("70", "[32, -1]")),
    Case("view-after-transpose", """\
import torch
x = torch.randn(2, 3, 4)
y = x.transpose(1, 2)  #! create
z = y.view(2, -1)  #! operand
""", "view-size", ("reshape", "not contiguous")),
    Case("unflatten", """\
import torch
x = torch.randn(2, 10)  #! create
x.unflatten(1, (3, 4))  #! operand
""", "view-size", ("[3, 4]", "10"), late=False),
    Case("split", """\
import torch
x = torch.randn(2, 10)  #! create
x.split([4, 4], dim=1)  #! operand
""", "view-size", ("sum to 8", "10")),
    Case("cat", """\
import torch
a = torch.zeros(3, 4)  #! create
b = torch.zeros(3, 5)  #! create
torch.cat([a, b], dim=0)  #! operand
""", "cat-shape", ("number 1", "`b`", "dim=1")),
    Case("stack-odd-one", """\
import torch
rows = [torch.zeros(n) for n in (3, 3, 3, 5)]  #! create
torch.stack(rows)  #! operand
""", "cat-shape", ("number 3", "[5]", "[3]", "pad_sequence")),
    Case("cat-rank", """\
import torch
h = torch.zeros(3, 4)
bias = torch.zeros(4)  #! create
torch.cat((h, bias))  #! operand
""", "cat-shape", ("numbers of dimensions",)),
    Case("expand", """\
import torch
row = torch.zeros(2, 3)  #! create
n = 4  #! create
row.expand(2, n)  #! operand
""", "expand-size", ("3 against 4",)),
    Case("assign-row", """\
import torch
table = torch.zeros(3, 4)  #! create
row = torch.ones(5)  #! create
table[0] = row  #! operand
""", "expand-size", ("[5]", "[4]")),
    Case("channels-last", """\
import torch
from torch import nn
layer = nn.Conv2d(3, 8, 3)
images = torch.randn(2, 32, 32, 3)  #! create
layer(images)  #! operand
""", "conv-shape", ("channels come last", "permute(0, 3, 1, 2)", "takes 3")),
    Case("conv-chain", """\
import torch
from torch import nn
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3)  #! create
        self.second = nn.Conv2d(32, 64, 3)  #! create
    def forward(self, x):
        h = F.relu(self.first(x))
        return self.second(h)  #! operand
net = Net()
net(torch.randn(1, 1, 28, 28))
""", "conv-shape", ("16 channels", "takes 32", "net.second"), late=(8, 10, 11)),
    Case("kernel-too-large", """\
import torch
from torch import nn
net = nn.Conv2d(3, 8, 5)  #! create
net(torch.randn(1, 3, 4, 4))  #! operand
""", "conv-shape", ("too small",)),
    Case("pool-too-small", """\
import torch
import torch.nn.functional as F
x = torch.randn(1, 3, 1, 1)  #! create
F.max_pool2d(x, 2)  #! operand
""", "conv-shape", ("too small", "[1, 3, 1, 1]")),
    Case("missing-batch", """\
import torch
from torch import nn
layer = nn.Conv2d(3, 8, 3)
picture = torch.randn(32, 32)  #! create
layer(picture)  #! operand
""", "conv-shape", ("unsqueeze",)),
    Case("state-of-other-batch", """\
import torch
from torch import nn
layer = nn.GRU(5, 8, batch_first=True)
state = torch.zeros(1, 4, 8)  #! create
x = torch.randn(3, 6, 5)  #! create
layer(x, state)  #! operand
""", "recurrent-state", ("[1, 4, 8]", "[1, 3, 8]", "batch of 4")),
    Case("lstm-width", """\
import torch
from torch import nn
layer = nn.LSTM(10, 8)  #! create
x = torch.randn(3, 6, 5)  #! create
layer(x)  #! operand
""", "recurrent-state", ("5 features", "takes 10")),
    Case("padding-mask-as-attention-mask", """\
import torch
from torch import nn
layer = nn.MultiheadAttention(16, 4, batch_first=True)
x = torch.randn(2, 6, 16)
padding = torch.zeros(2, 6, dtype=torch.bool)  #! create
layer(x, x, x, attn_mask=padding)  #! operand
""", "attention-mask", ("key_padding_mask", "[2, 6]", "[6, 6]")),
    Case("causal-mask-longer", """\
import torch
from torch import nn
layer = nn.TransformerEncoderLayer(16, 4, batch_first=True)
x = torch.randn(2, 6, 16)  #! create
causal = nn.Transformer.generate_square_subsequent_mask(7)  #! create
layer(x, src_mask=causal)  #! operand
""", "attention-mask", ("[7, 7]", "[6, 6]")),
    Case("sdpa-padding-mask", """\
import torch
import torch.nn.functional as F
q = torch.randn(2, 4, 6, 8)
keep = torch.ones(2, 6, dtype=torch.bool)  #! create
F.scaled_dot_product_attention(q, q, q, attn_mask=keep)  #! operand
""", "attention-mask", ("[:, None, None, :]", "[2, 4, 6, 6]")),
    Case("padding-mask-swapped", """\
import torch
from torch import nn
layer = nn.MultiheadAttention(16, 4)
x = torch.randn(6, 2, 16)
padding = torch.zeros(6, 2, dtype=torch.bool)  #! create
layer(x, x, x, key_padding_mask=padding)  #! operand
""", "attention-mask", ("[6, 2]",)),
    Case("layer-norm", """\
import torch
from torch import nn
norm = nn.LayerNorm(10)  #! create
x = torch.randn(4, 8)  #! create
norm(x)  #! operand
""", "norm-shape", ("[10]", "[4, 8]")),
    Case("batch-norm", """\
import torch
from torch import nn
norm = nn.BatchNorm1d(8)  #! create
x = torch.randn(4, 16)  #! create
norm(x)  #! operand
""", "norm-shape", ("16 channels", "built for 8")),
    Case("batch-of-one", """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8))
x = torch.randn(1, 3)  #! create
net(x)  #! operand
""", "norm-shape", ("drop_last", "training", "net.1"), late=False),
]
