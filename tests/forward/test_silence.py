"""What torch did not raise gets no diagnosis: the program's own exceptions, Python's, other libraries'."""

import pytest

from forward_harness import describe, run_program

PROGRAMS = {
    "own-raise": "import torch\nx = torch.zeros(3)\nif x.shape[0] != 4:\n    raise ValueError(f'expected 4 rows, got {x.shape[0]}')\n",
    "own-raise-with-torchs-words": "import torch\nx = torch.zeros(2)\nraise RuntimeError('The size of tensor a (5) must match the size of tensor b (6) at non-singleton dimension 1')\n",
    "own-raise-from": """\
import torch
def f(x):
    try:
        return x @ torch.zeros(9, 9)
    except RuntimeError as error:
        raise ValueError('mat1 and mat2 shapes cannot be multiplied, they said') from error
f(torch.zeros(2, 3))
""",
    "assert": "import torch\nx = torch.zeros(3)\nassert x.dim() == 2, 'x must be a matrix (tensor of dimension 2)'\n",
    "key-error": "import torch\nbatch = {'x': torch.zeros(3)}\nbatch['y']\n",
    "attribute": "import torch\nx = torch.zeros(3)\nx.foo\n",
    "module-attribute": """\
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return self.layer(x)
Net()(torch.zeros(3))
""",
    "a-number-times-nothing": "import torch\nx, limit = torch.zeros(3), None\n0.1 * limit\n",
    "a-number-times-a-plain-list": "import torch\nvalues = [1, 2, 3]\n0.5 * values\n",
    "a-gradient-of-no-tensor": "import torch\nclass Node:\n    grad = None\nnode = Node()\n0.1 * node.grad\n",
    "plain-list": "import torch\nvalues = [1, 2, 3]\nvalues[5]\n",
    "plain-list-slice": "import torch\nvalues = [1, 2, 3]\nvalues[:, 0]\n",
    "empty-list": "import torch\nlosses = []\nlosses[-1]\n",
    "unpacked-from-a-function": "import torch\ndef pair():\n    return 1, 2\na, b, c = pair()\n",
    "none-of-a-reader": "import torch\ndef read(path):\n    return None\nimage = read('x.png')\nheight, width = image.shape[:2]\n",
    "attribute-of-a-plain-list": "import torch\nrows = [1, 2]\nrows.mean()\n",
    "plain-unpack": "import torch\na, b = [1, 2, 3]\n",
    "name": "import torch\nx = torch.zeros(3)\ny = x + undefined\n",
    "zero-division": "import torch\nx = torch.zeros(3)\nmean = 1 / 0\n",
    "int-of-text": "import torch\nint('three')\n",
    "forward-arguments": """\
import torch
class Net(torch.nn.Module):
    def forward(self, x, mask):
        return x
Net()(torch.zeros(3))
""",
    "unexpected-keyword": """\
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x
Net()(torch.zeros(3), mask=None)
""",
    "own-function-arguments": "import torch\ndef f(x, tensor):\n    return x\nf(torch.zeros(3))\n",
    "own-method-keyword": "import torch\nclass Data:\n    def get(self, *, dtype):\n        return dtype\nData().get(torch.zeros(3))\n",
    "own-class-arguments": "import torch\nclass Data:\n    def __init__(self, tensor, dim):\n        pass\nData(torch.zeros(3))\n",
    "dictionary-changed": "import torch\nd = {'a': torch.zeros(1)}\nfor k in d:\n    d[k + k] = torch.zeros(2)\n",
    "numpy-shape": "import torch\nimport numpy as np\nx = np.zeros((2, 3)) + np.zeros((2, 4))\n",
    "numpy-index": "import torch\nimport numpy as np\nx = np.zeros(3)\nx[5]\n",
    "stop-iteration": "import torch\nitems = iter([torch.zeros(3)])\nnext(items)\nnext(items)\n",
    "file": "import torch\nopen('/no/such/file')\n",
    "own-error-in-dataset": """\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        raise ValueError(f'sample {i} is broken: tensor of wrong dtype')
list(DataLoader(Data()))
""",
    "concatenating-text": "import torch\nprint('loss: ' + torch.zeros(1).sum().item())\n",
    "recursion": "import torch\ndef f(x):\n    return f(x) + 1\nf(1)\n",
}


@pytest.mark.parametrize("log", [True, False], ids=["observed", "late"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_diagnosis(name, log):
    result = run_program(PROGRAMS[name], log)
    assert result.error is not None
    assert result.diagnosis is None, describe(result)
