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


# Who else holds `h` when it is written: the change must not be lost for them in a fix that is called safe. Each ends with `loss`.
HELD = {
    "alias": "h = x * 2\n{S}\nother = h\n{W}\nloss = y.sum() + other.pow(2).sum() + h.sum()\n",
    "alias before": "h = other = x * 2\n{S}\n{W}\nloss = y.sum() + other.pow(2).sum() + h.sum()\n",
    "list": "h = x * 2\n{S}\nkept = [h]\n{W}\nloss = y.sum() + kept[0].pow(2).sum()\n",
    "append": "kept = []\nh = x * 2\n{S}\nkept.append(h)\n{W}\nloss = y.sum() + sum(k.pow(3).sum() for k in kept)\n",
    "dict": "store = {}\nh = x * 2\n{S}\nstore['h'] = h\n{W}\nloss = y.sum() + store['h'].pow(2).sum()\n",
    "object": "class O: pass\no = O()\nh = x * 2\n{S}\no.h = h\n{W}\nloss = y.sum() + o.h.pow(2).sum()\n",
    "view used": "h = x * 2\n{S}\nfirst = h[0]\n{W}\nloss = y.sum() + first.pow(2).sum()\n",
    "view of": "base = x * 2\nh = base.view(4, 3)\n{S}\n{W}\nloss = y.sum() + base.pow(2).sum()\n",
    "closure": "def f(x):\n    h = x * 2\n    def read():\n        return h.pow(2).sum()\n{S4}\n{W4}\n    return y.sum() + read()\nloss = f(x)\n",
    "closure early": "def f(x):\n    h = x * 2\n    held = (lambda t: (lambda: t.pow(2).sum()))(h)\n{S4}\n{W4}\n    return y.sum() + held()\nloss = f(x)\n",
    "tuple": "h = x * 2\n{S}\npair = (h, 1)\n{W}\nloss = y.sum() + pair[0].pow(2).sum()\n",
    "helper": "def same(t): return t\nh = x * 2\n{S}\nother = same(h)\n{W}\nloss = y.sum() + other.pow(2).sum()\n",
    "transpose": "h = x * 2\n{S}\nt = h.t()\n{W}\nloss = y.sum() + t.pow(2).sum()\n",
    "for over list": "hs = [x * 2, x * 3]\nloss = 0\nfor h in hs:\n{S4}\n{W4}\n    loss = loss + y.sum()\nloss = loss + hs[0].pow(2).sum() + hs[1].sum()\n",
    "for over dict": "hs = {'a': x * 2, 'b': x * 3}\nloss = 0\nfor k, h in hs.items():\n{S4}\n{W4}\n    loss = loss + y.sum()\nloss = loss + hs['a'].pow(2).sum()\n",
    "default arg": "h = x * 2\ndef late(t=h): return t.pow(2).sum()\n{S}\n{W}\nloss = y.sum() + late()\n",
    "generator": "def g(x):\n    h = x * 2\n{S4}\n    yield h\n{W4}\n    yield y\nit = g(x)\nh0 = next(it)\ny0 = next(it)\nloss = h0.pow(2).sum() + y0.sum()\n",
    "returned": "def f(t):\n    h = t\n{S4}\n{W4}\n    return y\nb = x * 2\nloss = f(b).sum() + b.pow(2).sum()\n",
    "self": "class M:\n    def run(self, x):\n        self.h = x * 2\n        h = self.h\n{S8}\n{W8}\n        return y.sum() + self.h.pow(2).sum()\nloss = M().run(x)\n",
    "walrus": "if (h := x * 2) is not None:\n    z = h\n{S4}\n{W4}\nloss = y.sum() + z.pow(2).sum()\n",
    "star": "h, *rest = [x * 2, x * 3]\nall_ = [h, *rest]\n{S}\n{W}\nloss = y.sum() + all_[0].pow(2).sum()\n",
    "global fn": "h = x * 2\ndef total(): return h.pow(2).sum()\n{S}\n{W}\nloss = y.sum() + total()\n",
    "loop alias": "h = x * 2\nloss = 0\nprev = h\nfor i in range(2):\n{S4}\n{W4}\n    loss = loss + y.sum() + prev.sum()\n    prev = h\nloss = loss + h.pow(2).sum()\n",
    "holder": "class Holder:\n    def __init__(self, t): self.t = t\nh = x * 2\no = Holder(h)\n{S}\n{W}\nloss = y.sum() + o.t.pow(2).sum()\n",
    "partial": "import functools\nh = x * 2\np = functools.partial(torch.mul, h)\n{S}\n{W}\nloss = y.sum() + p(2.0).sum()\n",
    "zip": "h = x * 2\nz = list(zip([h], [1]))\n{S}\n{W}\nloss = y.sum() + z[0][0].pow(2).sum()\n",
    "dist": "h = x * 2\nd = torch.distributions.Normal(h, 1.0)\n{S}\n{W}\nloss = y.sum() + d.mean.pow(2).sum()\n",
    "namedtuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    t: torch.Tensor\nh = x * 2\nq = P(t=h)\n{S}\n{W}\nloss = y.sum() + q.t.pow(2).sum()\n",
    "aug list": "kept = []\nh = x * 2\nkept += [h]\n{S}\n{W}\nloss = y.sum() + kept[0].pow(2).sum()\n",
    "comp": "h = x * 2\nkept = [t for t in (h,)]\n{S}\n{W}\nloss = y.sum() + kept[0].pow(2).sum()\n",
    "method keeps": "class Box:\n    def keep(self, t): self.t = t\nbox = Box()\nh = x * 2\nbox.keep(h)\n{S}\n{W}\nloss = y.sum() + box.t.pow(2).sum()\n",
    "fn keeps": "store = []\ndef note(t): store.append(t)\nh = x * 2\nnote(h)\n{S}\n{W}\nloss = y.sum() + store[0].pow(2).sum()\n",
    "ann": "h: torch.Tensor = x * 2\nz: torch.Tensor = h\n{S}\n{W}\nloss = y.sum() + z.pow(2).sum()\n",
    "for tuple": "h = x * 2\n{S}\n{W}\nfor t in (h,):\n    pass\nloss = y.sum() + t.pow(2).sum()\n",
    "with": "import contextlib\nh = x * 2\nwith contextlib.nullcontext(h) as z:\n{S4}\n{W4}\n    loss = y.sum() + z.pow(2).sum()\n",
}  # fmt: skip
HELD_WRITES = ("h += 1", "h.mul_(0.5)", "h[0] = 0.0", "h = h.relu_()", "h[1].add_(h[0])")


def held_programs() -> dict[str, str]:
    found = {}
    for number, (name, template) in enumerate(HELD.items()):
        write = HELD_WRITES[number % len(HELD_WRITES)]
        body = template
        for depth in (8, 4, 0):
            mark = str(depth) if depth else ""
            body = body.replace(f"{{S{mark}}}", _indented("y = h ** 2", depth)).replace(f"{{W{mark}}}", _indented(write, depth))
        found[f"{name}: {write}"] = f"{HEAD}{body}loss.backward()\n"
    return found
