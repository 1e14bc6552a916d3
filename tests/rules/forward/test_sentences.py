"""Sentences that were false or badly made: what a report must not say, beside what it must."""

import pytest

from forward_harness import describe, run_program

SAID = {
    "a computed size is hard-coded nowhere": (
        "import torch\ndef step(x, bs):\n    return x.view(bs * 5, -1)\nstep(torch.arange(12), 4)\n",
        "which is `bs * 5`", "hard-coded"),  # fmt: skip
    "a number in the source is": (
        "import torch\ndef step(x):\n    return x.view(32, -1)\nstep(torch.ones(7, 10))\n",
        "hard-coded in line 3", "which is"),  # fmt: skip
    "the layer has batch_first": (
        "import torch\nrnn = torch.nn.GRU(8, 16, batch_first=True)\nh0 = torch.zeros(1, 10, 16)\nrnn(torch.randn(4, 10, 8), h0)\n",
        "10 is dimension 1, the length of the sequences", "may be missing"),  # fmt: skip
    "the layer has it not": (
        "import torch\nrnn = torch.nn.GRU(8, 16)\nh0 = torch.zeros(1, 4, 16)\nrnn(torch.randn(4, 10, 8), h0)\n",
        "`batch_first` may be missing", "the length of the sequences"),  # fmt: skip
    "there is but one dimension": (
        "import torch\nt, k = torch.arange(4), 3\nt[k * 5]\n",
        "Keep the index within 0…3, or make `t` larger.", "dimension you mean"),  # fmt: skip
    "sentences begin with a capital": (
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(5, 2))\nnet(torch.ones(3, 4))\n",
        "The input of `net.1` has 6 features", "\nthe input of"),  # fmt: skip
    "no parentheses around a call": (
        "import torch\nemb = torch.nn.Embedding(10, 4)\nids = [1, 10]\nemb(torch.tensor(ids))\n",
        "`torch.tensor(ids)[1]` = 10", "`(torch"),  # fmt: skip
}


@pytest.mark.parametrize("name", SAID)
def test_said_and_not_said(name):
    program, said, unsaid = SAID[name]
    text = " ".join(describe(run_program(program)).split(" "))
    plain = " ".join(text.split())
    assert said in plain and unsaid not in text, text
