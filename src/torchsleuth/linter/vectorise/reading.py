"""What a function says about its tensors, read from its statements: sizes, allocations, annotations, asserts, uses."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Frame
from torchsleuth.linter.flow import is_foreign
from torchsleuth.linter.tensor_names import TENSOR_NAMES
from torchsleuth.linter.values import TENSOR_METHODS, TENSOR_ONLY
from torchsleuth.linter.vectorise.context import Allocation, Context, integer, is_dotted, size_expression

ALLOCATORS = frozenset({"zeros", "empty", "ones", "full", "new_zeros", "new_empty", "new_ones", "new_full"})
LIKE_ALLOCATORS = frozenset({"zeros_like", "empty_like", "ones_like", "full_like"})
SAME = frozenset({"clone", "detach", "contiguous", "float", "exp", "relu", "sigmoid", "tanh", "abs", "double"})
NOT_OF_TENSORS = frozenset({"append", "extend", "items", "keys", "values", "pop", "insert", "copy", "astype", "fill", "ptp", "tobytes"})


def plain(statement: ast.AST) -> ast.AST:
    """`out: Tensor = torch.zeros(n)` as the assignment it is, always the same one, at the same place of the source."""
    if not isinstance(statement, ast.AnnAssign) or statement.value is None or not isinstance(statement.target, ast.Name):
        return statement
    known = getattr(statement, "_torchsleuth_plain", None)
    if known is None:
        known = statement._torchsleuth_plain = ast.copy_location(ast.Assign([statement.target], statement.value), statement)
    return known


def context_of(frame: Frame, loop: ast.AST, dotted) -> Context:
    """What the function (or the module's own statements) around a loop says, and what was assigned above the loop."""
    known, assignments = _read_function(frame, dotted)
    context = Context(frame, dotted, counts=known.counts, with_numpy=known.with_numpy, counted=known.counted, sized=known.sized,
                      stacked=known.stacked, arguments=known.arguments, least_ranks=known.least_ranks, same_length=known.same_length)  # fmt: skip
    context.exact_ranks, context.against = dict(known.exact_ranks), dict(known.against)
    context.evidence, context.weak = set(known.evidence), set(known.weak)
    for node in assignments:
        if node.lineno < loop.lineno:
            _read_assignment(node, context)
    return context


def _read_function(frame: Frame, dotted) -> tuple[Context, list[ast.Assign]]:
    """Read once, and kept on the function for its next loop."""
    found = getattr(frame.node, "_torchsleuth_context", None)
    if found is not None:
        return found
    context = Context(frame, dotted)
    statements = own_nodes(frame.node)
    context.with_numpy = dotted(ast.Name("np", ast.Load())) == "numpy" or any(isinstance(n, ast.Name) and n.id == "numpy" for n in statements)
    for node in statements:
        for target in _targets(node):
            context.counts[target] = context.counts.get(target, 0) + 1
    for node in statements:
        if isinstance(node, ast.Assign) and _is_list(node.value):
            for target in _targets(node):
                context.against.setdefault(target, "is a list")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_numpy_call(node.value, dotted):
            for target in node.targets:
                if is_dotted(target):
                    context.against.setdefault(ast.unparse(target), "is a NumPy array")
    _read_uses(statements, context)
    _read_annotations(frame.node, context)
    assignments = [n for n in statements if isinstance(n, ast.Assign) and len(n.targets) == 1]
    frame.node._torchsleuth_context = (context, assignments)
    return context, assignments


def own_nodes(function: ast.AST) -> list[ast.AST]:
    """Every node of a function, nested functions left out, outer ones first; kept on the function for its next loop."""
    known = getattr(function, "_torchsleuth_nodes", None)
    if known is not None:
        return known
    nodes: list[ast.AST] = [plain(s) for s in getattr(function, "body", [])]
    for node in nodes:  # the list grows while it is read
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            nodes.extend(plain(n) for n in ast.iter_child_nodes(node))
    function._torchsleuth_nodes = nodes
    return nodes


def _targets(node: ast.AST):
    if isinstance(node, ast.Assign):
        parts = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension, ast.NamedExpr)):
        parts = [node.target]
    elif isinstance(node, ast.With):
        parts = [i.optional_vars for i in node.items if i.optional_vars is not None]
    else:
        return
    while parts:
        part = parts.pop()
        if isinstance(part, (ast.Tuple, ast.List)):
            parts.extend(part.elts)
        elif isinstance(part, ast.Starred):
            parts.append(part.value)
        elif isinstance(part, ast.Name):
            yield part.id


def _read_assignment(node: ast.Assign, context: Context) -> None:
    target, value = node.targets[0], node.value
    if isinstance(target, (ast.Tuple, ast.List)):
        tensor = None
        if isinstance(value, ast.Attribute) and value.attr == "shape" and is_dotted(value.value):
            tensor = ast.unparse(value.value)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size" and not value.args:
            tensor = ast.unparse(value.func.value) if is_dotted(value.func.value) else None
        if tensor is not None and not any(isinstance(e, ast.Starred) for e in target.elts):
            if context.counts.get(tensor, 0) <= 1:
                context.exact_ranks[tensor] = len(target.elts)
                (context.weak if isinstance(value, ast.Attribute) else context.evidence).add(tensor)
            for dim, element in enumerate(target.elts):
                if isinstance(element, ast.Name) and context.counts.get(element.id) == 1:
                    context.sizes[element.id] = (tensor, dim)
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            for element, part in zip(target.elts, value.elts, strict=True):
                _read_assignment(ast.Assign([element], part, lineno=node.lineno), context)
        return
    if not isinstance(target, ast.Name):
        return
    found = size_expression(value)
    if found is not None and context.counts.get(target.id) == 1:
        context.sizes[target.id] = found
        return
    if isinstance(value, ast.BinOp) and context.counts.get(target.id) == 1:
        context.meant[target.id] = value
    if not isinstance(value, ast.Call):
        return
    call = value.func.attr if isinstance(value.func, ast.Attribute) else value.func.id if isinstance(value.func, ast.Name) else ""
    path = context.dotted(value.func)
    # `dtype=x.dtype` is what an assignment keeps anyway; any other dtype needs the store's cast.
    given = next((k.value for k in value.keywords if k.arg == "dtype"), None)
    has_dtype = given is not None and not (isinstance(given, ast.Attribute) and given.attr == "dtype")
    dtype_of = ast.unparse(given.value) if given is not None and not has_dtype else ""
    if given is None and isinstance(value.func, ast.Attribute) and call.startswith("new_"):
        dtype_of = ast.unparse(value.func.value)
    if call in ALLOCATORS and (path.startswith("torch.") or call.startswith("new_")):
        shape = list(value.args)
        if call in ("full", "new_full"):
            shape = shape[:1] if shape and isinstance(shape[0], (ast.Tuple, ast.List)) else []
        if len(shape) == 1 and isinstance(shape[0], (ast.Tuple, ast.List)):
            shape = list(shape[0].elts)
        elif len(shape) == 1 and isinstance(shape[0], ast.Attribute) and shape[0].attr == "shape":
            context.like[target.id] = ast.unparse(shape[0].value)
            context.allocations[target.id] = Allocation(node, None, context.like[target.id], call.removeprefix("new_"), has_dtype, dtype_of)
            return
        if shape and not any(isinstance(s, ast.Starred) or isinstance(s, ast.Attribute) and s.attr == "shape" for s in shape):
            keys = tuple(context.size(s) for s in shape)
            context.shapes[target.id] = keys
            context.allocations[target.id] = Allocation(node, keys, "", call.removeprefix("new_"), has_dtype, dtype_of)
    elif call in LIKE_ALLOCATORS and path.startswith("torch.") and value.args and is_dotted(value.args[0]):
        source = ast.unparse(value.args[0])
        context.like[target.id] = source
        context.evidence.add(source)
        context.allocations[target.id] = Allocation(node, None, source, call.removesuffix("_like"), has_dtype, dtype_of or ("" if has_dtype else source))
    elif call in SAME and isinstance(value.func, ast.Attribute) and not path.startswith("torch.") and is_dotted(value.func.value):
        source = ast.unparse(value.func.value)
        if source != target.id:
            context.like[target.id] = source
            context.evidence.update({source, target.id})


def _read_uses(nodes: list[ast.AST], context: Context) -> None:
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}  # `.size` of an array is a number
    for node in nodes:
        if isinstance(node, (ast.Subscript, ast.Call)) and (found := size_expression(node)) is not None:
            tensor, dim = found
            context.least_ranks[tensor] = max(context.least_ranks.get(tensor, 0), dim + 1 if dim >= 0 else -dim)
        if isinstance(node, ast.Attribute) and is_dotted(node.value):
            text = ast.unparse(node.value)
            if node.attr in TENSOR_ONLY or (node.attr == "size" and id(node) in called):
                context.evidence.add(text)
            elif node.attr in ("shape", "ndim"):
                context.weak.add(text)
            elif node.attr in NOT_OF_TENSORS or node.attr not in TENSOR_NAMES:
                context.against[text] = f"has `.{node.attr}`: it is not a tensor"
            elif node.attr in ("is_sparse", "to_sparse", "coalesce"):
                context.against[text] = "may be sparse, and few operations broadcast over sparse tensors"
        elif isinstance(node, ast.Call):
            path = context.dotted(node.func)
            if path in ("torch.stack", "torch.cat", "torch.concat", "torch.hstack", "torch.vstack") and node.args and is_dotted(node.args[0]):
                context.stacked.add(ast.unparse(node.args[0]))
            if path == "torch.is_tensor" and node.args:
                context.against.setdefault(ast.unparse(node.args[0]), f"is used in `{ast.unparse(node)[:40]}` here")
            elif path.startswith("torch."):
                last = path.rsplit(".", 1)[-1]
                if node.args and is_dotted(node.args[0]) and last not in ("stack", "cat", "tensor", "as_tensor", "arange", "from_numpy", "zeros", "ones"):
                    if last in TENSOR_METHODS or last.endswith("_like"):
                        context.evidence.add(ast.unparse(node.args[0]))
            elif path.startswith(("numpy.", "np.")):
                for argument in node.args:
                    if is_dotted(argument):
                        context.against.setdefault(ast.unparse(argument), "is given to NumPy here")
            elif isinstance(node.func, ast.Name) and node.func.id in ("list", "isinstance", "dict", "set", "sorted", "is_tensor") and node.args:
                if is_dotted(node.args[0]):
                    context.against.setdefault(ast.unparse(node.args[0]), f"is used in `{ast.unparse(node)[:40]}` here")
            elif isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 and is_dotted(node.args[0]):
                context.sized.add(ast.unparse(node.args[0]))
            elif isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Subscript):
                if is_dotted(node.args[0].value) and integer(node.args[0].slice) is not None:
                    context.counted.add(ast.unparse(node.args[0].value))
        elif isinstance(node, ast.Subscript) and is_dotted(node.value) and isinstance(node.slice, ast.Tuple):
            context.weak.add(ast.unparse(node.value))
            entries = node.slice.elts
            text = ast.unparse(node.value)
            if not any(_is_new_or_rest(e) for e in entries):
                context.least_ranks[text] = max(context.least_ranks.get(text, 0), len(entries))
            # Whoever writes a `:` at the end counts the dimensions out; `x[:, 1:]` needs its last one whatever follows.
            if entries and _is_all(entries[-1]) and not any(_is_new_or_rest(e) for e in entries):
                context.exact_ranks.setdefault(text, len(entries))
        elif isinstance(node, ast.Assert):
            for test in node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]:
                _read_asserted(test, context)
        elif isinstance(node, ast.Starred) and is_dotted(node.value):
            context.against.setdefault(ast.unparse(node.value), "is unpacked here")


def _read_asserted(test: ast.expr, context: Context) -> None:
    """`assert x.dim() == 2`, `x.ndim == 2`, `len(x.shape) == 2`."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return
    one, other = size_expression(test.left), size_expression(test.comparators[0])
    if one is not None and other is not None and one[1] == other[1] == 0:
        context.same_length.add(frozenset({one[0], other[0]}))
    shapes = [n for n in (test.left, test.comparators[0]) if isinstance(n, ast.Attribute) and n.attr == "shape" and is_dotted(n.value)]
    if len(shapes) == 2:
        context.same_length.add(frozenset(ast.unparse(n.value) for n in shapes))
    rank, counted = integer(test.comparators[0]), test.left
    owner = None
    if isinstance(counted, ast.Attribute) and counted.attr == "ndim":
        owner = counted.value
    elif isinstance(counted, ast.Call) and isinstance(counted.func, ast.Attribute) and counted.func.attr in ("dim", "ndimension"):
        owner = counted.func.value
    elif isinstance(counted, ast.Call) and isinstance(counted.func, ast.Name) and counted.func.id == "len" and counted.args:
        inner = counted.args[0].func if isinstance(counted.args[0], ast.Call) else counted.args[0]
        owner = inner.value if isinstance(inner, ast.Attribute) and inner.attr in ("shape", "size") else None
    if owner is not None and rank is not None and is_dotted(owner) and context.counts.get(ast.unparse(owner), 0) == 0:
        context.exact_ranks[ast.unparse(owner)] = rank


def _is_list(node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.GeneratorExp)):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add)):
        return isinstance(node.left, ast.List) or isinstance(node.right, ast.List)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "dict", "set", "sorted", "tuple", "range", "zip")


def _is_numpy_call(call: ast.Call, dotted) -> bool:
    """`np.zeros(...)`, `xp.full(..., dtype=np.float32)`."""
    return dotted(call.func).startswith("numpy.") or any(k.arg == "dtype" and dotted(k.value).startswith("numpy.") for k in call.keywords)


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None


def _is_new_or_rest(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, ...)


def _read_annotations(function: ast.AST, context: Context) -> None:
    arguments = getattr(function, "args", None)
    if arguments is None:
        return
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = {a.arg: d for a, d in zip(reversed(placed), reversed(arguments.defaults), strict=False)}
    defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None})
    for argument in [*placed, *arguments.kwonlyargs]:
        context.arguments.add(argument.arg)
        if isinstance(defaults.get(argument.arg), (ast.List, ast.Tuple, ast.Dict)):
            context.against[argument.arg] = f"is `{ast.unparse(defaults[argument.arg])[:30]}` if it is not given"
        if argument.annotation is None:
            continue
        text = ast.unparse(argument.annotation)
        if any(is_foreign(context.dotted(n)) for n in ast.walk(argument.annotation) if isinstance(n, (ast.Name, ast.Attribute))):
            context.against[argument.arg] = f"is annotated `{text}`"
        elif re.search(r"\bTensor\b", text) and not re.search(r"[Ll]ist|[Tt]uple|Sequence|Iterable|[Dd]ict", text):
            context.evidence.add(argument.arg)
        elif re.search(r"[Ll]ist|[Tt]uple|Sequence|Iterable|Iterator|[Dd]ict|ndarray|Generator|DataLoader", text):
            context.against[argument.arg] = f"is annotated `{text}`"
        elif not re.search(r"ensor|\bAny\b|rray|Union|Optional|object|TypeVar|^\w$|^T_", text):  # `int`, `str`, `LinearOperator`
            context.against[argument.arg] = f"is annotated `{text}`"
    if arguments.vararg is not None:
        context.against[arguments.vararg.arg] = "is a tuple of arguments"
