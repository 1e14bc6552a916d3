"""The rewrite of one loop: which statements go, which come, and what a proof must run to compare both."""

from __future__ import annotations

import ast
import copy
import itertools
from dataclasses import dataclass, field

from torchsleuth.linter.events import Frame
from torchsleuth.linter.vectorise.axes import Gathered
from torchsleuth.linter.vectorise.collect import collect_dim, collected_value, concatenated, own_memory
from torchsleuth.linter.vectorise.context import Context
from torchsleuth.linter.vectorise.emit import EMPTY, accumulated, initial_of, starts_no_longer, stored
from torchsleuth.linter.vectorise.evidence import (
    COLLECTORS,
    holds_positions,
    require_evidence,
    require_no_aliases,
    require_no_leftovers,
    require_one_device,
    require_tensors,
)
from torchsleuth.linter.vectorise.lifted import GiveUp, RankUnknown, expression
from torchsleuth.linter.vectorise.loops import Reader
from torchsleuth.linter.vectorise.reading import context_of, plain


@dataclass
class Plan:
    loop: ast.stmt | ast.expr
    statements: list[ast.stmt] = field(default_factory=list)
    removed: list[ast.stmt] = field(default_factory=list)
    started: dict[int, set[str]] = field(default_factory=dict)  # of a statement that starts several variables: those that went
    replaced: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reader: Reader | None = None
    context: Context | None = None
    in_place: bool = False  # whether stores were kept as stores into what was allocated
    collected: list[tuple[ast.Call, str]] = field(default_factory=list)  # calls that collect a list, for the proof

    @property
    def assumptions(self) -> list[str]:
        return self.reader.lifter.assumptions if self.reader else []

    @property
    def is_sure(self) -> bool:
        return all(facts["sure"] for facts in self.reader.lifter.bases.values())


def plan_loop(loop: ast.For | ast.While, body: list[ast.stmt], position: int, frame: Frame, dotted, keep_stores: bool = False) -> Plan:
    """How to do without this loop; raises `GiveUp` with the reason where that is not known."""
    body = [plain(s) for s in body]
    return _with_ranks(frame, loop, dotted, lambda reader: _plan_loop(loop, body, position, frame, reader, keep_stores))


def _with_ranks(frame: Frame, loop: ast.AST, dotted, attempt) -> Plan:
    """Try as it stands; where that fails for want of a number of dimensions, try the ones the indices suggest."""
    reader = Reader(context_of(frame, loop, dotted))
    try:
        return attempt(reader)
    except GiveUp as unknown:
        names = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
        unknown.has_tensors = any(facts["sure"] for facts in reader.lifter.bases.values()) or bool(names & (reader.context.evidence | reader.context.weak))
        if not isinstance(unknown, RankUnknown):
            raise
        # Only what is indexed shows how many dimensions it has at least.
        open_bases = {b: facts["entries"] for b, facts in reader.lifter.bases.items() if facts["rank"] is None and "entries" in facts}
        if not open_bases or len(open_bases) > 4:
            raise
        problem = unknown
    shown = {} if (rank := _shown_rank(reader)) is None else {
        b: rank for b in open_bases if (open_bases[b] == 1 or _indexed_alike(reader, open_bases[b], rank)) and not holds_positions(b, loop) and not gets_a_dimension(b, loop)
    }
    for ranks in _rank_choices(open_bases, shown):
        context = context_of(frame, loop, dotted)
        if any(rank < context.least_ranks.get(base, 0) for base, rank in ranks.items()):
            continue
        context.exact_ranks.update(ranks)
        context.guessed.update(ranks)
        reader = Reader(context)
        try:
            plan = attempt(reader)
        except GiveUp:
            continue
        numbers = [base for base, entries in open_bases.items() if entries == context.exact_ranks.get(base) == 1 and not holds_positions(base, loop)]
        if not shown and len(numbers) > 1:
            continue  # `w[i] * x[i]` with nothing known of either is not guessed, whatever else the loop has in it
        for base, rank in ranks.items():
            if base in reader.lifter.bases:
                reader.assumed_ranks.add(base)
                reader.lifter.assume(f"`{base}` has {rank} dimension{'s' * (rank != 1)}")
        return plan
    raise problem


def gets_a_dimension(base: str, loop: ast.AST) -> bool:
    """`mask[i].unsqueeze(-1)`: it has fewer than what it meets."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("unsqueeze", "view", "reshape"):
            if base in {ast.unparse(n) for n in ast.walk(node.func.value) if isinstance(n, (ast.Name, ast.Attribute))}:
                return True
    return False


def _indexed_alike(reader: Reader, entries: int, rank: int) -> bool:
    """`q[:, i] * k[:, j]`: what is indexed as a tensor of more dimensions is has as many."""
    stored = {store.target for store in reader.stores}
    return rank > entries and any(f["rank"] == rank and f.get("used") == entries for b, f in reader.lifter.bases.items() if b not in stored)


def _shown_rank(reader: Reader) -> int | None:
    """The number of dimensions of the other tensors that are read, where it is shown and the same for all of them."""
    stored = {store.target for store in reader.stores}
    ranks = {facts["rank"] for base, facts in reader.lifter.bases.items() if facts["rank"] is not None and base not in stored and facts["kind"] == "float"}
    return ranks.pop() if len(ranks) == 1 else None


def _rank_choices(open_bases: dict[str, int], shown: dict[str, int]):
    """As few assumptions as possible first: one tensor's rank, then two, then more; the rank of the tensors beside it before others."""
    for count in range(1, len(open_bases) + 1):
        for chosen in itertools.combinations(open_bases, count):
            extras = (0, 1, 2) if count < 3 else (0, 1)
            choices = [{base: open_bases[base] + extra for base, extra in zip(chosen, more, strict=True)} for more in itertools.product(extras, repeat=count)]
            yield from sorted(choices, key=lambda ranks: any(rank != shown.get(base, open_bases[base]) for base, rank in ranks.items()) if shown else False)


def _plan_loop(loop: ast.For | ast.While, body: list[ast.stmt], position: int, frame: Frame, reader: Reader, keep_stores: bool) -> Plan:
    context = reader.context
    reader._siblings = _siblings(loop)
    reader.read(loop, body[:position])
    plan = Plan(loop, reader=reader, context=context, in_place=keep_stores)
    _check_after(plan, frame, loop)
    before, after = body[:position], body[position + 1 :]
    finals: list[ast.stmt] = []
    targets = [store.target for store in reader.stores]
    if any(targets.count(t) > 1 and t not in reader.apart for t in targets) or len({(s.target, *map(ast.unparse, s.entries)) for s in reader.stores}) != len(targets):
        raise GiveUp("a tensor is written at several places")
    for store in reader.stores:
        finals.append(stored(plan, store, before, keep_stores))
    for accumulator in reader.accumulators.values():
        statement = accumulated(plan, accumulator, before)
        if _is_used_after(accumulator.name, loop, frame):
            finals.append(statement)
        else:
            plan.outputs.remove(accumulator.name)
    for variable, gathered in reader.grown.items():
        start = initial_of(plan, variable, before)
        if start is None or ast.unparse(start[1]) not in EMPTY:
            raise GiveUp(f"`{variable}` does not start empty just before the loop")
        starts_no_longer(plan, start[0], variable)
        plan.outputs.append(variable)
        code = concatenated(reader.lifter, gathered.element, gathered.axes[0], 0, "cat").code
        finals.append(ast.Assign([ast.Name(variable, ast.Store())], own_memory(code, reader.lifter)))
    for variable, gathered in reader.lists.items():
        if reader.depths.get(variable, 0) == 0:
            _gathered(plan, variable, gathered, before, after, frame, finals)
    if not finals and not plan.replaced:
        raise GiveUp("it has no result that could be computed at once")
    plan.statements = _with_helpers(plan, finals)
    if isinstance(loop, ast.While):
        _drop_counter(plan, loop, before, frame)
    return _finished(plan)


def _finished(plan: Plan) -> Plan:
    """Positions are made on the device of the tensors they are used with."""
    require_evidence(plan)
    require_tensors(plan)
    require_one_device(plan)
    require_no_aliases(plan)
    require_no_leftovers(plan)
    gone = {t.id for statement in plan.removed if isinstance(statement, ast.Assign) for t in statement.targets if isinstance(t, ast.Name)}
    device = min((b for b in plan.reader.lifter.bases if b not in gone), key=lambda b: "." in b, default=None)
    if device is not None:
        placer = _Placer(device)
        plan.statements = [placer.visit(s) for s in plan.statements]
        plan.replaced = [(node, placer.visit(code)) for node, code in plan.replaced]
    return plan


class _Placer(ast.NodeTransformer):
    def __init__(self, tensor: str) -> None:
        self.tensor = tensor

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "torch.arange" and not node.keywords:
            return ast.Call(node.func, node.args, [ast.keyword("device", expression(f"{self.tensor}.device"))])
        return node


def _is_used_after(variable: str, loop: ast.AST, frame: Frame) -> bool:
    if frame.is_script:
        return True
    outer = any(isinstance(n, (ast.For, ast.While)) and n is not loop and n.lineno <= loop.lineno and n.end_lineno >= loop.end_lineno
                for n in _function_nodes(frame.node))  # fmt: skip
    return outer or any(isinstance(n, ast.Name) and n.id == variable and isinstance(n.ctx, ast.Load) and n.lineno > loop.end_lineno
                        for n in _function_nodes(frame.node))  # fmt: skip


def plan_comprehension(call: ast.Call, node: ast.ListComp | ast.GeneratorExp, kind: str, frame: Frame, dotted) -> Plan:
    """`torch.stack([f(x[i]) for i in range(n)])` as one expression."""

    def attempt(reader: Reader) -> Plan:
        gathered = _read_comprehension(node, reader)
        plan = Plan(call, reader=reader, context=reader.context)
        value = collected_value(plan, gathered, kind, collect_dim(call) if kind != "sum" else 0)
        plan.replaced = [(call, value.code)]
        return _finished(plan)

    return _with_ranks(frame, call, dotted, attempt)


def plan_assigned_comprehension(statement: ast.Assign, body: list[ast.stmt], position: int, frame: Frame, dotted) -> Plan:
    """`rows = [f(x[i]) for i in range(n)]`, stacked later."""

    def attempt(reader: Reader) -> Plan:
        gathered = _read_comprehension(statement.value, reader)
        plan = Plan(statement, reader=reader, context=reader.context)
        finals: list[ast.stmt] = []
        _gathered(plan, statement.targets[0].id, gathered, None, body[position + 1 :], frame, finals)
        plan.statements = finals
        return _finished(plan)

    return _with_ranks(frame, statement, dotted, attempt)


def _read_comprehension(node: ast.ListComp | ast.GeneratorExp, reader: Reader) -> Gathered:
    reader._prepare(node)
    axes = []
    for generator in node.generators:
        if generator.ifs or generator.is_async:
            raise GiveUp("what is gathered depends on a condition")
        axes.append(reader._for_axis(generator.target, generator.iter))
    if reader.bounds:
        raise GiveUp("its range depends on an outer loop")
    if isinstance(node.elt, (ast.ListComp, ast.List)):
        raise GiveUp("a list of lists")
    value = reader.lifter.lift(node.elt)
    if any(a.name not in value.axes for a in axes):
        raise GiveUp("the same value is gathered in every turn")
    return Gathered(tuple(a.name for a in axes), value)


def _gathered(plan: Plan, variable: str, gathered: Gathered, before, after, frame: Frame, finals: list[ast.stmt]) -> None:
    if gathered.element is None:
        raise GiveUp(f"nothing is appended to `{variable}`")
    loop = plan.loop
    uses = [n for n in _function_nodes(frame.node) if isinstance(n, ast.Name) and n.id == variable and isinstance(n.ctx, ast.Load)
            and not loop.lineno <= n.lineno <= loop.end_lineno]  # fmt: skip
    uses.sort(key=lambda n: (n.lineno, n.col_offset))
    if len(uses) > 1 and after and _rebinds(after, uses[0], variable):
        uses = uses[:1]  # `rows = torch.stack(rows)`: what follows reads the tensor
    if len(uses) != 1:
        raise GiveUp(f"the list `{variable}` is used {'at several places' if uses else 'nowhere'} after the loop")
    call = next((n for n in _function_nodes(frame.node) if isinstance(n, ast.Call) and n.args and n.args[0] is uses[0]), None)
    kind = None
    if call is not None and call.lineno > loop.lineno:
        kind = COLLECTORS.get(plan.context.dotted(call.func)) or ("sum" if isinstance(call.func, ast.Name) and call.func.id == "sum" and len(call.args) == 1 else None)
    if kind is None:
        raise GiveUp(f"the list `{variable}` itself is used after the loop")
    if any(k.arg in ("dtype", "device") for k in call.keywords):
        raise GiveUp("what is gathered is given another dtype or device")
    if before is not None:  # None: the statement itself makes the list
        start = initial_of(plan, variable, before)
        if start is None or ast.unparse(start[1]) not in ("[]", "list()"):
            raise GiveUp(f"`{variable}` does not start as an empty list just before the loop")
        starts_no_longer(plan, start[0], variable)
    value = collected_value(plan, gathered, kind, collect_dim(call) if kind != "sum" else 0)
    plan.collected.append((call, variable))
    directly = after and any(n is call for n in ast.walk(after[0])) and not isinstance(after[0], (ast.For, ast.While, ast.If, ast.With, ast.Try))
    if directly:
        plan.replaced.append((call, value.code))
    else:
        finals.append(ast.Assign([ast.Name(variable, ast.Store())], value.code))
        plan.replaced.append((call, ast.Name(variable, ast.Load())))


def _rebinds(after: list[ast.stmt], use: ast.Name, variable: str) -> bool:
    for statement in after:
        if any(n is use for n in ast.walk(statement)):
            return isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in statement.targets)
    return False


# Around the loop --------------------------------------------------------------------------------------


def _check_after(plan: Plan, frame: Frame, loop: ast.stmt) -> None:
    """Helpers and loop variables must not be used after the loop: they would no longer exist."""
    results = {*plan.reader.grown, *plan.reader.accumulators, *(s.target for s in plan.reader.stores), *plan.reader.lists}
    hidden = plan.reader.bound - results
    outer = any(isinstance(n, (ast.For, ast.While)) and n is not loop and n.lineno <= loop.lineno and n.end_lineno >= loop.end_lineno
                for n in _function_nodes(frame.node))  # fmt: skip
    seen_store: set[str] = set()
    for node in sorted((n for n in _function_nodes(frame.node) if isinstance(n, ast.Name)), key=lambda n: (n.lineno, n.col_offset)):
        if node.id not in hidden or loop.lineno <= node.lineno <= loop.end_lineno:
            continue
        if isinstance(node.ctx, ast.Store):
            if node.lineno > loop.end_lineno:
                seen_store.add(node.id)
        elif (node.lineno > loop.end_lineno or outer) and node.id not in seen_store:
            if any(isinstance(n, ast.comprehension) and node.id in {t.id for t in ast.walk(n.target) if isinstance(t, ast.Name)}
                   for n in _function_nodes(frame.node)):  # fmt: skip
                continue
            raise GiveUp(f"`{node.id}` is used after the loop")


def _drop_counter(plan: Plan, loop: ast.While, before: list[ast.stmt], frame: Frame) -> None:
    counter = loop.test.left.id
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == counter:
            others = [n for n in _function_nodes(frame.node) if isinstance(n, ast.Name) and n.id == counter
                      and not loop.lineno <= n.lineno <= loop.end_lineno and n is not statement.targets[0]]  # fmt: skip
            if not others:
                plan.removed.append(statement)
            return


def _with_helpers(plan: Plan, finals: list[ast.stmt]) -> list[ast.stmt]:
    """Helper variables of the loop that the new code needs more than once keep their names."""
    out = list(finals)
    expressions = [code for _, code in plan.replaced]
    hoisted: list[ast.stmt] = []
    counts: dict[str, int] = {}
    for variable, _ in plan.reader.helpers:
        counts[variable] = counts.get(variable, 0) + 1
    outputs = set(plan.outputs)
    for variable, value in reversed(plan.reader.helpers):
        if counts[variable] != 1 or variable in outputs:
            continue
        forms = [value.code, *([value.kept[0]] if value.kept else [])]
        best, most = None, 1
        for form in forms:
            if not any(isinstance(n, (ast.Call, ast.BinOp, ast.Compare)) for n in ast.walk(form)):
                continue
            text = ast.unparse(form)
            found = sum(_occurrences(s, text) for s in [*out, *hoisted, *expressions])
            if found > most:
                best, most = text, found
        if best is not None:
            replacer = _Replacer(best, variable)
            out = [replacer.visit(copy.deepcopy(s)) for s in out]
            hoisted = [replacer.visit(copy.deepcopy(s)) for s in hoisted]
            plan.replaced = [(node, replacer.visit(copy.deepcopy(code))) for node, code in plan.replaced]
            expressions = [code for _, code in plan.replaced]
            hoisted.insert(0, ast.Assign([ast.Name(variable, ast.Store())], expression(best)))
    return [*hoisted, *out]


class _Replacer(ast.NodeTransformer):
    def __init__(self, text: str, variable: str) -> None:
        self.text, self.variable = text, variable

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.unparse(node) == self.text:
            return ast.Name(self.variable, ast.Load())
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node


def _occurrences(node: ast.AST, text: str) -> int:
    return sum(1 for n in ast.walk(node) if isinstance(n, (ast.Call, ast.BinOp, ast.Compare)) and ast.unparse(n) == text)


def _siblings(loop: ast.AST) -> dict[int, list[ast.stmt]]:
    """For each nested loop, the statements before it in its own block."""
    found: dict[int, list[ast.stmt]] = {}
    for node in ast.walk(loop):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(block, list):
                for place, statement in enumerate(block):
                    if isinstance(statement, (ast.For, ast.While)):
                        found[id(statement)] = block[:place]
    return found


def _function_nodes(function: ast.AST):
    for statement in getattr(function, "body", []):
        yield from ast.walk(statement)


__all__ = ["COLLECTORS", "Plan", "plan_assigned_comprehension", "plan_comprehension", "plan_loop"]
