"""A program that looks at everything an observer might disturb, and prints what it sees."""
import gc
import os
import sys
import threading
import traceback
import warnings
import weakref

assert "torch" not in sys.modules  # the program's own import comes first
os.environ["OMP_NUM_THREADS"] = "1"
import torch
import torch.nn.functional as F
from torch import nn

print(sys.argv[1:], __name__, os.path.basename(__file__), __spec__, __package__)
print(torch.get_num_threads(), sys.gettrace(), sys.getprofile())
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = net(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    opt.step()
print(loss.item().hex(), torch.rand(2).tolist(), [p.double().sum().item().hex() for p in net.parameters()])

# warnings: location, and once per location
for _ in range(2):
    F.softmax(torch.ones(2, 2))
x = torch.ones(3, requires_grad=True) * 2
x.grad
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.ones(2, 3).T.T.mT
    F.softmax(torch.ones(2))
print([(os.path.basename(w.filename), w.lineno) for w in seen])

# torch takes another way through attention, with other values at padded positions, where a function mode would see its calls
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
with torch.no_grad():
    words = torch.randn(2, 4, 8)
    print(encoder(words, src_key_padding_mask=torch.tensor([[False] * 3 + [True], [False] * 4])).double().sum(-1).tolist())
    print(nn.MultiheadAttention(8, 2).eval()(words, words, words)[0].double().sum().item().hex())
print(torch.overrides.has_torch_function((words,)))


def attempt(action):
    try:
        action()
    except Exception:
        traceback.print_exc(file=sys.stdout)


attempt(lambda: torch.ones(2) + torch.ones(3))
attempt(lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(4).long()))
attempt(lambda: net(torch.ones(1, 7)))
attempt(lambda: torch.ones(2, requires_grad=True).add_(1))
attempt(lambda: [].pop())


def lifetimes():
    t = torch.ones(1000)
    ref = weakref.ref(t)
    u = t * 2
    uref = weakref.ref(u)
    del t
    print(ref() is None)
    u = u + 1
    print(uref() is None)
    inner = []

    class Probe(nn.Module):
        def forward(self, x):
            inner.append(weakref.ref(x))
            return x * 1

    class Check(nn.Module):
        def forward(self, x):
            print("input of the first layer freed:", inner[0]() is None)
            return x

    nn.Sequential(Probe(), Probe(), Check())(torch.randn(3) + 1)
    return u


lifetimes()
freed = []


class Keeper:
    def __del__(self):
        freed.append("graph")


y = torch.ones(2, requires_grad=True).exp()
y.grad_fn.metadata["keeper"] = Keeper()
print(freed)
del y
print(freed, gc.isenabled())
worker = threading.Thread(target=lambda: print("thread", torch.ones(2).sum().item()))
worker.start()
worker.join()
print(sys.stdin.read().strip())
print(len(torch.overrides._get_current_function_mode_stack()) <= 1)
sys.exit(7)
