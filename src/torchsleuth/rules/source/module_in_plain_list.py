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
        if not any(isinstance(n, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Tuple)) for n in _assigned(init)):
            return None
        registered = self._registered(info)
        found = []
        for node in ast.walk(init):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and is_self_attribute(node.targets[0]):
                kind = self._held(node.value, view, info)
                if kind and node.targets[0].attr not in registered:
                    found.append(self._found(node, node.value, node.targets[0].attr, kind, info, view))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
                owner = node.func.value
                if is_self_attribute(owner) and owner.attr not in registered and self._starts_as_list(owner.attr, init):
                    kind = self._maker(node.args[0], view)
                    if kind:
                        found.append(self._found(node, None, owner.attr, kind, info, view))
        return found

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
        return names | _read_on(info.methods["__init__"])

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

    def _starts_as_list(self, attr: str, init: ast.AST) -> bool:
        return any(isinstance(n, ast.Assign) and is_self_attribute(n.targets[0]) and n.targets[0].attr == attr
                   and isinstance(n.value, ast.List) for n in ast.walk(init))  # fmt: skip

    def _found(self, node, value, attr: str, kind: str, info: ClassInfo, view: View):
        is_dict = isinstance(value, (ast.Dict, ast.DictComp))
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
