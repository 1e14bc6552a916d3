"""Devices that are not here. A build of torch for the CPU and one with CUDA that finds no GPU say it in different words."""

import torch
from forward_harness import Case

WITHOUT_GPU = [
    Case("chosen-in-another-function", """\
import torch
from torch import nn
DEVICE = torch.device("cuda")  #! create
class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.to(device)  #! operand
def train(device):
    return Net(device)
train(DEVICE)
""", "device-unavailable", ("asks for cuda", "torch.cuda.is_available()"), late=True),
    Case("by-its-method", """\
import torch
x = torch.randn(3).cuda()  #! operand
""", "device-unavailable", ("asks for a GPU",), late=True),
    Case("by-the-default-device", """\
import torch
torch.set_default_device("cuda")
x = torch.zeros(3)  #! operand
""", "device-unavailable", ("`torch.zeros(3)` asks for a GPU", "set_default_device"), late=True),
    Case("a-number-too", """\
import torch
def main(rank):
    device = f"cuda:{rank}"  #! create
    return torch.zeros(3, device=device)  #! operand
main(1)
""", "device-unavailable", ("asks for cuda:1",), late=False),
    Case("a-file-brought-to-it", """\
import io
import torch
file = io.BytesIO()
torch.save(torch.zeros(2), file)
file.seek(0)
torch.load(file, map_location="cuda")  #! operand
""", "device-unavailable", ("asks for cuda", "not available here"), late=True),
]  # fmt: skip
CASES = [
    Case("no-name-of-a-device", """\
import torch
device = "gpu"  #! create
x = torch.zeros(3).to(device)  #! operand
""", "device-unavailable", ("asks for gpu", "no device of torch's", "`cuda`"), late=True),
    *([] if torch.cuda.is_available() else WITHOUT_GPU),
]  # fmt: skip
