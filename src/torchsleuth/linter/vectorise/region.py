"""Two programs to compare: the loop with what it needs, cut out of its function, and the same rewritten.

Only what the lifter understood is cut out, so a region is made of torch operations, arithmetic and builtins;
whatever else it reads becomes a parameter for which a proof makes up values.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field

from torchsleuth.linter.events import Frame
from torchsleuth.linter.vectorise.context import size_expression
from torchsleuth.linter.vectorise.lifted import GiveUp
from torchsleuth.linter.vectorise.plan import Plan, gets_a_dimension
from torchsleuth.linter.vectorise.reading import plain

BUILTINS = frozenset("range len enumerate zip min max abs sum float int bool tuple list".split())


@dataclass
class Job:
    """Plain data for the proving process."""

    original: str
    rewritten: str
    imports: list[str]
    parameters: list[dict] = field(default_factory=list)
    axes: list[str] = field(default_factory=list)  # size classes of the loops
    outputs: list[str] = field(default_factory=list)

    def as_data(self) -> dict:
        return {"original": self.original, "rewritten": self.rewritten, "imports": self.imports, "parameters": self.parameters,
                "axes": self.axes, "outputs": self.outputs}  # fmt: skip


def job_for(plan: Plan, before: list[ast.stmt], frame: Frame, imports: dict[str, str]) -> Job:
    """What to run; raises `GiveUp` where the region reads something no value can be made up for."""
    setup = _setup(plan, before)
    original, rewritten = _programs(plan, setup)
    names = _parameters([*original, *rewritten], imports)
    parameters = [_parameter(name, plan, original) for name in sorted(names)]
    # Tensors of unknown rank are taken to have the same one (the plan says so): the same own dimensions each.
    open_ranks = [p for p in parameters if p.get("rank", 0) is None]
    for parameter in open_ranks:
        parameter["extra"] = max(p["extra"] for p in open_ranks)
    lifter = plan.reader.lifter
    axes = [_class(lifter, lifter.axis_size(axis)) for axis in plan.reader.all_axes]
    spans = {f"span:{axis.name}": _class(lifter, axis.stop[0]) for axis in plan.reader.all_axes}
    axes = [spans.get(a, a) for a in axes]
    outputs = sorted(set(plan.outputs)) + [f"__out{n}" for n in range(len(plan.replaced))]
    used = {n.id for s in [*original, *rewritten] for n in ast.walk(s) if isinstance(n, ast.Name)}
    lines = [text for alias, text in imports.items() if alias in used or alias == "torch"]
    for parameter in parameters:
        parameter["zipped"] = parameter["name"] in lifter.zipped
    return Job(_function("original", names, original, outputs), _function("rewritten", names, rewritten, outputs), lines, parameters, axes, outputs)


def _programs(plan: Plan, setup: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    removed = {id(s) for s in plan.removed}
    old: list[ast.stmt] = list(setup)
    new = [s for s in setup if id(s) not in removed]
    if isinstance(plan.loop, ast.stmt):
        old.append(plan.loop)
        new += plan.statements
    for position, (node, code) in enumerate(plan.replaced):
        target = [ast.Name(f"__out{position}", ast.Store())]
        old.append(ast.Assign(target, node))
        new.append(ast.Assign(target, code))
    return old, new


def _setup(plan: Plan, before: list[ast.stmt]) -> list[ast.stmt]:
    """The sizes, allocations and starting values that the loop needs, in order."""
    needed = _reads([plan.loop, *(node for node, _ in plan.replaced), *(code for _, code in plan.replaced), *plan.statements])
    chosen: list[ast.stmt] = []
    removed = {id(s) for s in plan.removed}
    for statement in map(plain, reversed(before)):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        if isinstance(target, ast.Subscript):
            if names & needed & set(plan.outputs) and _is_simple(statement.value, plan, depth=1):
                chosen.append(statement)
                needed |= _reads([statement])
            continue
        if not names & needed and id(statement) not in removed:
            continue
        if id(statement) in removed or _is_simple(statement.value, plan) or _is_shape(statement.value):
            chosen.append(statement)
            needed |= _reads([statement.value])
            needed -= names - _reads([statement.value])
    return chosen[::-1]


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args


def _is_simple(node: ast.expr, plan: Plan, depth: int = 0) -> bool:
    if isinstance(node, (ast.Constant, ast.Name)) or size_expression(node) is not None:
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_simple(node.operand, plan)
    if isinstance(node, ast.BinOp):
        return _is_simple(node.left, plan) and _is_simple(node.right, plan)
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_is_simple(e, plan) for e in node.elts)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return isinstance(node.slice, (ast.Constant, ast.UnaryOp))
    if isinstance(node, ast.Call):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        path = plan.context.dotted(node.func)
        if path.startswith("torch.") and last in ALLOCATING:
            return True
        if last in ("new_zeros", "new_ones", "new_empty", "new_full", "clone"):
            return isinstance(node.func.value, ast.Name)
        return isinstance(node.func, ast.Name) and node.func.id == "float" and bool(node.args) and isinstance(node.args[0], ast.Constant)
    return False


ALLOCATING = frozenset("zeros ones empty full zeros_like ones_like empty_like full_like tensor arange".split())


def _reads(nodes: list[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _parameters(statements: list[ast.stmt], imports: dict[str, str]) -> set[str]:
    """Names that are read before the region sets them."""
    set_here: set[str] = set()
    wanted: set[str] = set()
    for statement in statements:
        comprehended = {n.id for c in ast.walk(statement) if isinstance(c, ast.comprehension) for n in ast.walk(c.target) if isinstance(n, ast.Name)}
        stores = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        loads = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            loads.add(statement.target.id)
        inner = stores if isinstance(statement, (ast.For, ast.While)) else set()
        if isinstance(statement, (ast.For, ast.While)):
            changed = {n.target.id for n in ast.walk(statement) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
            changed |= {t.id for n in ast.walk(statement) if isinstance(n, ast.Assign) for t in n.targets
                        if isinstance(t, ast.Name) and t.id in {m.id for m in ast.walk(n.value) if isinstance(m, ast.Name)}}  # fmt: skip
            first_set = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            wanted |= {c for c in changed if c not in set_here and c in first_set and not _set_plainly(statement, c)}
        wanted |= loads - set_here - inner - comprehended - BUILTINS - set(imports)
        set_here |= stores
    return wanted


def _set_plainly(loop: ast.stmt, name: str) -> bool:
    """Somewhere in the loop the name is set from other things, so the region need not be given it."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            if name not in {m.id for m in ast.walk(node.value) if isinstance(m, ast.Name)}:
                return True
        if isinstance(node, ast.For) and name in {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            return True
    return False


def _function(name: str, parameters: set[str], statements: list[ast.stmt], outputs: list[str]) -> str:
    body = [copy.deepcopy(s) for s in statements]
    body.append(ast.Return(ast.Tuple([ast.Name(o, ast.Load()) for o in outputs], ast.Load())))
    arguments = ast.arguments([], [ast.arg(p) for p in sorted(parameters)], None, [], [], None, [])
    function = ast.FunctionDef(name, arguments, body, [])
    function.type_params = []
    return ast.unparse(ast.fix_missing_locations(ast.Module([function], [])))


def _class(lifter, key) -> str:
    if key is None:
        return "free"
    key = lifter.equal.found(key)
    if key == ("const",):
        return "const"
    return ":".join(str(part) for part in key)


def _parameter(name: str, plan: Plan, original: list[ast.stmt]) -> dict:
    lifter = plan.reader.lifter
    if name == "self":
        attributes = {}
        for text, kind in lifter.modules.items():
            attributes[text.removeprefix("self.")] = {"kind": "module", "class": kind, "out": _features(text, plan)}
        for key in _all_keys(plan):
            if key[0] == "expr" and key[1].startswith("self.") and key[1][5:].isidentifier():
                attributes[key[1][5:]] = {"kind": "size", "class": _class(lifter, key)}
        for text in [*lifter.bases, *lifter.numbers]:
            if text.startswith("self.") and text[5:] not in attributes:
                if "." in text[5:]:
                    raise GiveUp(f"`{text}` is read")
                attributes[text[5:]] = _tensor(text, plan) if text in lifter.bases else {"kind": "number"}
        return {"name": "self", "kind": "self", "attributes": attributes}
    if name in lifter.bases:
        return {"name": name, **_tensor(name, plan)}
    if name in lifter.weights:
        return {"name": name, "kind": lifter.weights[name][0], "of": lifter.weights[name][1]}
    for statement in original:
        for node in ast.walk(statement):
            if isinstance(node, ast.keyword) and isinstance(node.value, ast.Name) and node.value.id == name and node.arg in ("device", "dtype"):
                return {"name": name, "kind": node.arg}
    sizes = {text for key in _all_keys(plan) if key[0] == "expr" for text in [key[1]]}
    if name in sizes:
        return {"name": name, "kind": "size", "class": _class(lifter, ("expr", name))}
    size, offset = plan.context.size(ast.Name(name, ast.Load()))
    if size[0] == "size" and not offset:
        return {"name": name, "kind": "size", "class": _class(lifter, size)}
    if _is_whole_number(name, plan, original):
        return {"name": name, "kind": "size", "class": "=2"}
    if name in lifter.numbers and _picks_one(name, original):
        return {"name": name, "kind": "size", "class": "=1", "picked": True}
    shaped = plan.context.evidence | plan.context.weak
    if name in lifter.numbers and name not in shaped or name in plan.reader.accumulators:
        return {"name": name, "kind": "number", "annotated": _is_annotated_number(name, plan)}
    if name not in shaped and any(name in text.split(".") for text in lifter.numbers):
        raise GiveUp(f"`{name}` is an object whose attributes are read")
    for key in _all_keys(plan):
        if key[0] == "expr" and name in {n.id for n in ast.walk(ast.parse(key[1], mode="eval")) if isinstance(n, ast.Name)}:
            return {"name": name, "kind": "size", "class": f"expr:{name}"}
    value = plan.context.value(name)
    if value is not None and value.is_tensor and plan.context.rank(name) is not None:
        plan.reader.lifter.base(ast.Name(name, ast.Load()))
        return {"name": name, **_tensor(name, plan)}
    if name in shaped:
        alike = [t for t, source in plan.context.like.items() if source == name]
        rank = next((r for t in [name, *alike] if (r := plan.context.rank(t)) is not None), None)
        known = rank or max([k[2] + 1 for k in _all_keys(plan) if k[0] == "size" and k[1] == name] or [1])
        dims = [_dim_class(plan, name, d) for d in range(known)]
        return {"name": name, "kind": "float", "rank": rank, "entries": known, "extra": 0 if rank else 1, "dims": dims}
    return {"name": name, "kind": "number"}


SIZED = frozenset("range zeros ones empty repeat narrow unfold".split())


def _is_arithmetic(node: ast.AST | None) -> bool:
    """Names and numbers added and multiplied: whatever they are, the whole is a number, or what it is asked of is none."""
    return node is not None and all(isinstance(n, (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)) for n in ast.walk(node))


def _is_annotated_number(name: str, plan: Plan) -> bool:
    arguments = getattr(plan.context.frame.node, "args", None)
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments is not None else []
    return any(a.arg == name and isinstance(a.annotation, ast.Name) and a.annotation.id in ("int", "float") for a in every)


def _picks_one(name: str, original: list[ast.stmt]) -> bool:
    """`q[:, i]`, with `i` of a loop around this one."""
    for node in (n for statement in original for n in ast.walk(statement)):
        if isinstance(node, ast.Subscript) and any(isinstance(e, ast.Name) and e.id == name for e in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])):
            return True
    return False


def _is_whole_number(name: str, plan: Plan, original: list[ast.stmt]) -> bool:
    """By its annotation, or because it says how many: in a range, a slice, a shape."""
    arguments = getattr(plan.context.frame.node, "args", None)
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments is not None else []
    for node in (n for statement in original for n in ast.walk(statement)):
        places: list[ast.AST | None] = []
        if isinstance(node, ast.Slice):
            places = [node.lower, node.upper, node.step]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            places = [*node.args] if called in SIZED else [*node.args[-1:], *(k.value for k in node.keywords if k.arg == "k")] if called in ("topk", "kthvalue") else []
        if any(isinstance(part, ast.Name) and part.id == name for place in places if _is_arithmetic(place) for part in ast.walk(place)):
            return True
    return any(a.arg == name and isinstance(a.annotation, ast.Name) and a.annotation.id == "int" for a in every)


def _features(module: str, plan: Plan) -> str | None:
    """How many features a layer gives: what its constructor says, or what the tensor that takes them has room for."""
    made = plan.context.frame.attributes.get(module.removeprefix("self."))
    if made is not None and isinstance(made.node, ast.Call):
        given = next((k.value for k in made.node.keywords if k.arg == "out_features"), made.node.args[1] if len(made.node.args) > 1 else None)
        if isinstance(given, ast.Constant) and isinstance(given.value, int):
            return f"={given.value}"
    for store in plan.reader.stores:
        shape = plan.context.shapes.get(store.target)
        if shape and shape[-1][0][0] == "expr":
            return _class(plan.reader.lifter, shape[-1][0])
        if shape and shape[-1][0] == ("const",):
            return f"={shape[-1][1]}"
    return None


def _all_keys(plan: Plan) -> set:
    keys = {axis.stop[0] for axis in plan.reader.all_axes}
    for shape in plan.context.shapes.values():
        keys |= {key for key, _ in shape}
    return keys


def _dim_class(plan: Plan, text: str, dim: int) -> str:
    """The size class of a dimension; `=5` where the source says how large it is."""
    if (text, dim) in plan.reader.lifter.columns:
        return f"={plan.reader.lifter.columns[text, dim]}"
    key = plan.context.canonical(("size", text, dim))
    known = plan.reader.lifter._allocated(key)
    if known is not None and known[0] == ("const",):
        return f"={known[1]}"
    return _class(plan.reader.lifter, key)


def _tensor(text: str, plan: Plan) -> dict:
    lifter = plan.reader.lifter
    facts = lifter.bases[text]
    rank = plan.context.rank(text)
    known = rank if rank is not None else max(facts.get("entries", 1), 1)
    dims = [_dim_class(plan, text, d) for d in range(known)]
    spec = {"kind": facts["kind"], "rank": rank, "entries": known, "extra": facts["extra"], "dims": dims}
    ahead = lifter.longer.get(text, {})
    own = {axis.stop[0][1] for axis in plan.reader.all_axes if axis.stop[0][0] == "size"}
    spec["ahead"] = [ahead.get(d, 0) if text not in own else 0 for d in range(known)]  # where another tensor says how long the loop is
    for dim, parts in lifter.windows.get(text, {}).items():
        spec.setdefault("windows", []).extend([dim, offset if key == ("const",) else _class(lifter, key)] for key, offset in parts)
    least = {}
    for axis in plan.reader.all_axes:
        if axis.stop[0] == ("const",):
            least["const"] = max(least.get("const", 0), axis.stop[1])
    spec["least"] = least.get("const", 0)
    spec["assumed_rank"] = text in plan.reader.assumed_ranks
    spec["fewer"] = gets_a_dimension(text, plan.loop)
    if facts["kind"] == "index":
        bound = facts.get("bound")
        spec["bound"] = 7 if bound == ("const", 7) else _class(lifter, bound) if bound is not None else None
    return spec
