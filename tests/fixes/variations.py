"""Programs made by combining ways to save, ways to write and places to do it: none of them is in the fixtures.

`{h}` is the tensor, made by `{make}`; what must come out is what the program computes when every tensor that is saved
for backward is copied, which PyTorch can do by itself (`saved_tensors_hooks`).
"""

from __future__ import annotations

import itertools

SAVES = {
    "pow": "y = {h} ** 2",
    "product": "y = {h} * {h}",
    "matmul": "y = {h} @ torch.ones({h}.shape[-1], 2)",
    "sigmoid result": "{h} = torch.sigmoid({h})\ny = {h} * 3",
    "exp result": "{h} = {h}.exp()\ny = {h} + 1",
    "linear": "y = torch.nn.functional.linear({h}, weight)",
    "tanh of view": "y = torch.sin({h}[0])",
    "softmax": "y = torch.log_softmax({h}, dim=-1) * torch.sqrt({h}.abs() + 1)",
}
WRITES = {
    "add": "{h} += 1",
    "multiply by sum": "{h} *= 2 + 1",
    "subtract difference": "{h} -= {h}.mean() - 1",
    "divide": "{h} /= 2",
    "method": "{h}.mul_(0.5)",
    "chain": "{h}.mul_(0.5).add_(1.0)",
    "zero": "{h}.zero_()",
    "fill": "{h}.fill_(2.0)",
    "copy": "{h}.copy_(torch.ones(4, 3))",
    "clamp": "{h}.clamp_(min=0.1)",
    "setitem": "{h}[0] = 0.0",
    "setitem column": "{h}[:, 1] = {h}[:, 0] * 2",
    "augmented setitem": "{h}[1] += 1",
    "masked": "{h}[{h} > 0] = 0.0",
    "masked fill": "{h}.masked_fill_({h} > 0, 0.0)",
    "in an expression": "total_change = ({h}.mul_(2.0) + 1).detach()",
    "functional": "torch.relu_({h})",
    "functional flag": "torch.nn.functional.relu({h}, inplace=True)",
    "row method": "{h}[0].add_(1)",
    "index_put": "{h}.index_put_((torch.tensor([0, 1]),), torch.tensor(1.0))",
    "bound": "{h} = {h}.relu_()",
    "under no_grad": "with torch.no_grad():\n    {h}.add_(1)",
}
HEAD = "import torch\n\ntorch.manual_seed(3)\nx = torch.randn(4, 3, requires_grad=True)\nweight = torch.randn(2, 3, requires_grad=True)\n"


def _indented(text: str, by: int = 4) -> str:
    return "\n".join(" " * by + line if line else line for line in text.splitlines())


def _module_level(save: str, write: str) -> str:
    body = f"h = x * 2\n{save}\n{write}\n".replace("{h}", "h")
    return f"{HEAD}{body}(y.sum() + h.sum()).backward()\n"


def _function(save: str, write: str) -> str:
    body = f"h = x * 2\n{save}\n{write}\nreturn y.sum() + h.sum()".replace("{h}", "h")
    return f"{HEAD}\n\ndef loss_of(x):\n{_indented(body)}\n\n\nloss_of(x).backward()\n"


def _loop(save: str, write: str) -> str:
    body = f"{save}\ntotal = total + y.sum()\n{write}".replace("{h}", "h")
    return f"{HEAD}h = x * 2\ntotal = 0.0\nfor step in range(3):\n{_indented(body)}\n(total + h.sum()).backward()\n"


def _attribute(save: str, write: str) -> str:
    body = f"self.h = x * 2\n{save}\n{write}\nreturn y.sum() + self.h.sum()".replace("{h}", "self.h")
    return f"{HEAD}\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n{_indented(body, 8)}\n\n\nNet()(x).backward()\n"


def _argument(save: str, write: str) -> str:
    first = f"{save}\nreturn y.sum()".replace("{h}", "t")
    second = f"{write}\nreturn t".replace("{h}", "t")
    return (
        f"{HEAD}\n\ndef energy(t):\n{_indented(first)}\n\n\ndef change_(t):\n{_indented(second)}\n\n\n"
        "h = x * 2\ne = energy(h)\nchange_(h)\n(e + h.sum()).backward()\n"
    )


def _list_item(save: str, write: str) -> str:
    body = f"{save}\n{write}".replace("{h}", "hs[k]")
    return f"{HEAD}hs = [x * 2, x * 3]\ntotal = 0.0\nfor k in range(2):\n{_indented(body)}\n    total = total + y.sum()\n(total + hs[0].sum() + hs[1].sum()).backward()\n"


CONTEXTS = {"module": _module_level, "function": _function, "loop": _loop, "attribute": _attribute, "argument": _argument, "list": _list_item}


def programs() -> dict[str, str]:
    """Every save with every write at module level, and each context with a few of them."""
    found = {}
    for number, ((save_name, save), (write_name, write)) in enumerate(itertools.product(SAVES.items(), WRITES.items())):
        for position, (context, make) in enumerate(CONTEXTS.items()):
            if (number + position) % len(CONTEXTS) == 0:
                found[f"{context}: {save_name}, {write_name}"] = make(save, write)
    return found
