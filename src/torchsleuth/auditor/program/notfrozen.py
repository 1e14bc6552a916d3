"""Parameters that were to be frozen and are trained: `requires_grad = False` set on a module, which has no such switch, or under a misspelt name;
or compared (`p.requires_grad == False`) where it was to be set."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import NotFrozen
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import site_of_node

_MEANT = re.compile(r"requires?d?_?grad(s|ient|ients)?_?")
_SWITCH = "requires_grad"
_ITERATORS = ("parameters", "named_parameters", "values", "items")


def not_frozen(model: nn.Module, changed: Callable[[], set[int]], near: Iterable[Site | None]) -> NotFrozen | None:
    """`changed`: the identities of the parameters that training has changed. `near`: places of the program in whose folders its files lie."""
    near = list(near)
    marked = any(_marks(holder) for holder in (*model.modules(), *model.parameters()))
    any_frozen = not all(p.requires_grad for p in model.parameters())  # then something has been set, and the comparison may never have run
    compared = [site for file, tree in program_syntax(near) for site in _compared(file, tree)] if not marked and not any_frozen else []
    if not marked and len(compared) != 1:
        return None
    moved = changed()
    trained = {n for n, p in model.named_parameters() if p.requires_grad and id(p) in moved}
    if not marked:
        names = tuple(n for n, _ in model.named_parameters() if n in trained)
        return NotFrozen(_SWITCH, "compared", names, compared[0]) if names else None
    found: dict[tuple[str, str], list[str]] = {}  # (attribute, kind of what it was set on) -> parameters that it leaves as they are
    holders: list[str] = []
    for path, module in model.named_modules():
        for attribute in _marks(module):
            below = [n for n in trained if not path or n.startswith(path + ".")]
            if below:
                holders.append(path.rpartition(".")[2])
                found.setdefault((attribute, "module"), []).extend(below)
    for name, parameter in model.named_parameters():
        for attribute in _marks(parameter) if name in trained else ():
            found.setdefault((attribute, "parameter"), []).append(name)
    if len(found) != 1:
        return None
    ((attribute, kind), names) = next(iter(found.items()))
    weights = tuple(dict.fromkeys(n for n, _ in model.named_parameters() if n in set(names)))
    last = {n.rpartition(".")[2] for n, _ in model.named_parameters()}
    sites = [site for file, tree in program_syntax(near) for site in _settings(file, tree, attribute, kind, last)]
    if len(sites) > 1:
        sites = [site for site in sites if any(holder and re.search(rf"\b{holder}\.{attribute}\b", site.source) for holder in holders)]
    return NotFrozen(attribute, kind, weights, sites[0]) if len(sites) == 1 else None


def _compared(file: str, tree: ast.Module) -> Iterator[Site]:
    """Statements that are nothing but `p.requires_grad == False`."""
    for statement in ast.walk(tree):
        test = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute) and test.left.attr == _SWITCH and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
            if isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value in (False, 0):
                yield site_of_node(file, statement)


def _marks(holder: object) -> list[str]:
    return [name for name, value in vars(holder).items() if value is False and _MEANT.fullmatch(name) and (not isinstance(holder, nn.Module) or not hasattr(type(holder), name) or callable(getattr(type(holder), name)))]


def _settings(file: str, tree: ast.Module, attribute: str, kind: str, parameters: set[str]) -> Iterator[Site]:
    """Statements that set this attribute, on something that may be of that kind, to what may be False."""
    ours = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.For) and _over_parameters(loop.iter) for node in _inside(loop)}
    own = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)}
    for statement in ast.walk(tree):
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            if not isinstance(target, ast.Attribute) or target.attr != attribute or (isinstance(statement.value, ast.Constant) and statement.value.value is not False):
                continue
            right = attribute == _SWITCH and (id(target) in ours or (isinstance(target.value, ast.Attribute) and target.value.attr in parameters))
            if not right and ast.unparse(target) not in own:  # a flag of the program's own is read somewhere
                yield site_of_node(file, statement)


def _over_parameters(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _ITERATORS for n in ast.walk(node))


def _inside(loop: ast.For) -> Iterator[ast.expr]:
    """Attributes of the loop's own variables."""
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for node in (n for statement in loop.body for n in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield node
