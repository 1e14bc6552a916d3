"""Errors whose message names something else than what is wrong, or names nothing at all."""

from forward_harness import Case

CASES = [
    Case("einsum-of-temporaries", """\
import torch
def scores(a, b):
    return torch.einsum("ijk,jk->ik", a[0], torch.ones(3, 2) * b)  #! operand
scores(torch.ones(1, 2, 3), 2)
""", "matmul-shape", ("`a[0]` has 2 dimensions, the equation gives it 3 letters",), late=False),
    Case("a-column-into-a-row-of-places", """\
import torch
x = torch.ones(4, 4)
column = torch.ones(4, 1)  #! create
x[:, 0] = column  #! operand
""", "expand-size", ("`column` [4, 1] has more dimensions than `x[:, 0]`, which has shape [4]",)),
    Case("groups-of-other-channels", """\
import torch
norm = torch.nn.GroupNorm(2, 4)  #! create
x = torch.ones(2, 6, 3)  #! create
norm(x)  #! operand
""", "norm-shape", ("`x` has 6 channels (dimension 1); `norm` was built for 4",)),
    Case("one-state-for-an-lstm", """\
import torch
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(3, 4)
    def forward(self, x):
        h = torch.zeros(1, x.size(1), 4)  #! create
        return self.rnn(x, h)[0]  #! operand
Tagger()(torch.ones(5, 2, 3))
""", "recurrent-state", ("takes two states, `(h, c)`; `h` [1, 2, 4] is one tensor",)),
    Case("one-state-for-two-layers", """\
import torch
rnn = torch.nn.LSTM(3, 4, num_layers=2)
h = torch.zeros(2, 2, 4)  #! create
rnn(torch.ones(5, 2, 3), h)  #! operand
""", "recurrent-state", ("takes two states, `(h, c)`; `h` [2, 2, 4] is one tensor",)),
    Case("an-order-of-two-of-three", """\
import torch
x = torch.ones(2, 3, 4)  #! create
x.permute(0, 2)  #! operand
""", "view-size", ("does not name each of the 3 dimensions of `x` once",)),
    Case("one-place-for-each-channel", """\
import torch
norm, x = torch.nn.InstanceNorm2d(3), torch.ones(2, 3, 1, 1)  #! create
norm(x)  #! operand
""", "norm-shape", ("one place has none",)),
]
