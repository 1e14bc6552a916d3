"""Whether a rewrite may be spoken of: something must show tensors, and nothing of a turn may be left over."""

from __future__ import annotations

import ast
import re
import typing

from torchsleuth.linter.values import TENSOR_METHODS
from torchsleuth.linter.vectorise.lifted import GiveUp

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

COLLECTORS = {"torch.stack": "stack", "torch.tensor": "tensor", "torch.cat": "cat", "torch.concat": "cat", "torch.as_tensor": "tensor",
              "torch.FloatTensor": "tensor", "torch.vstack": "vstack"}  # fmt: skip
# What is iterated and never shown to be a tensor is taken for one by its name, or not at all.
TENSOR_NAME = re.compile(
    r"^[a-z]\d?$|tensor|matri|logit|prob|score|feat|emb|image|img|inp|batch|data|row|vec|point|hidden|att|weight|value|pred|"
    r"target|label|box|coord|pos|signal|wave|ind|ids|token|mask|seq|text|src|tgt|query|key",
    re.IGNORECASE,
)


def require_evidence(plan: Plan) -> None:
    """Where no torch operation is involved, a loop over what may be a list or numbers is nobody's business."""
    lifter = plan.reader.lifter
    if not lifter.bases:
        raise GiveUp("no tensor is involved")
    if all(facts["sure"] or facts["kind"] == "index" for facts in lifter.bases.values()):
        return
    nodes = [n for n in ast.walk(plan.loop) if isinstance(n, (ast.Call, ast.Attribute))]
    for node in nodes:
        if isinstance(node, ast.Call):
            path = plan.context.dotted(node.func)
            if path.startswith("torch.") and path != "torch.arange":
                return
            if isinstance(node.func, ast.Attribute) and node.func.attr in TENSOR_METHODS and node.func.attr != "append":
                return
    if any(COLLECTORS.get(plan.context.dotted(call.func)) for call, _ in plan.collected) or any(s.target in plan.context.allocations for s in plan.reader.stores):
        return
    raise GiveUp("nothing here shows that it runs over a tensor")


def require_tensors(plan: Plan) -> None:
    """What is iterated, and nothing shows to be a tensor, must not look like a list: of pairs, or of pieces to be joined."""
    lifter = plan.reader.lifter
    unsure = {base for base, facts in lifter.bases.items() if not facts["sure"]}
    if not unsure:
        return
    iterated: set[str] = set()
    for node in ast.walk(plan.loop):
        if isinstance(node, (ast.For, ast.comprehension)):
            sources = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
            if any(ast.unparse(s) in unsure for s in sources):
                iterated |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    if not iterated:
        return
    adds_up = plan.reader.accumulators and not (plan.collected or plan.reader.stores)
    if adds_up or isinstance(plan.loop, ast.Call) and plan.context.dotted(plan.loop.func) not in COLLECTORS:
        raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of tensors")
    if not any(TENSOR_NAME.search(base) for base in unsure):
        raise GiveUp("nothing here shows that it runs over a tensor")
    calls = [call for call, _ in plan.collected] + ([plan.loop] if isinstance(plan.loop, ast.Call) else [])
    if plan.reader.grown or any(COLLECTORS.get(plan.context.dotted(c.func)) in ("cat", "vstack") for c in calls):
        raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of pieces")
    for node in ast.walk(plan.loop):
        gathered = node.elt if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
            gathered = node.args[0]
        if isinstance(gathered, ast.Subscript) and isinstance(gathered.value, ast.Name) and gathered.value.id in iterated:
            if isinstance(gathered.slice, ast.Constant):
                raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of pairs")


def require_no_leftovers(plan: Plan) -> None:
    """Whatever the loop set in each turn must not be read by the code that takes its place."""
    new = [*plan.statements, *(code for _, code in plan.replaced)]
    nodes = [n for code in new for n in ast.walk(code) if isinstance(n, ast.Name)]
    made = {n.id for n in nodes if isinstance(n.ctx, ast.Store)}
    turning = {n.id for node in ast.walk(plan.loop) for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and node.id in turning - made - set(plan.outputs):
            raise GiveUp(f"`{node.id}` changes from turn to turn")
