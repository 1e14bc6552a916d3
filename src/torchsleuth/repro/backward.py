"""Reproductions of the backward families: candidates in order, each a list of lines. Pure: evidence in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchsleuth.evidence import Evidence, StaleSave
from torchsleuth.repro.parts import identifier, tensor, with_history

Lines = list[str]


def candidates(rule: str, evidence: Evidence) -> Iterator[Lines]:
    maker = {
        "inplace-saved-tensor": _overwritten,
        "inplace-on-leaf": _leaf,
        "inplace-on-view": _view,
        "freed-graph": _freed,
        "lost-gradient": _lost,
        "nonscalar-backward": _nonscalar,
        "custom-backward-returns": _returns,
    }.get(rule)
    if maker is not None:
        yield from maker(evidence)


# -- an overwritten saved tensor -----------------------------------------------------------------------

_BINARY = {"mul": "*", "div": "/", "mm": "@", "addmm": "@", "bmm": "@", "matmul": "@", "sub": "-", "add": "+", "pow": "**", "mv": "@", "dot": "@"}


def _overwritten(evidence: Evidence) -> Iterator[Lines]:
    failing = next((save for save in evidence.stale if save.failing), None)
    if failing is None:
        return
    name = identifier(failing.tensor.name or failing.tensor.view_of, "h")
    site = failing.writes[0] if failing.writes else None
    if site is not None and re.search(r"\bstep\(", site.place.source) and failing.tensor.kind == "parameter":
        yield from _stepped(failing, name)
        return
    if failing.tensor.kind == "parameter" and not failing.is_result:
        yield [
            f"{name} = torch.nn.Parameter({tensor(failing.tensor.shape, failing.tensor.dtype)})",
            f"y = {tensor(failing.tensor.shape, failing.tensor.dtype, True)} * {name}  # saves {name}",
            "with torch.no_grad():",
            f"    {name} -= 0.1 * {name}  # and this overwrites it",
            "y.sum().backward()",
        ]
    for saving in _saving(failing, name):
        for writing in _writing(failing, name):
            yield [
                f"{name} = {with_history(failing.tensor)}  # {list(failing.tensor.shape)}",
                *saving,
                *writing,
                "result.sum().backward()",
            ]


def _stepped(failing: StaleSave, name: str) -> Iterator[Lines]:
    shape = failing.tensor.shape
    lines = [
        f"{name} = torch.nn.Parameter({tensor(shape, failing.tensor.dtype)})",
        f"optimizer = torch.optim.SGD([{name}], lr=0.1)",
    ]
    end = ["loss = score.mean()", "loss.backward(retain_graph=True)", f"optimizer.step()  # writes into {name}", f"loss.backward()  # needs the old {name}"]
    if len(shape) == 2:
        yield [*lines, f"x = {tensor((4, shape[1]), failing.tensor.dtype, True)}", f"score = torch.nn.functional.linear(x, {name})  # saves {name}", *end]
    if len(shape) in (3, 4):
        image = (2, shape[1], *(size + 4 for size in shape[2:]))
        yield [*lines, f"x = {tensor(image, failing.tensor.dtype, True)}", f"score = torch.nn.functional.conv{len(shape) - 2}d(x, {name})  # saves {name}", *end]
    yield [*lines, f"x = {tensor(shape, failing.tensor.dtype, True)}", f"score = x * {name}  # saves {name}", *end]


def _saving(failing: StaleSave, name: str) -> Iterator[Lines]:
    operation, shape, dtype = failing.operation.rstrip("_"), failing.tensor.shape, failing.tensor.dtype
    note = f"  # saves its result, {name}" if failing.is_result else f"  # saves {name}"
    if not dtype.startswith(("float", "bfloat", "complex")):
        yield [f"table = {tensor((8, 2), 'float32', True)}", f"result = table[{name}]{note}"]
        yield [f"table = {tensor((8, 2), 'float32', True)}", f"result = table.index_select(0, {name}.flatten()){note}"]
        return
    if failing.is_result:
        for call in (f"torch.{operation}({name})", f"torch.{operation.removesuffix('_backward').lstrip('_')}({name}, dim=-1)", f"torch.exp({name})"):
            yield [f"{name} = result = {call}{note}"]
        return
    symbol = _BINARY.get(operation)
    other = identifier("", "w")
    if operation == "pow":
        yield [f"result = {name} ** 2{note}"]
    if symbol == "@" and len(shape) >= 2:
        if failing.saved in ("mat2", "other", "weight"):
            yield [f"{other} = {tensor((*shape[:-2], 3, shape[-2]), dtype, True)}", f"result = {other} @ {name}{note}"]
        yield [f"{other} = {tensor((*shape[:-2], shape[-1], 3), dtype, True)}", f"result = {name} @ {other}{note}"]
    if symbol in ("*", "/"):
        yield [f"{other} = {tensor(shape, dtype, True)}", f"result = {other} {symbol} {name}{note}"]
        yield [f"{other} = {tensor(shape, dtype, True)}", f"result = {name} {symbol} {other}{note}"]
    yield [f"result = torch.{operation}({name}){note}"]
    yield [f"result = {name} ** 2{note}"]
    yield [f"{other} = {tensor(shape, dtype, True)}", f"result = {other} * {name}{note}"]


def _writing(failing: StaleSave, name: str) -> Iterator[Lines]:
    site = failing.writes[0] if failing.writes else None
    operation = site.operation if site is not None else "add_"
    note = "  # and this overwrites it"
    number = "1" if not failing.tensor.dtype.startswith(("float", "bfloat")) else "0.5"
    lines = {
        "__setitem__": [f"{name}[0] = 0"], "zero_": [f"{name}.zero_()"], "copy_": [f"{name}.copy_({name} + 1)"], "fill_": [f"{name}.fill_({number})"],
        "relu": [f"torch.relu_({name})"], "relu_": [f"torch.relu_({name})"], "clamp_": [f"{name}.clamp_(min=0)"], "add": [f"torch.add({name}, 1, out={name})"],
        "mul_": [f"{name}.mul_({number})"], "sub_": [f"{name} -= 1"], "div_": [f"{name} /= 2"],
    }.get(operation, [f"{name} += 1"])  # fmt: skip
    if failing.tensor.shape == () and operation == "__setitem__":
        lines = [f"{name} += 1"]
    lines = [f"{lines[0]}{note}"]
    if site is not None and site.grad_enabled is False:
        lines = ["with torch.no_grad():", f"    {lines[0]}"]
    yield lines
    yield [f"{name} += 1{note}"]


# -- writes that are refused ---------------------------------------------------------------------------


def _leaf(evidence: Evidence) -> Iterator[Lines]:
    target = evidence.inplace_target
    if target is None:
        return
    leaf = target.base if target.base is not None and not target.tensor.is_leaf else target.tensor
    name = identifier(leaf.name, "x")
    made = f"{name} = torch.nn.Parameter({tensor(leaf.shape, leaf.dtype)})" if leaf.kind == "parameter" else f"{name} = {tensor(leaf.shape, leaf.dtype, True)}"
    lines = [made]
    written = name
    if leaf is not target.tensor:
        written = identifier(target.tensor.name, "view") if target.tensor.name != leaf.name else "view"
        lines.append(f"{written} = {name}[0]")
    writes = {
        "__setitem__": f"{written}[0] = 0", "fill_": f"{written}.fill_(0.5)", "zero_": f"{written}.zero_()", "mul_": f"{written}.mul_(2)", "sub_": f"{written} -= 1",
        "index_put_": f"{written}.index_put_((torch.tensor([0]),), torch.tensor(1.0))", "uniform_": f"{written}.uniform_()", "normal_": f"{written}.normal_()",
        "copy_": f"{written}.copy_(torch.zeros_like({written}))",
    }  # fmt: skip
    for write in dict.fromkeys([writes.get(target.operation, f"{written} += 1"), f"{written} += 1"]):
        yield [*lines, f"{write}  # {name} is a leaf that requires grad"]


def _view(evidence: Evidence) -> Iterator[Lines]:
    target, message = evidence.inplace_target, evidence.exception.message
    shape = target.base.shape if target is not None and target.base is not None and target.base.shape else (3, 3)
    base = identifier(target.base.name if target is not None and target.base is not None else "", "x")
    view = identifier(target.tensor.name if target is not None else "", "part")
    view = view if view != base else "part"
    made = f"{base} = {tensor(shape, 'float32', True)}.clone()"
    read = "its base or another view" in message
    if "no_grad mode" in message or "inference mode" in message:
        if read:
            yield [made, "with torch.no_grad():", f"    {view} = {base}[0]", f"{base} += 1", f"{view} * 2"]
        yield [made, "with torch.no_grad():", f"    {view} = {base}[0]", f"{view} += 1  # a view made under no_grad"]
        return
    makers = {"split": f"{base}.split(1)", "chunk": f"{base}.chunk(2)", "unbind": f"{base}.unbind(0)"}
    preferred = target.made_by if target is not None else ""
    for how in dict.fromkeys([preferred, *makers]):
        if how not in makers:
            continue
        if how == "unbind" and not read:
            yield [made, f"for {view} in {base}:  # all rows come from one call", f"    {view} += 1"]
        last = f"{view} * 2" if read else f"{view} += 1  # one of several views of one call"
        yield [made, f"{view} = {makers[how]}[0]", *([f"{base} += 1"] if read else []), last]


# -- graphs gone through twice --------------------------------------------------------------------------


def _freed(evidence: Evidence) -> Iterator[Lines]:
    freed = evidence.freed
    if freed is None:
        return
    root = identifier(freed.root.name if freed.root is not None else "", "loss")
    if freed.same_root:
        yield ["x = torch.randn(3, requires_grad=True)", f"{root} = (x ** 2).sum()", f"{root}.backward()", f"{root}.backward()  # its values are freed"]
        return
    if freed.carried:
        item = freed.carried[0]
        name = identifier(item.tensor.name, "state")
        shape = item.tensor.shape
        again = item.made is not None and item.used is not None and item.made.span == item.used.span
        if again or name == root:
            yield [
                f"w = {tensor(shape, 'float32', True)}",
                f"{name} = torch.zeros({', '.join(map(str, shape)) if shape else '()'})",
                "for step in range(2):",
                f"    {name} = torch.tanh({name} + w)  # carries the graph of the step before",
                f"    {name}.sum().backward()",
            ]
        yield [
            f"w = {tensor(shape, 'float32', True)}",
            f"{name} = torch.exp(w)  # computed once",
            "for step in range(2):",
            f"    loss = ({name} * torch.randn_like({name})).sum()",
            "    loss.backward()",
        ]
        return
    yield [
        "x = torch.randn(3, requires_grad=True)",
        "shared = torch.exp(x)",
        "first, second = shared.sum(), (shared * 2).sum()",
        "first.backward()",
        "second.backward()  # the shared part is freed",
    ]


# -- gradients that were lost ----------------------------------------------------------------------------


def _lost(evidence: Evidence) -> Iterator[Lines]:
    lost = evidence.lost
    if lost is None:
        return
    root = identifier(lost.root.name, "loss")
    head = "w = torch.randn(3, requires_grad=True)"
    cut = lost.cuts[0] if lost.cuts else None
    if cut is None:
        yield [f"w = torch.nn.Parameter(torch.randn(3), requires_grad={'False' if lost.frozen else 'True'})" if lost.frozen else "w = torch.randn(3)", f"{root} = (w * 2).sum()", f"{root}.backward()"]
        return
    shape = cut.tensor.shape if cut.tensor is not None else (3,)
    head = f"w = {tensor(shape, 'float32', True)}"
    name = identifier(cut.tensor.name if cut.tensor is not None else "", "prediction")
    name = name if name not in ("w", root) else "prediction"
    made = f"{name} = w * 2"
    ways = {
        "detach": [f"{root} = {name}.detach().sum()"],
        "data": [f"{root} = {name}.data.sum()"],
        "item": [f"{root} = torch.tensor({name}.sum().item())"],
        "tolist": [f"{root} = torch.tensor({name}.tolist()).sum()"],
        "numpy": [f"{root} = torch.from_numpy({name}.detach().numpy()).sum()"],
        "tensor": [f"{root} = torch.tensor([{name}.sum(), {name}.mean()]).sum()"],
        "argmax": [f"{root} = {name}.argmax().float()"],
    }
    if cut.reason == "no_grad":
        yield [head, "with torch.no_grad():", f"    {name} = w * 2", f"{root} = {name}.sum()", f"{root}.backward()"]
    elif cut.operation in ways:
        yield [head, made, *ways[cut.operation], f"{root}.backward()"]
    elif cut.reason == "integer":
        yield [head, made, f"{root} = ({name} > 0).float().sum()", f"{root}.backward()"]
    else:
        yield [head, made, *ways["detach"], f"{root}.backward()"]


def _nonscalar(evidence: Evidence) -> Iterator[Lines]:
    found = evidence.backward_root
    if found is None:
        return
    root = identifier(found.root.name, "loss")
    lines = [f"x = {tensor(found.root.shape, 'float32', True)}", f"{root} = x * 2  # {list(found.root.shape)}"]
    if found.gradient is not None and "Mismatch" in evidence.exception.message:
        yield [*lines, f"{root}.backward({tensor(found.gradient.shape)})"]
    yield [*lines, f"{root}.backward()"]


# -- custom Functions ------------------------------------------------------------------------------------


def _returns(evidence: Evidence) -> Iterator[Lines]:
    custom, message = evidence.custom, evidence.exception.message
    if custom is None:
        return
    arguments = ", ".join(custom.parameters) or "x"
    names = list(custom.parameters) or ["x"]

    def function(returned: str, forward: str) -> Lines:
        return [
            f"class {custom.function}(torch.autograd.Function):",
            "    @staticmethod",
            f"    def forward(ctx, {arguments}):",
            f"        return {forward}",
            "",
            "    @staticmethod",
            "    def backward(ctx, grad):",
            f"        return {returned}",
            "",
        ]

    shape = re.search(r"invalid gradient at index (\d+) - got \[(.*?)\] but expected shape compatible with \[(.*?)\]", message)
    count = re.search(r"incorrect number of gradients \(expected (\d+), got (\d+)\)", message)
    extra = re.search(r"different than None at position (\d+)", message)
    kind = re.search(r"expected Variable or None \(got (\w+)\)", message)
    zeros = [f"{name} = torch.randn(3, requires_grad=True)" for name in names]
    call = f"{custom.function}.apply({arguments}).sum().backward()"
    total = " + ".join(f"{name}.sum()" for name in names)
    if shape:
        got, wanted = (tuple(int(n) for n in re.findall(r"\d+", text)) for text in (shape[2], shape[3]))
        position = int(shape[1])
        returned = ", ".join(f"torch.ones({', '.join(map(str, got)) if got else '()'})" if k == position else "None" for k in range(len(names)))
        lines = [f"{name} = {tensor(wanted if k == position else (3,), 'float32', True)}" for k, name in enumerate(names)]
        yield [*function(returned, total), *lines, call]
    elif count:
        yield [*function(", ".join(["grad.expand(3)"] * int(count[2])), total), *zeros, call]
    elif extra:
        position = int(extra[1]) - 1
        values = [f"{name} = 2" if k == position else line for k, (name, line) in enumerate(zip(names, zeros, strict=True))]
        total = " + ".join(f"{name}.sum()" for k, name in enumerate(names) if k != position)
        yield [*function(", ".join(["grad.expand(3)"] * len(names)), total), *values, call]
    elif kind:
        yield [*function(", ".join(["1.0"] * len(names)), total), *zeros, call]
