"""Pieces of a tensor that may be written into: `chunk` and `split` spelled as `tensor_split`, which makes one view at a time."""

from __future__ import annotations

import ast

from torchsleuth.evidence import InplaceTarget
from torchsleuth.fixes.script import Script, Scripts, called, path_of
from torchsleuth.model import Edit, Fix


def one_view_at_a_time(scripts: Scripts, target: InplaceTarget) -> Fix | None:
    """For a base that is looked at after the write: it still sees the change then."""
    script = scripts.get(target.made)
    call = script.node_at(target.made.span) if script is not None else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or target.base is None:
        return None
    if target.base.is_leaf and target.base.requires_grad:
        return None
    base = script.segment(_taken_apart(call))
    # The memory's owner may have another shape than what was taken apart, which may be a view itself.
    edits = _as_tensor_split(script, call, len(target.tensor.shape), target.base.shape if target.base.name == base else None)
    if edits is None:
        return None
    return scripts.fix(f"Take the pieces of `{base}` one view at a time: `tensor_split`, into whose results autograd lets you write.", edits)


def _is_function(call: ast.Call) -> bool:
    return path_of(call.func.value) in ("torch", "th")


def _taken_apart(call: ast.Call) -> ast.expr:
    return call.args[0] if _is_function(call) else call.func.value


def _as_tensor_split(script: Script, call: ast.Call, rank: int, shape: tuple[int, ...] | None) -> list[Edit] | None:
    arguments = call.args[1:] if _is_function(call) else call.args
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if not arguments or any(isinstance(item, ast.Starred) for item in arguments) or keywords.keys() - {"dim"}:
        return None
    parts, dim = arguments[0], arguments[1] if len(arguments) > 1 else keywords.get("dim")
    axis = 0 if dim is None else _number(dim)
    if axis is None or not -rank <= axis < rank:
        return None
    if called(call) == "chunk":
        count = _number(parts)
        if not count or shape is None or shape[axis] % count:
            return None  # the two make pieces of other sizes then
        return _renamed(script, call)
    if called(call) == "split" and isinstance(parts, (ast.List, ast.Tuple)):
        sizes = [script.segment(item) for item in parts.elts[:-1]]
        if not sizes or any(not isinstance(item, (ast.Name, ast.Attribute, ast.Constant)) for item in parts.elts):
            return None
        ends = [" + ".join(sizes[: end + 1]) for end in range(len(sizes))]
        return [*_renamed(script, call), script.replace(parts, f"[{', '.join(ends)}]")]
    if called(call) == "split" and isinstance(parts, (ast.Name, ast.Attribute, ast.Constant)):
        base = _taken_apart(call)
        if not path_of(base):
            return None
        size = script.segment(parts)
        ends = f"list(range({size}, {script.segment(base)}.shape[{axis}], {size}))"
        return [*_renamed(script, call), script.replace(parts, ends)]
    return None


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _renamed(script: Script, call: ast.Call) -> list[Edit]:
    end = script.end(call.func)
    return [script.edit((end[0], end[1] - len(call.func.attr)), end, "tensor_split")]
