"""Gradient flow: which parameters got none, and where on the way to the loss it was lost.

The trace says for each call which inputs needed a gradient and which results have none; from a parameter
without gradient the way is followed forward to the call where its history ends.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import typing
from collections.abc import Iterable

import torch
from torch import nn

from torchsleuth.auditor.gradients.branches import ends_a_row, on_another_way
from torchsleuth.auditor.gradients.leaves import LEAF
from torchsleuth.auditor.gradients.straightthrough import estimators_blamed
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Cut, OptimizerFact, Unused, Weight
from torchsleuth.auditor.tracing.bydesign import ends_by_design, origin_of_place
from torchsleuth.auditor.tracing.exits import Leaving, asked_by_torch, chooses, come_back
from torchsleuth.auditor.tracing.owners import bound_again, built, owner_classes
from torchsleuth.auditor.tracing.sites import expression, site_of
from torchsleuth.auditor.tracing.trace import ENTRIES, EXITS, Op, Seen, Trace
from torchsleuth.origin import Origin

_COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "__gt__", "__lt__", "isnan", "isfinite", "logical_and", "logical_or", "logical_not"}
_INDICES = {"argmax", "argmin", "argsort", "topk", "sort", "max", "min", "median", "mode", "kthvalue", "multinomial", "searchsorted",
            "bucketize", "nonzero", "unique"}  # fmt: skip

_SEVERING = {"data", "detach", "detach_", "tensor", "as_tensor"}
_READING = {"data", "detach", "clone", "cpu", "numpy", "__format__"}


def grad_state(grad: torch.Tensor | None) -> str:
    return grad_states([grad])[0]


def grad_states(grads: typing.Iterable[torch.Tensor | None]) -> list[str]:
    """"none", "zero", "ok", "nan" or "inf" for each; a device is waited for once, not for each."""
    values = [None if g is None else g.detach()._values() if g.is_sparse else g.detach() for g in grads]
    groups: dict[tuple, list[int]] = {}
    for position, value in enumerate(values):
        if value is not None and value.numel():
            groups.setdefault((value.device, value.dtype), []).append(position)
    totals: dict[int, float] = {}
    with torch.no_grad():
        for positions in groups.values():
            mine = [values[p] for p in positions]
            wide = torch.float32 if mine[0].dtype.itemsize < 4 else None  # the sum of many halves is no half
            found = torch._foreach_norm(mine, 1, dtype=wide) if mine[0].is_floating_point() else [value.abs().sum() for value in mine]
            totals.update(zip(positions, torch.stack(found).tolist(), strict=True))
    return ["none" if value is None else _state_of(value, totals.get(position, 1.0)) for position, value in enumerate(values)]


def _state_of(values: torch.Tensor, total: float) -> str:
    if math.isfinite(total):
        return "zero" if total == 0 else "ok"
    if bool(values.isnan().any()):
        return "nan"
    return "inf" if bool(values.isinf().any()) else "ok"


def used_modules(trace: Trace, keys: dict[str, int], until: int | None = None) -> set[str]:
    """Names of the parameters that some call, up to the loss, took as an input. Writing into one (initialisation, an
    optimizer's step, this watch's own copies after the loss) and copying it (`copy.deepcopy`) is no use of it."""
    by_key = {key: name for name, key in keys.items()}
    return {
        by_key[seen.key]
        for position, op in enumerate(trace.ops)
        if not op.writes and op.name not in _READING and (until is None or position <= until)
        for seen in op.ins
        if seen.key in by_key
    }


class Ends(typing.NamedTuple):
    """Where history ends on the way to the loss, by the number of the call."""

    who: dict[int, set[str]]  # the parameters it ends for
    forced: dict[int, Op]  # the call that makes the result require a gradient all the same
    guessed: set[int]  # only hands out values, which may or may not have come back
    remade: dict[int, Op]  # the call that makes a tensor of the values it handed out


class Flow:
    """The way from parameters without gradient through one traced step."""

    def __init__(
        self, model: nn.Module, trace: Trace, keys: dict[str, int], loss: torch.Tensor | None, outputs: Iterable[torch.Tensor], since: int = 0
    ) -> None:
        """`since`: where in the trace this step begins, if others have gone before."""
        self.model, self.trace, self.keys, self.since = model, trace, keys, since
        self.groups = [path for path, m in model.named_modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
        self.loss_key = trace.known_key(loss) if loss is not None else None
        if loss is not None and loss.is_leaf and self.loss_key not in trace.producer:
            self.loss_key = trace.bared.get(loss.data_ptr(), self.loss_key)  # `Variable(loss.data, requires_grad=True)` is no call that shows
        self.before_loss = trace.producer.get(self.loss_key, len(trace.ops)) if self.loss_key is not None else len(trace.ops)
        asked = (op.index for op in trace.ops if op.name == "backward" and op.ins and op.ins[0].key == self.loss_key)
        self.before_backward = max(self.before_loss, next(asked, 0))  # a second loss is computed between the first and its backward pass
        self.on_the_way = trace.ancestors({self.loss_key}) if self.loss_key is not None else set()
        self.output_keys = {key for t in outputs if (key := trace.known_key(t)) is not None}
        self.to_output = trace.ancestors(self.output_keys)

    def ends(self, names: Iterable[str]) -> Ends:
        live: dict[int, set[str]] = {self.keys[n]: {n} for n in names if n in self.keys}
        dead: dict[int, dict[int, set[str]]] = {}  # key -> cut operation -> parameters
        exits: list[Leaving] = []
        choices: list[Leaving] = []  # exits that only say which way the program goes
        forced: dict[int, Op] = {}
        bare: set[int] = set()  # made without history, whatever they were made from
        for op in self.trace.ops:
            mine: set[str] = set()
            lost: dict[int, set[str]] = {}
            for seen in op.ins:
                if seen.key in dead and seen.key in bare and seen.requires_grad and op.name != "requires_grad_":
                    # A custom Function's result: made without grad inside, given its history afterwards.
                    if not any(cut in forced for cut in dead[seen.key]):
                        live.setdefault(seen.key, set()).update(*dead.pop(seen.key).values())
                if seen.key in live and seen.requires_grad:
                    mine |= live[seen.key]
                for cut, who in dead.get(seen.key, {}).items():
                    lost.setdefault(cut, set()).update(who)
            if not mine and not lost:
                continue
            if op.name == "requires_grad_":
                for cut in lost:
                    forced.setdefault(cut, op)
            if op.name in EXITS and op.index <= self.before_loss and not asked_by_torch(op):
                left = choices if chooses(op) else exits
                left.append(Leaving(op, op.index, set(mine)))
                for cut, who in lost.items():
                    # `.detach().numpy()` is one thing; a number read out of an index was lost where the index was made.
                    left.append(Leaving(op, op.index if self.trace.ops[cut].name in ("detach", "data") else cut, who - mine))
            bare.update(seen.key for seen in op.outs if not seen.requires_grad)
            copied = op.name in ("tensor", "set_data", LEAF)  # always a new leaf, even with `requires_grad=True`
            for seen in op.outs:
                if copied and mine and seen.requires_grad:
                    forced.setdefault(op.index, op)
                if mine and seen.requires_grad and not copied and op.name != "requires_grad_":
                    live.setdefault(seen.key, set()).update(mine)
                elif mine and op.name not in EXITS and not _beside(op, seen):
                    dead.setdefault(seen.key, {}).setdefault(op.index, set()).update(mine)
                for cut, who in lost.items():
                    dead.setdefault(seen.key, {}).setdefault(cut, set()).update(who)
        ends: dict[int, set[str]] = collections.defaultdict(set)
        for key, cuts in dead.items():
            if key == self.loss_key or (self.loss_key is None and key in self.output_keys):
                for cut, who in cuts.items():
                    ends[cut] |= who
        # Values that left torch may have come back; a number that chose the next action is no culprit where there are such.
        earlier = [one for one in exits if one.named < self.since]  # of another optimizer's step, for its own ends
        guessed: set[int] = set()
        remade: dict[int, Op] = {}
        for ways in ([one for one in exits if one.named >= self.since], earlier, choices):
            explained = set().union(*ends.values()) if ends else set()
            left = [one._replace(who=one.who - explained) for one in ways if one.who - explained]
            if ways is choices and left and (made := self._made_of_numbers()) is not None:
                ends[made.index] |= set().union(*(one.who for one in left))
                forced[made.index] = made
                continue
            kept, seen = (left, {}) if ways is choices else come_back(self.trace, self.on_the_way, left)
            for one in kept:
                if ways is not choices and one.named not in seen and one.named not in ends:
                    guessed.add(one.named)
                ends[one.named] |= one.who
            remade.update((one.named, seen[one.named]) for one in kept if seen.get(one.named) is not None)
        return Ends(ends, forced, guessed, remade)

    def _made_of_numbers(self) -> Op | None:
        """The tensor that the loss is computed from, made of plain numbers and said to need a gradient, where no parameter is on the way to the loss."""
        if self.on_the_way & self.trace.parameters.keys():
            return None
        made = [op for op in self.trace.ops if op.name in ENTRIES and not op.ins and any(seen.key in self.on_the_way and seen.requires_grad for seen in op.outs)]
        return made[-1] if made and origin_of_place(made[-1]) is Origin.USER else None

    def cuts(self, missing: list[str], whole_loss: bool, idle: set[int]) -> tuple[list[Cut], set[str]]:
        """`idle`: what the terms of the loss without gradient were computed from, and no other term."""
        ends, forced, guessed, remade = self.ends(missing)
        # A rollout or a teacher's pass under `no_grad` is no culprit for what is lost in a pass that was meant to train.
        # Nor is `autograd.grad`, which gives derivatives without history unless it is told to, where anything else is.
        ops = self.trace.ops
        # A tensor of zeros as large as another one never had its history.
        for weak in (silenced, lambda op: op.name == "grad", lambda op: op.name.endswith("_like") or op.name.startswith("new_")):
            strong = set().union(*(who for index, who in ends.items() if not weak(ops[index])))
            ends = {index: left for index, who in ends.items() if (left := who - strong if weak(ops[index]) else who)}
        ends = {index: who for index, who in ends.items() if not ends_by_design(self.trace, ops[index], self.on_the_way)}
        ends = estimators_blamed(self.trace, self._to_blame(self._to_blame(ends, self._reopens), lambda index: self._alone(index, idle)), self.reason)
        if not ends:
            return [], set()
        grouped: dict[tuple, list[tuple[Op, set[str]]]] = {}
        for index, who in sorted(ends.items()):
            op = self.trace.ops[index]
            scoped = self.reason(op) == "no-grad" and op.scope.user_code is not None
            code, offset = (op.scope.user_code, op.scope.user_offset) if scoped else (op.place.user_code, op.place.user_offset)
            span, _ = expression(code, offset) if code is not None else (None, "")
            grouped.setdefault((code, span.line if span is not None else offset, self.reason(op)), []).append((op, who))
        found, explained = [], set()
        for members in grouped.values():
            op = members[0][0]
            site = self.trace.site(op)
            if site is None:
                continue
            who = set().union(*(names for _, names in members))
            reason = self.reason(op)
            forced_op = next((forced[o.index] for o, _ in members if o.index in forced), None)
            remade_op = next((remade[o.index] for o, _ in members if o.index in remade), None)
            found.append(
                Cut(
                    op.name, reason, site, tuple(sorted(who)), whole_loss,
                    self.trace.site(forced_op) if forced_op else None, len(members),
                    site_of(op.scope) if reason == "no-grad" else None, sure=not all(o.index in guessed for o, _ in members),
                    remade=self.trace.site(remade_op) if remade_op else None,
                )  # fmt: skip
            )
            explained |= who
        return found, explained

    @staticmethod
    def _to_blame(ends: dict[int, set[str]], strong: typing.Callable[[int], bool]) -> dict[int, set[str]]:
        """Without the other ends of parameters that a strong one explains."""
        explained = set().union(*(who for index, who in ends.items() if strong(index)))
        return {index: left for index, who in ends.items() if (left := who if strong(index) else who - explained)}

    def _reopens(self, index: int) -> bool:
        """Would a gradient come through from the loss, if this one call kept the history? Not where all that is made of its result is cut off
        once more further on (a token that is chosen and then compared, where `.data` cuts off its probability)."""
        ops = self.trace.ops
        if ops[index].name in EXITS:
            return True
        open_ = {seen.key for seen in ops[index].outs}
        for op in ops[index + 1 :]:
            if self.loss_key in open_:
                return True
            if op.name not in _SEVERING and op.name not in EXITS and op.grad_enabled and any(seen.key in open_ for seen in op.ins):
                open_.update(seen.key for seen in op.outs if seen.dtype is not torch.bool)
        return self.loss_key in open_

    def _alone(self, index: int, idle: set[int]) -> bool:
        """It leaves a whole term of the loss without gradient. Where another end is in a term that trains something (an advantage), that is meant."""
        return any(seen.key in idle for seen in self.trace.ops[index].outs)

    @staticmethod
    def reason(op: Op) -> str:
        if op.name in ("numpy", "__array__"):
            return "numpy"
        if op.name in EXITS:
            return "item"
        if op.name in ENTRIES and not op.ins:
            return "numbers"
        if op.name in ("data", "detach", "tensor", "as_tensor"):
            return "tensor" if op.name == "as_tensor" else op.name
        if op.name == "grad":
            return "derivative"
        if op.name in ("set_data", LEAF):
            return "parameter"
        if op.name == "detach_":
            return "detach"
        if op.name in _INDICES and any(not seen.dtype.is_floating_point for seen in op.outs):
            return "argmax"
        if op.name in _COMPARISONS or any(seen.dtype is torch.bool for seen in op.outs):
            return "compare"
        if op.outs and not op.outs[0].dtype.is_floating_point:
            return "integer"
        return "no-grad" if not op.grad_enabled else "other"

    def unused(self, missing: list[str], owners: dict[str, tuple[str, str, bool]]) -> list[Unused]:
        """Parameters nothing was computed from, or whose result went nowhere."""
        used = used_modules(self.trace, self.keys, self.before_backward)
        groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for name in missing:
            path, _, is_user = owners.get(name, ("", "", False))
            if is_user and name in self.keys:
                groups[(path, "dropped" if name in used else "never-called")].append(name)
        called = {owners[name][0] for name in used if name in owners}
        found = []
        for (path, how), names in groups.items():
            kind = owners[names[0]][1]
            if how == "never-called":
                if any(_below(path, group) and any(_below(c, group) for c in called) for group in self.groups):
                    continue  # one of several experts, tasks or layers, not chosen this time
                if path and on_another_way(self.model, path, called):
                    continue
                holder = self.model.get_submodule(path.rpartition(".")[0]) if path else self.model
                made = built(holder, (path or names[0]).rpartition(".")[2])
                found.append(Unused(tuple(names), how, path, kind, None, made))
                continue
            keys = {self.keys[name] for name in names}
            first = next((op for op in self.trace.ops if not op.writes and op.name not in _READING and any(seen.key in keys for seen in op.ins)), None)
            if first is None or origin_of_place(first) is not Origin.USER or first.transformed:
                continue  # under `torch.func.grad` a derivative is taken of it, which no call shows
            below = self.trace.descendants(keys)
            if below & self.output_keys:
                continue  # it is in what the model returns; the loss does not look at it
            if path and ends_a_row(self.model, path, missing):
                continue
            found.append(Unused(tuple(names), how, path, kind, self.trace.site(first), end=self._end(below)))
        return found

    def _end(self, below: set[int]) -> Site | None:
        """The first of these results that nothing takes up any more: there they are dropped."""
        taken = {seen.key for op in self.trace.ops for seen in op.ins}
        for op in self.trace.ops:
            made = [seen.key for seen in op.outs if seen.requires_grad and seen.key in below]
            if made and op.ins and not op.writes and not any(key in taken for key in made):
                return self.trace.site(op) if origin_of_place(op) is Origin.USER else None
        return None


def silenced(op: Op) -> bool:
    """The program has switched history off around it; a function of torch's that does so inside (`sample`) was called with it on."""
    here, scope = op.place, op.scope
    return not op.grad_enabled and (here.user_code, here.user_offset) != (scope.user_code, scope.user_offset)


def _beside(op: Op, seen: Seen) -> bool:
    """Counts or sizes that come along with the values (of a packed sequence): the history goes on in those."""
    return not seen.dtype.is_floating_point and op.name not in _INDICES and any(other.requires_grad for other in op.outs)


def _below(path: str, group: str) -> bool:
    return path.startswith(group + ".")


def follows_another(model: nn.Module, names: Iterable[str], weights: list[Weight], held: bool) -> bool:
    """A teacher that follows a student: every parameter has a twin of the same name and size that does train.

    Where the optimizer holds the teacher too, the twins must also be alike: it is a copy, and not a second encoder.
    """
    trained = {(w.name.partition(".")[2], w.size): w.name for w in weights if w.grad not in ("none", "unknown") and "." in w.name}
    sizes = {w.name: w.size for w in weights}
    twins = {n: trained.get((n.partition(".")[2], sizes.get(n))) if "." in n else None for n in names}
    if not twins or not all(twins.values()):
        return False
    if not held:
        return True
    named = dict(model.named_parameters())
    pairs = [(named[n].detach().flatten().float(), named[twin].detach().flatten().float()) for n, twin in twins.items() if n in named and twin in named]
    telling = [(a, b) for a, b in pairs if a.numel() > 7 and float(a.std()) > 0]
    return bool(telling) and all(float(torch.cosine_similarity(a, b, dim=0)) > 0.9 for a, b in telling)


def weights_of(
    model: nn.Module, states: dict[str, str], used: set[str] | None, optimized: set[int] | None
) -> list[Weight]:
    owners = owner_classes(model)
    found = []
    for name, parameter in model.named_parameters():
        _, kind, is_user = owners.get(name, ("", "", True))
        found.append(
            Weight(
                name, tuple(parameter.shape), parameter.requires_grad, states.get(name, "unknown"),
                None if optimized is None else id(parameter) in optimized, True,
                used is None or name in used, kind, is_user,
            )  # fmt: skip
        )
    return found


def starts_at_zero(model: nn.Module) -> bool:
    """Some layer's weights are all zero: what lies before it gets no gradient yet."""
    return any(not p.detach().any() for name, p in model.named_parameters() if "bias" not in name)


def is_lone_bias(name: str, states: dict[str, str]) -> bool:
    """A bias alone with a zero gradient (before a normalisation, say) is no news; with its weight it is."""
    owner, _, last = name.rpartition(".")
    if "bias" not in last:
        return False
    return states.get(f"{owner}.weight" if owner else "weight") != "zero"


def optimizer_facts(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, states: dict[str, str] | None, site: Site | None, rebound: dict[str, Site],
    elsewhere: typing.Container[int] = (), used: typing.Container[int] | None = None, added: typing.Mapping[str, Site] | None = None,
) -> list[OptimizerFact]:
    """Trained parameters that the optimizer does not hold, and held ones that are not the model's any more."""
    if optimizer is None:
        return []
    held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters(remove_duplicate=False))
    own = {id(p) for p in named.values()}
    kind = type(optimizer).__name__
    states = states or {}
    missing = [
        n for n, p in model.named_parameters()
        if p.requires_grad and id(p) not in held and id(p) not in elsewhere and states.get(n, "ok") not in ("none", "unknown")
    ]  # fmt: skip
    strange = [p for key, p in held.items() if key not in own and (used is None or key not in used)]
    if not missing:
        return []
    replaced = next((site for name, site in rebound.items() if any(m == name or m.startswith(name + ".") for m in missing)), None)
    again = bound_again(site) if site is not None and replaced is None and len(strange) == len(held) else None
    alike = {tuple(p.shape) for p in strange} <= {tuple(p.shape) for p in named.values()}  # old ones have the sizes of those in their place
    stale = strange and (alike or replaced is not None or again is not None)
    late = [at for name, at in (added or {}).items() if any(m == name or m.startswith(name + ".") for m in missing)] if replaced is again is None and own & held.keys() else []
    trained = any(states.get(n) in ("ok", "zero") for n, p in named.items() if id(p) in held)
    fact = OptimizerFact("stale" if stale else "missing", kind, tuple(missing), len(held), site, replaced or again, by_syntax=again is not None, apart=not own & held.keys(), added=tuple({at.span: at for at in late}.values()))
    return [dataclasses.replace(fact, kind="foreign") if not stale and not trained and not own & held.keys() else fact]
