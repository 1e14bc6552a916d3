"""Layers or parameters kept in a plain list or dict of a module, where nobody finds them."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.flow import is_self_attribute
from torchsleuth.linter.lintrule import Found, LintRule, View, advice, unsafe_fix
from torchsleuth.linter.values import LOSS_MODULES, PARAMETRIC
from torchsleuth.model import Confidence, Role

HOLDERS = PARAMETRIC | {"LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention", "TransformerEncoderLayer",
                        "TransformerDecoderLayer", "Sequential", "Parameter", "TransformerEncoder"}  # fmt: skip
CONTAINERS = {"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"}
REGISTERING = {"add_module", "register_module", "register_parameter", "setattr", "ModuleList", "ModuleDict", "ParameterList",
               "ParameterDict", "Sequential", "append_module"}  # fmt: skip


class ModuleInPlainList(LintRule):
    """Layers or parameters are kept in a plain list or dict, so the module does not know them.

    What happened
    -------------
    A module keeps layers (`nn.Linear`, ...) or `nn.Parameter`s in a Python list or dict attribute.

    Why
    ---
    A module registers what is assigned to its attributes directly. Inside a plain list nothing is registered:
    `parameters()` leaves it out, so the optimizer never updates it, `state_dict()` does not save it, and
    `.to(device)` does not move it. The forward pass works, and gradients even arrive.

    Example
    -------
    This runs and prints 0: no parameter is known to the module.

        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(4, 4) for _ in range(3)]

        print(len(list(Net().parameters())))

    Fix
    ---
    `nn.ModuleList([...])`, `nn.ModuleDict({...})` or `nn.ParameterList([...])`.

    Common false explanations
    -------------------------
    "They are attributes of self, so they are registered." The list is; what is in it is not.
    """

    name = "module-in-plain-list"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        if not info.is_module or "__init__" not in info.methods:
            return None
        if any(base.rsplit(".", 1)[-1] in ("ModuleList", "ModuleDict", "Sequential") for base in info.bases):
            return None
        init = info.methods["__init__"]
        if init not in info.node.body:
            return None
        if not any(isinstance(n, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Tuple, ast.Name)) for n in _assigned(init)):
            return None
        registered = self._registered(info)
        found = []
        local = _local_containers(init)
        for node in ast.walk(init):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and is_self_attribute(node.targets[0]):
                name = node.targets[0].attr
                kind = self._held(node.value, view, info)
                if not kind and isinstance(node.value, ast.Name) and node.value.id in local:
                    kind = self._put_in(local[node.value.id], init, view, info)
                if kind and name not in registered:
                    is_dict = isinstance(local[node.value.id].value, ast.Dict) if isinstance(node.value, ast.Name) else None
                    found.append(self._found(node, node.value, name, kind, info, view, is_dict))
            else:
                owner, value = _added(node)
                if owner is not None and is_self_attribute(owner) and owner.attr not in registered and (start := _start_of(owner.attr, init)) is not None:
                    kind = self._maker(value, view)
                    if kind:
                        found.append(self._found(node, None, owner.attr, kind, info, view, isinstance(start, ast.Dict)))
        return found

    def _put_in(self, start: ast.Assign, init: ast.AST, view: View, info: ClassInfo) -> str:
        """What a local list or dict holds when it becomes an attribute: what it starts with, or what is added to it."""
        kind = self._held(start.value, view, info)
        for node in ast.walk(init):
            owner, value = _added(node)
            if isinstance(owner, ast.Name) and owner.id == start.targets[0].id:
                made = self._maker(value, view)
                if not made:
                    return ""
                kind = kind or made
        return kind

    def _registered(self, info: ClassInfo) -> set[str]:
        """Attributes that are registered some other way somewhere in the class."""
        names: set[str] = set()
        for node in ast.walk(info.node):
            if isinstance(node, ast.Call):
                last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
                if last in REGISTERING:
                    names |= {a.attr for n in [*node.args, *(k.value for k in node.keywords)] for a in ast.walk(n) if is_self_attribute(a)}
                    if last in ("add_module", "register_module", "setattr", "register_parameter"):
                        names |= {a.attr for a in ast.walk(info.node) if is_self_attribute(a)}
            if isinstance(node, ast.Assign) and any(is_self_attribute(t) for t in node.targets) and isinstance(node.value, ast.Call):
                if any(isinstance(n, ast.Call) and (getattr(n.func, "attr", "") in REGISTERING) for n in ast.walk(node.value)):
                    names |= {t.attr for t in node.targets if is_self_attribute(t)}
        return names | _read_on(info.methods["__init__"]) | _assigned_on(info.node)

    def _held(self, value: ast.expr, view: View, info: ClassInfo) -> str:
        # A list of exactly one is the known way to keep a module out of parameters() on purpose.
        if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) > 1:
            kinds = [self._maker(e, view) for e in value.elts]
            return kinds[0] if all(kinds) else ""
        if isinstance(value, ast.ListComp):
            return self._maker(value.elt, view)
        if isinstance(value, ast.Dict) and value.values:
            kinds = [self._maker(e, view) for e in value.values]
            return kinds[0] if all(kinds) else ""
        if isinstance(value, ast.DictComp):
            return self._maker(value.value, view)
        return ""

    def _maker(self, node: ast.expr, view: View) -> str:
        """What kind of thing with parameters of its own this call makes; empty where that is not shown."""
        path = view.dotted(node.func) if isinstance(node, ast.Call) else ""
        return path.removeprefix("torch.nn.").removeprefix("parameter.") if path and self._makes_parameters(node, view, set()) else ""

    def _makes_parameters(self, node: ast.Call, view: View, seen: set[str]) -> bool:
        path = view.dotted(node.func)
        head, _, last = path.rpartition(".")
        if path in CONTAINERS:
            inside = [*node.args, *(k.value for k in node.keywords)]
            calls = [n for i in inside for n in ast.walk(i) if isinstance(n, ast.Call)]
            # `*layers` were made elsewhere; a block from another file is there for its parameters
            return any(isinstance(i, (ast.Name, ast.Starred)) for i in inside) or any(
                self._makes_parameters(c, view, seen) or not self._is_known(c, view) for c in calls
            )
        if head in ("torch.nn", "torch.nn.parameter"):
            return last in HOLDERS and last not in LOSS_MODULES
        info = view.interpreter.classes.get(path)
        if info is None or not info.is_module or path in seen:
            return False
        seen.add(path)
        made = [v.node for v in info.attributes.values() if v.kind == "module" and isinstance(v.node, ast.Call)]
        return any(v.op == "Parameter" for v in info.attributes.values()) or any(self._makes_parameters(c, view, seen) for c in made)

    def _is_known(self, call: ast.Call, view: View) -> bool:
        path = view.dotted(call.func)
        return path.startswith("torch.") or path in view.interpreter.classes

    def _found(self, node, value, attr: str, kind: str, info: ClassInfo, view: View, is_dict: bool | None = None):
        is_dict = isinstance(value, (ast.Dict, ast.DictComp)) if is_dict is None else is_dict
        holder = f"nn.{'Parameter' if kind == 'Parameter' else 'Module'}{'Dict' if is_dict else 'List'}"
        fixes = [advice(f"use `{holder}`")]
        if value is not None and view.interpreter.globals.get("nn") is not None and view.interpreter.globals["nn"].path == "torch.nn":
            fixes = [unsafe_fix(f"use `{holder}`", "the layers become part of parameters() and state_dict()", view.edit(value, f"{holder}({view.text(value)})"))]
        container = "dict" if is_dict else "list"
        return self.diagnosis(
            f"`self.{attr}` keeps {kind} in a plain {container}: the module does not know its parameters",
            [view.culprit(Role.CREATE, node, f"a plain {container}")],
            f"What is inside a {container} is not registered: `{info.node.name}.parameters()` leaves it out, so the optimizer never "
            "updates it, `state_dict()` does not save it and `.to(device)` does not move it.",
            Confidence.CERTAIN,
            fixes=fixes,
        )


def _assigned(init: ast.AST):
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and is_self_attribute(node.targets[0]):
            yield node.value


def _start_of(attr: str, init: ast.AST) -> ast.expr | None:
    """The list or dict that an attribute starts as."""
    return next((n.value for n in ast.walk(init) if isinstance(n, ast.Assign) and is_self_attribute(n.targets[0]) and n.targets[0].attr == attr
                 and isinstance(n.value, (ast.List, ast.Dict))), None)  # fmt: skip


def _added(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """`layers.append(layer)` and `heads[name] = layer`: what is added to, and what is added."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0].value, node.value
    return None, None


def _local_containers(init: ast.AST) -> dict[str, ast.Assign]:
    """Lists and dicts of `__init__` that are only filled and then assigned to one attribute: nobody else gets what is in them."""
    made: dict[str, list[ast.Assign]] = {}
    uses: dict[str, int] = {}
    meant: dict[str, int] = {}
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, []).append(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id] = uses.get(node.id, 0) + 1
        owner = _added(node)[0]
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and is_self_attribute(node.targets[0]):
            owner = node.value
        if isinstance(owner, ast.Name):
            meant[owner.id] = meant.get(owner.id, 0) + 1
    return {name: starts[0] for name, starts in made.items() if len(starts) == 1 and isinstance(starts[0].value, (ast.List, ast.ListComp, ast.Dict))
            and len(starts[0].targets) == 1 and uses.get(name) == meant.get(name)}  # fmt: skip


def _assigned_on(cls: ast.ClassDef) -> set[str]:
    """Attributes of which some method assigns an element to another attribute, which registers it: `self.net = self.nets[kind]`."""
    names: set[str] = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign) and any(is_self_attribute(t) for t in node.targets):
            for value in (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,):
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("get", "pop"):
                    value = value.func
                if isinstance(value, (ast.Subscript, ast.Attribute)) and is_self_attribute(value.value):
                    names.add(value.value.attr)
    return names


def _read_on(init: ast.AST) -> set[str]:
    """Attributes whose content `__init__` puts somewhere else: `for layer in self.layers: parts.append(layer)`, `*self.layers`."""
    names: set[str] = set()
    for node in ast.walk(init):
        if isinstance(node, (ast.For, ast.comprehension)):
            taken = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            inside = node.body if isinstance(node, ast.For) else []
            handed = isinstance(node, ast.comprehension) or any(
                isinstance(n, ast.Call) and any(isinstance(a, ast.Name) and a.id in taken for a in n.args) for s in inside for n in ast.walk(s)
            )
            if handed:
                names |= {a.attr for a in ast.walk(node.iter) if is_self_attribute(a)}
        elif isinstance(node, ast.Call):  # `Layer(c=self.curvatures[0])`: whoever gets it may register it
            given = [*node.args, *(k.value for k in node.keywords)]
            names |= {a.value.attr for g in given for a in ast.walk(g) if isinstance(a, ast.Subscript) and is_self_attribute(a.value)}
        elif isinstance(node, ast.Starred):
            names |= {a.attr for a in ast.walk(node.value) if is_self_attribute(a)}
    return names
