"""Whether a rewrite may be spoken of: something must show tensors, and nothing of a turn may be left over."""

from __future__ import annotations

import ast
import re
import typing

from torchsleuth.linter.values import TENSOR_METHODS
from torchsleuth.linter.vectorise.lifted import GiveUp
from torchsleuth.linter.vectorise.reading import own_nodes

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

COLLECTORS = {"torch.stack": "stack", "torch.tensor": "tensor", "torch.cat": "cat", "torch.concat": "cat", "torch.as_tensor": "tensor",
              "torch.FloatTensor": "tensor", "torch.vstack": "vstack"}  # fmt: skip
# What is only ever indexed by one number or iterated may be a list of tensors, of rows of different lengths even: it is taken
# for a tensor by its name, or not at all. A method's arguments come from machinery that lists are part of; there the name must say it.
TENSOR_NAME = re.compile(r"^[a-z]\d?$|tensor|matri|^(inp|input|inputs|logits|image|batch|waveform|signal)$", re.IGNORECASE)
TENSOR_IN_FUNCTION = re.compile(
    TENSOR_NAME.pattern + r"|logit|prob|score|feat|emb|image|img|inp|batch|data|row|vec|point|hidden|att|weight|value|pred|target|label|box|"
    r"coord|pos|signal|wave|ind|idx|ids|token|mask|seq|text|src|tgt|query|key",
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
    for base in unsure:
        named = TENSOR_IN_FUNCTION if _is_own_argument(base, plan) else TENSOR_NAME
        # What says where may be a list of numbers as well: lengths, say.
        if not named.search(base) and not _is_indexed_in_several(base, plan.loop):
            raise GiveUp(f"nothing here shows that `{base}` is a tensor; it may be a list")
        if (other := _annotated(base, plan)) is not None:
            raise GiveUp(f"`{base}` is a {other}, not a tensor")
        if _has_measured_rows(base, plan.loop):
            raise GiveUp(f"nothing here shows that `{base}` is a tensor; it may be a list of lists")
    iterated: set[str] = set()
    for node in ast.walk(plan.loop):
        if isinstance(node, (ast.For, ast.comprehension)):
            sources = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
            if any(ast.unparse(s) in unsure for s in sources):
                iterated |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    # `for i in range(len(preds)): total += f(preds[i])` is the same with an index
    counted = {base for base in unsure & plan.context.sized if not _is_indexed_like_an_array(base, plan.loop)}
    if not iterated and not counted:
        return
    adds_up = plan.reader.accumulators and not (plan.collected or plan.reader.stores)
    if adds_up or isinstance(plan.loop, ast.Call) and plan.context.dotted(plan.loop.func) not in COLLECTORS:
        raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of tensors")
    calls = [call for call, _ in plan.collected] + ([plan.loop] if isinstance(plan.loop, ast.Call) else [])
    if plan.reader.grown or any(COLLECTORS.get(plan.context.dotted(c.func)) in ("cat", "vstack") for c in calls):
        raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of pieces")
    for node in ast.walk(plan.loop):
        gathered = node.elt if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
            gathered = node.args[0]
        chain = gathered
        while isinstance(chain, ast.Subscript) and isinstance(chain.slice, (ast.Constant, ast.UnaryOp)):  # `item[0][1]`
            chain = chain.value
        if chain is not gathered and isinstance(chain, ast.Name) and chain.id in iterated:
            raise GiveUp("nothing here shows that it runs over a tensor; it may be a list of pairs")


def require_one_device(plan: Plan) -> None:
    """One element may be stored across devices, a whole tensor of indices or values may not."""
    moved: set[str] = set()
    for node in own_nodes(plan.context.frame.node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            attributes = {n.attr for n in ast.walk(node.value) if isinstance(n, ast.Attribute)}
            names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if "cpu" in attributes or names & moved and not attributes & {"cuda", "to"}:
                moved.add(node.targets[0].id)
    bases = {b for b in plan.reader.lifter.bases if b not in plan.context.allocations}
    if bases & moved and bases - moved:
        raise GiveUp(f"`{min(bases & moved)}` is on the CPU, `{min(bases - moved)}` may not be")


def _annotated(base: str, plan: Plan) -> str | None:
    """The class that an argument is said to be of, where that is no tensor."""
    arguments = getattr(plan.context.frame.node, "args", None)
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if arguments is not None else ():
        if argument.arg == base and isinstance(argument.annotation, (ast.Name, ast.Attribute)):
            text = ast.unparse(argument.annotation)
            return None if "tensor" in text.lower() or text.rpartition(".")[2] in ("Any", "object") else text
    return None


def _has_measured_rows(base: str, loop: ast.AST) -> bool:
    """`len(x[i])` and `x[i][j]`: as one goes through lists of lists."""
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len" and n.args and isinstance(n.args[0], ast.Subscript)
               and ast.unparse(n.args[0].value) == base for n in ast.walk(loop))  # fmt: skip


def _is_own_argument(base: str, plan: Plan) -> bool:
    """An argument, always given, of a function that belongs to no class and handles no list."""
    frame = plan.context.frame
    arguments = getattr(frame.node, "args", None)
    if arguments is None or frame.cls is not None or plan.context.stacked & plan.context.arguments:
        return False
    optional = {a.arg for a in arguments.args[len(arguments.args) - len(arguments.defaults) :]} | {a.arg for a in arguments.kwonlyargs}
    return base not in optional


def _is_indexed_like_an_array(base: str, loop: ast.AST) -> bool:
    """`x[i, j]`, `x[:, j]`, `x[i].item()`, or an index `y[i, x[i]]` itself: not what one does with a list of tensors."""
    return _is_indexed_in_several(base, loop) or holds_positions(base, loop)


def _is_indexed_in_several(base: str, loop: ast.AST) -> bool:
    """`x[i, j]`, `x[:, j]`, `x[i].item()`: not what one does with a list."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and ast.unparse(node.value).split("[")[0] == base:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "item" and isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value) == base:
            return True
    return False


def holds_positions(base: str, loop: ast.AST) -> bool:
    """`y[i, x[i]]`, or `y[i, n]` with `for i, n in enumerate(x)`: what is in `x` says where."""
    names = {base}
    for node in ast.walk(loop):
        if isinstance(node, (ast.For, ast.comprehension)):
            if isinstance(node.target, ast.Tuple) and isinstance(node.iter, ast.Call):
                given = [ast.unparse(a) for a in node.iter.args]
                function = ast.unparse(node.iter.func)
                place = 1 if function == "enumerate" else given.index(base) if base in given else 0
                if base in given and function in ("enumerate", "zip") and place < len(node.target.elts) and isinstance(node.target.elts[place], ast.Name):
                    names.add(node.target.elts[place].id)
            elif isinstance(node.target, ast.Name) and ast.unparse(node.iter) == base:
                names.add(node.target.id)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value) == base:
            names.add(node.targets[0].id)  # `n = x[i]`
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) not in names:
            if any(ast.unparse(n) in names for n in ast.walk(node.slice) if isinstance(n, (ast.Name, ast.Attribute))):
                return True
    return False


def require_no_aliases(plan: Plan) -> None:
    """`y = x` before a loop that writes into `y` and reads `x`: each turn sees what the one before it wrote."""
    stored = {store.target for store in plan.reader.stores}
    for node in own_nodes(plan.context.frame.node):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            names = {ast.unparse(n) for n in (*node.targets, node.value)}
            if len(names) > 1 and names & stored and names & (set(plan.reader.lifter.bases) - stored):
                raise GiveUp(f"{' and '.join(f'`{n}`' for n in sorted(names))} are one tensor, which is read and written")


def require_no_leftovers(plan: Plan) -> None:
    """Whatever the loop set in each turn must not be read by the code that takes its place."""
    new = [*plan.statements, *(code for _, code in plan.replaced)]
    nodes = [n for code in new for n in ast.walk(code) if isinstance(n, ast.Name)]
    made = {n.id for n in nodes if isinstance(n.ctx, ast.Store)}
    turning = {n.id for node in ast.walk(plan.loop) for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and node.id in turning - made - set(plan.outputs):
            raise GiveUp(f"`{node.id}` changes from turn to turn")
