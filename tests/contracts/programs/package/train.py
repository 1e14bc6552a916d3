import sys

import torch

from .helper import double

print(__name__, __package__, __spec__.name, sys.argv[1:])
print(double(torch.ones(2)).tolist())
