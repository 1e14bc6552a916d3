"""A Python loop over rows, positions or elements that one tensor operation does at once."""

from __future__ import annotations

import ast
import os
import re

from torchsleuth.linter.events import Call, Frame
from torchsleuth.linter.lintrule import Found, LintRule, View
from torchsleuth.linter.vectorise.lifted import GiveUp, Recurrence
from torchsleuth.linter.vectorise.plan import COLLECTORS, Plan, plan_assigned_comprehension, plan_comprehension, plan_loop
from torchsleuth.linter.vectorise.region import job_for
from torchsleuth.linter.vectorise.rewrite import code_of, edits_for
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fix, Role, Status, Verdict

# Written to use less memory than the whole at once: who names it so knows the other way.
SPARES_MEMORY = re.compile(r"low_?mem|mem(ory)?_?(eff|sav|free)|chunk", re.IGNORECASE)


LONGEST = 420  # of what is written instead, in characters


class LoopOverTensor(LintRule):
    """A Python loop does row by row what one tensor operation does at once.

    What happened
    -------------
    A loop runs over the rows, positions or elements of a tensor, and fills another tensor, a list that is
    then stacked, or a running total. Every turn starts its own small operations.

    Why
    ---
    Each operation costs a few microseconds to start whatever its size, and with gradients each turn adds
    nodes to the graph that backward walks one by one. The same computation over a whole dimension starts
    once. The loop is slow, not wrong: values and gradients are the same.

    Example
    -------
    This runs and prints True: the loop and the reduction agree, in values and in gradients.

        import torch
        x = torch.randn(16, 10, requires_grad=True)
        out = torch.zeros(16)
        for i in range(16):
            out[i] = torch.sum(x[i, :])
        (loop_grad,) = torch.autograd.grad(out.sum(), x)
        (sum_grad,) = torch.autograd.grad(x.sum(dim=1).sum(), x)
        print(torch.allclose(out, x.sum(dim=1)) and torch.equal(loop_grad, sum_grad))

    Fix
    ---
    Name the dimension instead of looping over it: `sum`, `mean`, `amin`, `amax` with `dim`, `torch.where` or
    `masked_fill` for conditions, broadcasting (`x[:, None] - y`) for pairs, indexing by tensors for gathers.
    `torchsleuth lint --fix` does it where it can run both versions and finds the same values, gradients,
    shapes and dtypes. Where each turn needs the one before (a recurrence), there is nothing to rewrite.

    Common false explanations
    -------------------------
    "Writing into a preallocated tensor in a loop loses the gradient." It does not: every write is recorded
    (as CopySlices), and the gradient is right. "An element-wise loop raises in backward." Only where an
    operation kept the tensor that is written to.
    """

    name = "loop-over-tensor"
    calls = frozenset({"stack", "tensor", "cat", "concat", "sum", "as_tensor", "vstack"})

    def on_loop(self, node: ast.AST, frame: Frame, body: list[ast.stmt], position: int, view: View) -> Found:
        if SPARES_MEMORY.search(getattr(frame.node, "name", "")):
            return None
        if not isinstance(node, (ast.For, ast.While)) or self._is_covered(node, view) or not _may_be_vectorised(node):
            return None
        before = body[:position]

        def make(keep: bool = False) -> Plan:
            return plan_loop(node, body, position, frame, view.dotted, keep)

        return self._attempt(node, node, make, before, frame, view)

    def on_call(self, call: Call, view: View) -> Found:
        node = call.node
        if not node.args or not isinstance(node.args[0], (ast.ListComp, ast.GeneratorExp)) or SPARES_MEMORY.search(getattr(call.frame.node, "name", "")):
            return None
        kind = COLLECTORS.get(call.path) or ("sum" if call.name == "sum" and call.path == "" and call.receiver is None else None)
        if kind is None or (kind == "sum" and len(node.args) > 1) or any(k.arg in ("dtype", "device") for k in node.keywords):
            return None
        if self._is_covered(node, view):
            return None
        before = _statements_before(call.frame, node)
        return self._attempt(
            node, node.args[0], lambda keep=False: plan_comprehension(node, node.args[0], kind, call.frame, view.dotted), before, call.frame, view
        )

    def on_statement(self, node: ast.stmt, frame: Frame, view: View) -> Found:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.ListComp) or len(node.targets) != 1:
            return None
        if not isinstance(node.targets[0], ast.Name) or self._is_covered(node, view):
            return None
        if any(g.ifs for g in node.value.generators) or isinstance(node.value.elt, (ast.Constant, ast.JoinedStr, ast.Name, ast.Tuple, ast.Dict)):
            return None
        block = _block_with(frame.node, node)
        if block is None:
            return None
        position = block.index(node)
        return self._attempt(
            node, node.value, lambda keep=False: plan_assigned_comprehension(node, block, position, frame, view.dotted),
            _statements_before(frame, node), frame, view,
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------

    def _is_covered(self, node: ast.AST, view: View) -> bool:
        return id(node) in view.covered and view.covered[id(node)] is not node

    def _attempt(self, node, shown, make, before, frame: Frame, view: View) -> Diagnosis | None:
        try:
            plan = make()
            _name_torch(plan, view)
            edits = edits_for(plan, view.source)
            if sum(len(e.replacement) for e in edits) > max(LONGEST, 2 * len(view.text(node))):
                raise GiveUp("what would take its place is longer than anyone wants to read")
        except GiveUp as reason:
            self._remark(node, reason, frame, view)
            return None
        except RecursionError:
            raise
        except Exception:
            if os.environ.get("TORCHSLEUTH_DEBUG"):
                raise
            return None  # a loop form nobody thought of must not stop the linting of a file
        for inner in ast.walk(node):
            if inner is not node:
                view.covered[id(inner)] = node
        return self._diagnosis(plan, edits, node, shown, before, frame, view)

    def _diagnosis(self, plan: Plan, edits, node, shown, before, frame: Frame, view: View) -> Diagnosis:
        does = _what(plan)
        confidence = Confidence.CERTAIN if plan.is_sure else Confidence.LIKELY
        takes = [f"taken for granted: {text}" for text in plan.assumptions]
        unsure = [f"`{base}`" for base, facts in plan.reader.lifter.bases.items() if not facts["sure"]]
        if unsure:
            takes.append(f"taken for a tensor, though nothing here says so: {', '.join(unsure)}")
        fix = Fix(
            f"use {does}",
            Applicability.UNSAFE,
            edits,
            verdict=Verdict(Status.NOT_RUN, "not run yet: --prove compares it with the loop, --fix applies it if it is proven"),
        )
        culprit = view.culprit(Role.LOOP, shown, "" if isinstance(shown, ast.stmt) else "one turn per element", frame)
        found = self.diagnosis(
            f"this loop does turn by turn what {does} does at once",
            [culprit],
            "Every turn starts its own operations and, with gradients, adds its own nodes to the graph. The loop is slow, not wrong.",
            confidence,
            takes,
            [fix],
        )
        key = (self.name, culprit.span)
        if key not in view.jobs or confidence is Confidence.CERTAIN:
            try:
                view.jobs[key] = job_for(plan, before, frame, _imports(view))
            except GiveUp as reason:
                view.jobs[key] = f"not proven: {reason}"
        return found

    def _remark(self, node: ast.AST, reason: GiveUp, frame: Frame, view: View) -> None:
        if not reason.has_tensors and not _touches_tensors(node, frame):
            return
        carried = _carried(node)
        if carried and not isinstance(reason, Recurrence):
            reason = Recurrence(f"`{carried}` is computed from its own value of the turn before")
        what = "left alone, each turn needs the one before" if isinstance(reason, Recurrence) else "loop left alone"
        remark = (view.source.place(node.lineno)[1], f"{what}: {reason}")
        if remark not in view.remarks:
            view.remarks.append(remark)


def _name_torch(plan: Plan, view: View) -> None:
    """The new code says `torch`; this file may call it something else, or not have it at all."""
    new = [n for code in (*plan.statements, *(c for _, c in plan.replaced)) for n in ast.walk(code) if isinstance(n, ast.Name) and n.id == "torch"]
    names = {**view.interpreter.globals, **plan.context.frame.env}
    paths = {name: value.path for name, value in names.items() if value.kind == "path"}
    if not new or paths.get("torch") == "torch":
        return
    alias = next((name for name, path in paths.items() if path == "torch"), None)
    if alias is None:
        raise GiveUp("the file does not import torch by a name")
    for node in new:
        node.id = alias


def _may_be_vectorised(node: ast.For | ast.While) -> bool:
    """A cheap look: something is filled, gathered or added up, and nothing stands in the way at once."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        function = node.iter.func
        if isinstance(function, ast.Name):
            if function.id not in ("range", "enumerate", "zip"):
                return False
        elif not (isinstance(function, ast.Attribute) and function.attr in ("unbind", "arange")):
            return False
    if node.orelse:
        return False
    gathers = False
    pending: list[ast.AST] = list(node.body)
    while pending:
        child = pending.pop()
        if isinstance(child, BARRIERS):
            return False
        if isinstance(child, ast.Assign):
            target = child.targets[0]
            gathers |= isinstance(target, ast.Subscript)
            if isinstance(target, ast.Attribute) or isinstance(child.value, (ast.ListComp, ast.Dict, ast.Lambda)):
                return False
            if isinstance(target, ast.Name) and isinstance(child.value, (ast.BinOp, ast.Call)):
                gathers |= any(isinstance(n, ast.Name) and n.id == target.id for n in ast.walk(child.value))
        elif isinstance(child, ast.AugAssign):
            gathers = True
        elif isinstance(child, ast.Expr):
            call = child.value
            if isinstance(call, ast.Call):
                if not (isinstance(call.func, ast.Attribute) and call.func.attr == "append"):
                    return False
                gathers = True
        elif isinstance(child, ast.If):
            gathers |= isinstance(child.test, ast.Compare)
            pending += [*child.body, *child.orelse]
        elif isinstance(child, (ast.For, ast.While)):
            pending += child.body
    return gathers


BARRIERS = (ast.Return, ast.Raise, ast.Try, ast.With, ast.Break, ast.Delete, ast.Assert, ast.FunctionDef, ast.ClassDef, ast.Import,
            ast.ImportFrom, ast.Global, ast.Nonlocal, ast.AsyncFor, ast.AsyncWith)  # fmt: skip


def _carried(node: ast.AST) -> str:
    """A name that is set from its own old value in a way that is no plain sum or product."""
    for child in ast.walk(node):
        if isinstance(child, ast.Assign) and len(child.targets) == 1 and isinstance(child.targets[0], ast.Name):
            name = child.targets[0].id
            reads = [n for n in ast.walk(child.value) if isinstance(n, ast.Name) and n.id == name]
            if reads and isinstance(child.value, ast.Call) and not any(a is reads[0] for a in child.value.args) and not _set_before(node, child, name):
                return name
    return ""


def _set_before(loop: ast.AST, statement: ast.Assign, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) and n.lineno < statement.lineno for n in ast.walk(loop))


def _touches_tensors(node: ast.AST, frame: Frame) -> bool:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            value = frame.env.get(child.id)
            if value is not None and value.is_tensor:
                return True
    return False


def _what(plan: Plan) -> str:
    """The new code, or what of it tells the story."""
    texts = [code_of(s) for s in plan.statements] or [code_of(code) for _, code in plan.replaced]
    if plan.statements and plan.replaced:
        texts = [code_of(code) for _, code in plan.replaced if not isinstance(code, ast.Name)] or texts
    text = texts[-1]
    if len(text) > 90:
        text = text[:87] + "..."
    return f"`{text}`"


def _statements_before(frame: Frame, node: ast.AST) -> list[ast.stmt]:
    """Simple statements of the function that come before, whatever block they stand in."""
    body = getattr(frame.node, "body", [])
    return [s for s in body if s.end_lineno < node.lineno]


def _block_with(function: ast.AST, statement: ast.stmt) -> list[ast.stmt] | None:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(s is statement for s in block):
                return block
    return None


def _imports(view: View) -> dict[str, str]:
    """Names of this file that stand for torch or math, with the import that makes each."""
    lines = {"torch": "import torch"}
    for name, value in view.interpreter.globals.items():
        if value.kind == "path" and value.path.split(".")[0] in ("torch", "math"):
            module, _, last = value.path.rpartition(".")
            lines[name] = f"import {value.path} as {name}" if not module else f"from {module} import {last} as {name}"
    return lines
