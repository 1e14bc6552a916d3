"""What a module declares: imports, functions, classes, and what a class's `__init__` puts on `self`."""

from __future__ import annotations

import ast

from torchsleuth.linter import expressions
from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.flow import is_foreign, is_self_attribute
from torchsleuth.linter.values import CONSTRUCTORS, UNKNOWN, Value, path_value, tensor

MODULE_BASES = frozenset({"Module", "PreTrainedModel", "LightningModule"})
FUNCTION_BASES = frozenset({"torch.autograd.Function", "torch.autograd.function.Function", "torch.autograd.function.InplaceFunction"})


class Declarations(expressions.Expressions):
    def _declare(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.ClassDef):
            self._declare_class(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions[node.name] = node
            self.globals[node.name] = Value("function", node, node.name)
        elif isinstance(node, (ast.If, ast.Try)):
            for child in [*node.body, *node.orelse]:
                if isinstance(child, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                    self._declare(child)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        env = self.frame.env
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    env[alias.asname] = path_value(alias.name)
                else:
                    root = alias.name.split(".")[0]
                    env[root] = path_value(root)
        elif node.module and not node.level:
            for alias in node.names:
                env[alias.asname or alias.name] = path_value(f"{node.module}.{alias.name}")
        else:
            for alias in node.names:
                env[alias.asname or alias.name] = path_value(f".{alias.name}")

    def _declare_class(self, node: ast.ClassDef) -> None:
        bases = tuple(self.dotted(base) for base in node.bases)
        info = ClassInfo(node, bases)
        for base in bases:
            if is_foreign(base):  # `mlx.nn.Module` and the like have rules of their own
                continue
            last = base.rsplit(".", 1)[-1]
            known = self.classes.get(last)
            info.is_module |= base == "torch.nn.Module" or last in MODULE_BASES or bool(known and known.is_module)
            info.is_module |= base.startswith("torch.nn.") and last[:1].isupper()
            info.is_function |= base in FUNCTION_BASES or bool(known and known.is_function)
            if known:
                info.methods.update(known.methods)
                info.attributes.update(known.attributes)
        for child in node.body:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                info.methods[child.name] = child
        self.classes[node.name] = info
        self.globals[node.name] = Value("class", node, node.name)
        if not info.is_function:
            self._attributes(info)

    def _attributes(self, info: ClassInfo) -> None:
        """What `__init__` puts on `self`, where its right-hand side says what it is."""
        for method in ("__init__", "__new__", "setup", "build"):
            function = info.methods.get(method)
            if function is None:
                continue
            for statement in ast.walk(function):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                    target, value = statement.targets[0], statement.value
                elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                    target, value = statement.target, statement.value
                elif (
                    isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute)
                    and statement.func.attr in ("register_buffer", "register_parameter") and len(statement.args) >= 2
                    and isinstance(statement.args[0], ast.Constant)
                ):  # fmt: skip
                    made = tensor(statement, "buffer")
                    made.grad = statement.func.attr == "register_parameter" or False
                    made.extra = {"buffer": statement.func.attr == "register_buffer"}
                    self._set(info, str(statement.args[0].value), made)
                    continue
                else:
                    continue
                pairs = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                for target, value in pairs:
                    if not is_self_attribute(target):
                        continue
                    self._set(info, target.attr, self.made_by(value))

    @staticmethod
    def _set(info: ClassInfo, name: str, made: Value) -> None:
        """One of the statements that set an attribute: where they make different things of it, nothing is known."""
        known = info.attributes.get(name)
        info.attributes[name] = UNKNOWN if known is not None and known.kind != made.kind else made

    def _given_to(self, node: ast.Call) -> list[Value]:
        """The tensor that a Parameter is made of, where it is made on the spot: how many dimensions it has."""
        first = node.args[0] if node.args else None
        head, _, last = self.dotted(first.func).rpartition(".") if isinstance(first, ast.Call) else ("", "", "")
        if head != "torch" or last not in CONSTRUCTORS:
            return []
        made = self.construct(first, last, [], {})
        if made.shape is not None and not all(isinstance(s, int) for s in made.shape):
            made.shape = None  # names of `__init__`, which mean something else elsewhere
        return [made]

    def made_by(self, node: ast.expr) -> Value:
        """The module or parameter a constructor call makes, read without events."""
        if isinstance(node, ast.Call):
            path = self.dotted(node.func)
            if path.startswith("torch.nn."):
                return self.nn_value(node, path, self._given_to(node) if path.endswith("Parameter") else None)
            if path in self.classes and self.classes[path].is_module:
                return Value("module", node, path)
            if path.startswith("torch.optim.") and path.rpartition(".")[2][:1].isupper():
                return Value("scheduler" if ".lr_scheduler." in path else "optimizer", node, path)
        if isinstance(node, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)):
            return Value("list" if isinstance(node, (ast.List, ast.ListComp)) else "dict", node)
        return UNKNOWN

    def _all_functions(self):
        """Every function of the file with the class it is a method of, nested ones included."""
        pending: list[tuple[ast.AST, ClassInfo | None]] = [(self.tree, None)]
        while pending:
            node, info = pending.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield child, info
                    pending.append((child, None))
                elif isinstance(child, ast.ClassDef):
                    known = self.classes.get(child.name)
                    if known is None or known.node is not child:
                        self._declare_class(child)
                        known = self.classes[child.name]
                        self.listener.cls(known)
                    pending.append((child, known))
                elif isinstance(child, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)):
                    pending.append((child, info))
