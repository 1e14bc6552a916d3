"""Gradients that become NaN in a later step, and the data around that step which holds NaN: `SpoiltWatch`.

One look at the gradients of the first, the last and the smallest parameter before each step, where that asks nothing of a GPU: a loss that is NaN
spoils the last as a rule, and NaN in the data the first.
"""

from __future__ import annotations

import ast
import sys
import types
import typing
import weakref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.inputs.bysyntax import DEPTH, followed, scope_of_frame
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import NotFinite
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.modestack import unseen
from torchsleuth.auditor.tracing.sites import place_here, site_of, site_of_node, syntax_of
from torchsleuth.origin import Origin, origin_of_file

_ASKING = {"isnan", "isfinite", "nan_to_num", "nan_to_num_", "nansum", "nanmean", "isinf"}
MOST_NUMBERS = 1 << 24
MOST_FRAMES = 4
_LOOPS = (ast.For, ast.While)
# What only hands data on: not a model, nor a loss.
_HANDING_ON = {"to", "cpu", "cuda", "float", "double", "half", "long", "next", "iter", "permute", "transpose", "view", "reshape", "squeeze", "unsqueeze", "flatten",
               "contiguous", "clone", "detach", "values", "items"}  # fmt: skip


class SpoiltWatch:
    def __init__(self) -> None:
        self._found: dict[int, NotFinite] = {}  # by the optimizer
        self._looked_at: dict[int, list[weakref.ref]] = {}

    @unseen
    def look(self, optimizer: Optimizer, step: int) -> None:
        gradients = self._gradients(optimizer)
        if not gradients:
            return
        bad = next((one for one in gradients if not bool(one.isfinite().all())), None)
        if bad is None:
            self._found.pop(id(optimizer), None)  # a step that was to be skipped, perhaps
        elif id(optimizer) not in self._found:
            site = site_of(place_here(2))
            if site is not None:
                data = next(_data_with_nan(sys._getframe(1)), None)
                kind = "NaN" if bool(bad.isnan().any()) else "infinite"
                self._found[id(optimizer)] = NotFinite("later", kind, site, data.words() if data is not None else "", "", step, data.made() if data is not None else None)

    def fact(self, models: typing.Iterable[nn.Module]) -> NotFinite | None:
        """If it came to stay."""
        if not self._found or all(bool(p.detach().isfinite().all()) for model in models for p in model.parameters() if p.is_floating_point()):
            return None
        return min(self._found.values(), key=lambda fact: fact.step)

    def _gradients(self, optimizer: Optimizer) -> list[torch.Tensor]:
        known = [p for reference in self._looked_at.get(id(optimizer), ()) if (p := reference()) is not None]
        if not known:
            held = [p for p in parameters_of(optimizer) if p.grad is not None and p.device.type == "cpu" and p.grad.layout is torch.strided]
            known = [held[0], held[-1], min(held, key=lambda p: p.numel())] if held else []
            self._looked_at[id(optimizer)] = [weakref.ref(p) for p in {id(p): p for p in known}.values()]
        return [p.grad for p in known if p.grad is not None]


class _Data(typing.NamedTuple):
    """A variable of the program's, or the piece of one that is handed on, which holds NaN."""

    text: str
    name: str
    bad: torch.Tensor
    frame: types.FrameType
    tree: ast.AST

    def words(self) -> str:
        return f"`{self.text}`, shape {list(self.bad.shape)}, held {int(self.bad.sum())} NaN, the first at {self.bad.nonzero()[0].tolist()}"

    def made(self) -> Site | None:
        return _made(self.name, self.frame, self.tree)


def _program_frame(frame: types.FrameType | None) -> types.FrameType | None:
    while frame is not None and origin_of_file(frame.f_code.co_filename) is not Origin.USER:
        frame = frame.f_back
    return frame


def _data_with_nan(frame: types.FrameType | None) -> typing.Iterator[_Data]:
    """Variables around the step that hold NaN, are given to some call, and were not computed in the loop by more than a copy.

    Not those that the program asks about NaN: it knows what is missing. Only read when the run is spoilt already: reading the variables
    of a function keeps them until it returns.
    """
    for _ in range(MOST_FRAMES):
        frame = _program_frame(frame)
        if frame is None:
            return
        scope, tree = scope_of_frame(frame), syntax_of(frame.f_code.co_filename)
        if scope is not None and tree is not None:
            asked = _asked_about(tree)
            if asked is None:
                return
            computed, inside = _computed(tree, frame.f_lineno) | asked, _loops(tree, frame.f_lineno) or [scope.tree]
            given = [node for loop in inside for call in ast.walk(loop) if isinstance(call, ast.Call) for one in (*call.args, *call.keywords) for node in ast.walk(one)]
            for name in dict.fromkeys(node.id for node in given if isinstance(node, ast.Name)):
                if name in frame.f_locals and name not in computed:
                    for text, value in _pieces(name, frame.f_locals, given):
                        bad = _nan_in(value)
                        if bad is not None:
                            yield _Data(text, name, bad, frame, tree)
        frame = frame.f_back


def _asked_about(tree: ast.AST) -> set[str] | None:
    """Names that are looked at for NaN, as in `~y.isnan()`; None where a function asks about what it is given, whatever that is."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _ASKING:
            found.update(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    given = {one.arg for function in functions for one in (*function.args.args, *function.args.kwonlyargs)}
    return None if found & given - {"self"} else found


def _pieces(name: str, variables: typing.Mapping[str, typing.Any], given: list[ast.AST]) -> typing.Iterator[tuple[str, typing.Any]]:
    """`x[i]` where the calls are given that and `i` is another variable; else `x`, or each tensor in it."""
    value = variables[name]
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items() if isinstance(key, str))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{place}]", one) for place, one in enumerate(value[:16]))
    elif isinstance(value, torch.Tensor):
        parts = (node for node in given if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name)
        picks = {node.slice.id for node in parts if isinstance(node.slice, ast.Name)}
        if not picks:
            yield name, value
        for pick in sorted(picks):
            index = variables.get(pick)
            if isinstance(index, (int, slice, torch.Tensor)):
                try:
                    yield f"{name}[{pick}]", value[index]
                except (IndexError, TypeError, RuntimeError):
                    pass


def _nan_in(value: typing.Any) -> torch.Tensor | None:
    """Data only: no parameter, and nothing with a history."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.requires_grad or not 0 < value.dim() or value.numel() > MOST_NUMBERS:
        return None
    if value.device.type != "cpu" or value.layout is not torch.strided:
        return None
    bad = value.isnan()
    return bad if bool(bad.any()) else None


def _loops(tree: ast.AST, line: int) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or 0)]


def _computed(tree: ast.AST, line: int) -> set[str]:
    """Names that the loops around this line give a value to which is more than data handed on."""
    inside = _loops(tree, line)
    bound: list[tuple[set[str], ast.expr]] = []
    for loop in inside:
        for node in ast.walk(loop):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
                bound.append((names, node.value))
    given = {one.id for loop in inside if isinstance(loop, ast.For) for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    own = {name for names, _ in bound for name in names} - given
    return {name for names, value in bound for name in names if not _hands_on(value, own - names)}


def _hands_on(value: ast.expr, computed: set[str]) -> bool:
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    named = all(getattr(call.func, "attr", getattr(call.func, "id", "")) in _HANDING_ON for call in calls)
    arithmetic = any(isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda)) for node in ast.walk(value))
    return named and not arithmetic and not any(isinstance(node, ast.Name) and node.id in computed for node in ast.walk(value))


def _made(name: str, frame: types.FrameType, tree: ast.AST) -> Site | None:
    """Where the variable got its value; or the loop that gives it one."""
    file, scope = frame.f_code.co_filename, scope_of_frame(frame)
    uses = [node for node in ast.walk(scope.tree) if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)] if scope is not None else []
    use = next((node for node in uses if node.lineno <= frame.f_lineno), None)
    made = followed(use, scope, (), DEPTH) if use is not None and scope is not None else None
    if made is not None and made[0] is not use:
        return made[1].site(made[0])
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and node.lineno <= frame.f_lineno <= (node.end_lineno or 0)]
    targets = [one for loop in loops for one in ast.walk(loop.target) if isinstance(one, ast.Name) and one.id == name]
    stores = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)]
    node = targets[-1] if targets else stores[0] if len(stores) == 1 else None
    return site_of_node(file, node, frame.f_code.co_name) if node is not None else None
