"""Is the model meant to be causal, which token is each position asked for, and do later tokens count?"""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.firstmoved import Found
from torchsleuth.auditor.laboratory.lab import Lab, held_choices, row_and_position
from torchsleuth.auditor.observation import WIDENED, LabelShift, Move
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.sequences import triangles
from torchsleuth.auditor.sequences.handing import mask_made, not_given
from torchsleuth.auditor.sequences.shifts import Lookup, Shift, label_shifts
from torchsleuth.auditor.tracing.construction import built
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

Attempt = typing.Callable[[str, typing.Callable[[], typing.Any]], typing.Any]
FEW = 8  # labels that count; one or two chosen tokens may have been left as they were
MOST_ROWS = 4  # tried one by one
_MASKING = {"masked_fill", "masked_fill_", "where", "add", "add_", "mul", "mul_", "__setitem__"}


class Question(typing.NamedTuple):
    """An input that is read in order, and how that is known."""

    leaf: Leaf
    axis: int  # along which positions are counted
    intent: str
    counted: torch.Tensor | None = None  # flags like the leaf: what is predicted there is asked for
    scores: tuple[int, ...] | None = None  # the shape of the predictions
    by_triangle: bool = False


class Causality:
    """The questions about order, for one step and the experiments on its inputs."""

    def __init__(self, call: Call, step: StepView, lab: Lab, attempt: Attempt, demanded: bool) -> None:
        self.call, self.step, self.lab, self.attempt, self.demanded = call, step, lab, attempt, demanded
        self._causal: dict[tuple[int, int], bool] = {}

    def shifts(self) -> tuple[LabelShift, ...]:
        watch = self.step.watch
        return tuple(label_shifts(watch.shifts, watch.trace, lambda lookup: self._leaf_for(lookup).name, self._is_causal, self._shown))

    def samples_second(self) -> int | None:
        """How many samples the second axis counts, where the loss asks for next tokens along the first, and never along the second."""
        asked = [(self._leaf_for(shift.lookup), shift.axis) for shift in self.step.watch.shifts if shift.offset == 1]
        own = {leaf.tensor.shape for leaf, _ in asked if leaf.path}
        if not own or {axis for _, axis in asked} != {0} or len(own) > 1:
            return None
        size = own.pop()[1]
        return size if size > 1 and self.call.batch_size != size else None

    def _is_causal(self, shift: Shift) -> bool:
        asked = (shift.lookup.op.index, shift.axis)
        if asked not in self._causal:
            leaf = self._leaf_for(shift.lookup)
            known = leaf.path or self.lab.embedded(leaf)  # if not, another model of the step has looked these ids up
            self._causal[asked] = bool(known and self.attempt("causality", lambda: is_causal(self.lab, leaf, shift.axis)))
        return self._causal[asked]

    def _shown(self, shift: Shift) -> Site | None:
        """The call of a model that is asked for a few chosen tokens of the input, all of which it is shown: nothing moves but with them. (It may hide them itself.)"""
        leaf = self._leaf_for(shift.lookup)
        padding = next((one.like_leaf(one.valid).cpu() for one in self.lab.paddings if one.leaf is leaf and one.axis < 2), None)
        real = int(padding.sum()) if padding is not None else leaf.tensor.numel()
        if not leaf.path or shift.compared < FEW or shift.compared > real // 2 or shift.counted.shape != leaf.tensor.shape or shift.matched < shift.compared:
            return None
        where = shift.counted.to(leaf.tensor.device)
        result = self.attempt("chosen tokens", lambda: self.lab.run([(leaf, where)])[0])
        moved = result is not None and any(one.shape == two.shape and bool(moved_flags(one, two, self.lab.floor)[0].any())
                                           for (_, one), (_, two) in zip(output_leaves(self.lab.base), output_leaves(result), strict=False) if one.dim())  # fmt: skip
        return self.lab.called if moved else None

    def moves(self) -> list[Move]:
        question = self._question()
        return [] if question is None else self.attempt("causality", lambda: causal_moves(self.lab, question, self.step.trace)) or []

    def _question(self) -> Question | None:
        for shift in self.step.watch.shifts:
            if shift.offset == 1:
                leaf = self._leaf_for(shift.lookup)
                intent = "The loss compares position t with token t + 1, and that token is visible at position t: the model can copy it."
                if leaf.path or self.lab.embedded(leaf):
                    return Question(leaf, shift.axis, intent, shift.counted, shift.scores)
                return None
        if (found := self._meant() or self._forecast()) is not None:
            return found
        named = batches.sequences(self.call)
        return Question(named[-1], self._in_time(named[-1]), "The model is meant to see no later position (`causal=True`).") if self.demanded and named else None

    def _in_time(self, leaf: Leaf) -> int:
        """The axis of an input without further hints along which positions are counted: the last one of channels first, [B, C, T]."""
        if leaf.tensor.dim() != 3 or leaf.tensor.shape[2] < 3:
            return 1
        key = self.lab.trace.known_key(leaf.tensor)
        if any(op.name.startswith("conv") and op.ins and op.ins[0].key == key for op in self.lab.trace.ops):
            return 2
        ordered = [axis for axis in (1, 2) if self.attempt("causality", lambda axis=axis: is_causal(self.lab, leaf, axis))]
        return 2 if ordered == [2] else 1

    def _meant(self) -> Question | None:
        """A model that is a decoder by its configuration, or an input that goes into an attention with a triangular mask."""
        model, trace = self.call.model, self.lab.trace
        config = getattr(model, "config", None)
        if config is not None and (hasattr(config, "is_decoder") or hasattr(config, "is_encoder_decoder")):
            decoder = getattr(config, "is_decoder", False) is True or "CausalLM" in type(model).__name__
            if not decoder or getattr(config, "is_encoder_decoder", False):
                return None
            looked = [leaf for leaf in batches.sequences(self.call) if self.lab.embedded(leaf)]
            return Question(looked[0], 1, "The model is a decoder by its configuration.") if looked else None
        attention = next(triangles.masked_attentions(trace, model), None)
        if attention is None:
            return None
        before = trace.ancestors({seen.key for seen in attention.op.ins})
        for leaf in batches.sequences(self.call):
            key = trace.known_key(leaf.tensor)
            if key in before and (leaf.tensor.is_floating_point() or self.lab.embedded(leaf)) and attention.length in leaf.tensor.shape[:2]:
                axis = 1 if leaf.tensor.shape[1] == attention.length else 0
                intent = "The input goes into an attention with a triangular mask, so it is meant to see no later position."
                return Question(leaf, axis, intent, by_triangle=True)
        return None

    def _forecast(self) -> Question | None:
        """A series whose next step the loss asks for: the goal at t is the input at t + 1."""
        for goal in (*(goal for _, goal in self.step.watch.dense.values()), *self.step.watch.subtracted):
            for leaf in self.call.leaves:
                for axis in (1, 0, 2)[: leaf.tensor.dim()]:
                    given, asked = leaf.values, goal.to(leaf.values.device)
                    if given.shape != asked.shape or given.shape[axis] < 3 or not given.is_floating_point():
                        continue
                    known = given.shape[axis] - 1
                    if torch.equal(given.narrow(axis, 1, known), asked.narrow(axis, 0, known)) and not torch.equal(given.narrow(axis, 0, known), asked.narrow(axis, 0, known)):
                        intent = "The loss compares position t with the input at t + 1, which is visible at position t: the model can copy it."
                        return Question(leaf, axis, intent, scores=tuple(goal.shape))
        return None

    def _leaf_for(self, lookup: Lookup) -> Leaf:
        """The input these ids are, by value; or a stand-in, where the model made them itself."""
        for leaf in self.call.leaves:
            if leaf.tensor.shape == lookup.ids.shape and not leaf.tensor.is_floating_point() and torch.equal(leaf.values.to(lookup.ids.dtype), lookup.values):
                return leaf
        return Leaf("the ids looked up", (), lookup.ids)


# -- the experiments -------------------------------------------------------------------------------


def causal_moves(lab: Lab, question: Question, step: Trace) -> list[Move]:
    """Change one token of each row; nothing before it may move that is asked for."""
    leaf = question.leaf
    late, may, chosen = _late(question, [padding for padding in lab.paddings if padding.leaf.path == leaf.path])
    if late is None:
        return []
    result, _ = lab.run([(leaf, late)])
    difference = _difference(lab, result, may, question)
    if difference is not None and lab.astray([(leaf, late)]):
        calm = lab.calmed()
        return causal_moves(calm, question, step) if calm is not None else []
    if difference is None or not _in_the_same_row(lab, question, late, may, difference):
        return []
    places, trace = lab.locate([(leaf, late)], difference, may, False)
    if places[0][0] is not None and places[0][0].chosen and _only_chosen(lab, question, late, may, trace):
        return []
    if question.by_triangle and (triangles.opening(trace) is not None or _made_anew(trace, difference, may)):
        return []
    moves = []
    for rank, (found, one) in enumerate(places):
        row, moved = row_and_position(one, may)
        at = chosen[row] if row < len(chosen) else chosen[0]
        what = "token" if not leaf.tensor.is_floating_point() else "time step"
        of = "" if len(set(chosen)) == 1 else f" in row {row}"
        where = f"`{one.name}` at the earlier position {moved}" if moved is not None else f"`{one.name}` at an earlier position"
        mask, made, reach = _mask(lab, trace, found, step) if found is not None else (None, None, 0)
        shows, hollow = reach == triangles.SOME, reach if isinstance(reach, str) else ""
        reach = 0 if shows or isinstance(reach, str) else reach
        layer, setting = built(lab, found.op, "causal") if found is not None else (None, "")
        if found is not None and not setting:
            layer, setting = _widened(trace, found.op)
        untold = not_given(lab, trace, found.op, ahead=True) if found is not None and found.op.name in triangles.ATTENTIONS and mask is made is None else {}
        moves.append(
            lab.move(
                "causal", f"Changing {what} {at}{of} of `{leaf.name}`", where + of, one, found, trace, intent=question.intent, rank=rank,
                mask_site=trace.site(mask) if mask is not None else None, made_site=untold.get("made_site", made), ahead=reach, shows=shows, hollow=hollow, not_given=untold.get("not_given", ""),
                built_site=layer, setting=setting, sequence=leaf.name,
            )
        )  # fmt: skip
    return moves


def _only_chosen(lab: Lab, question: Question, late: torch.Tensor, may: May, first: Trace) -> bool:
    """A later token changes which of the earlier ones are looked at (buckets that are sorted and cut into chunks, experts with
    room for so many), and nothing of it is seen: with the choice held, nothing moves."""
    result, _ = lab.run([(question.leaf, late)], healing=held_choices(first))
    return _difference(lab, result, may, question) is None


def _widened(trace: Trace, op: Op) -> tuple[Site | None, str]:
    """The call that put zeros after the positions, for a convolution to go on over; and how many before and after them."""
    made = trace.maker(op.ins[0]) if op.name == "conv1d" and op.ins else None
    amounts = made.argument(1, "pad", ()) if made is not None and made.name == "pad" else ()
    if made is None or not isinstance(amounts, (tuple, list)) or len(amounts) != 2 or not amounts[1] > 0:
        return None, ""
    return trace.site(made), f"{WIDENED}{tuple(amounts)}"


def _in_the_same_row(lab: Lab, question: Question, late: torch.Tensor, may: May, difference: Difference) -> bool:
    """Does a row's own later token move it? With the tokens of all rows changed at once, it may have been another row's: a link between
    samples (experts with room for so many tokens), and no look ahead."""
    if may.batch in (1, may.length):
        return True  # a square table reads the same in both directions: nothing would be told apart
    most = row_and_position(difference, may)[0]
    rows = [most, *(row for row in range(may.batch) if row != most)][:MOST_ROWS]
    for row in rows:
        own = torch.zeros(may.batch, dtype=torch.bool, device=late.device)
        own[row] = True
        alone = late & _laid(own[:, None], question.axis)
        result, _ = lab.run([(question.leaf, alone)])
        if _difference(lab, result, May(may.table.to(late.device) | ~own[:, None]), question) is not None:
            return True
    return False


def _difference(lab: Lab, result: typing.Any, may: May, question: Question) -> Difference | None:
    """The first output along the positions that moved too early. A scalar is a loss over all positions: it may move."""
    pairs = list(zip(output_leaves(lab.base), output_leaves(result), strict=False))
    scores = [name for (name, one), _ in pairs if question.scores is not None and tuple(one.shape) == question.scores]
    found = []
    for position, ((name, one), (_, two)) in enumerate(pairs):
        if not may.counts_positions(one.shape) or (scores and name not in scores):
            continue
        difference = first_difference(one, two, may, scalars=False, floor=lab.floor)
        if difference is None and scores:
            return None  # of several results like these one is in order: that may be the one that the loss looks at
        if difference is not None:
            difference.name, difference.position = name, position
            found.append(difference)
    return found[0] if found else None


def _made_anew(trace: Trace, difference: Difference, may: May) -> bool:
    """The axis of the output is not that of the input, only as long: it was laid out anew (a forecast of as many steps as were given).

    Followed back from the output by size: the axis must come from a tensor that has it, as far as the input.
    """
    sizes = {may.length, may.batch * (may.length or 0)}
    wanted = {op.index for op in trace.ops if any(tensor.shape == difference.first.shape and torch.equal(tensor.to(difference.first.device), difference.first) for tensor in op.tensors)}
    todo, seen = list(wanted), set()
    while todo:
        op = trace.ops[todo.pop()]
        if op.index in seen:
            continue
        seen.add(op.index)
        for source in op.ins:
            made = trace.maker(source)
            if not sizes & set(source.size):
                continue
            if made is not None:
                todo.append(made.index)
            elif source.key not in trace.parameters:
                return False  # an input, or something that was there before
    return bool(wanted)


def is_causal(lab: Lab, leaf: Leaf, axis: int) -> bool:
    """Nothing before a token moves with it, and itself and something after it do: positions are read in this order.

    A model that does not move there shifts what it is given by itself, or is asked before it is shown (an action, at the state that it follows).
    """
    length = leaf.tensor.shape[axis]
    if length < 3:
        return False
    at = length // 2
    itself = torch.zeros(leaf.tensor.shape[0 if axis else 1], length, dtype=torch.bool, device=leaf.tensor.device)
    itself[:, at] = True
    result, _ = lab.run([(leaf, _laid(itself, axis))])
    after = itself.cumsum(1).bool() & ~itself
    may = May(after | itself)
    pairs = [(one, two) for (_, one), (_, two) in zip(output_leaves(lab.base), output_leaves(result), strict=False) if may.counts_positions(one.shape) and one.dim() >= 2]
    if not pairs or any(first_difference(one, two, may, scalars=False, floor=lab.floor) is not None for one, two in pairs):
        return False
    moved = [moved_flags(one, two, lab.floor)[0] for one, two in pairs]
    return any(not May(itself).allows(flags) and not May(after).allows(flags) for flags in moved)


def _late(question: Question, paddings: list[Padding]) -> tuple[torch.Tensor | None, May, list[int]]:
    """The last token of each row with a prediction before it that is asked for; where the change may show; and which tokens these are.

    The last one: what stands before it may be read in both directions as far as nothing is asked for there (a prompt).
    """
    shape, device = question.leaf.tensor.shape, question.leaf.tensor.device
    shape = (shape[0], shape[2]) if question.axis == 2 else shape[:2]
    counted = torch.ones(shape, dtype=torch.bool, device=device) if question.counted is None else question.counted.to(device)
    for padding in paddings:  # before the words there is nothing to see, and an attention that may see nothing takes all there is
        counted = counted & padding.like_leaf(padding.valid).to(device) if padding.axis < 2 and padding.left else counted
    counted = counted if question.axis else counted.T
    batch, length = counted.shape
    if length < 2:
        return None, May(counted), []
    positions = torch.arange(length, device=device)
    last = torch.where(counted, positions, -1).amax(1)
    last = torch.where(counted.sum(1) == 1, (last + 1).clamp(max=length - 1), last)  # a single one: the token after it
    late = (positions == last[:, None]) & counted.any(1, keepdim=True)
    may = May((positions >= last[:, None]) | ~counted)
    return _laid(late, question.axis), may, last.tolist()


def _laid(flags: torch.Tensor, axis: int) -> torch.Tensor:
    """Flags over samples and positions as an input is laid out that counts its positions along this axis."""
    return flags[:, None] if axis == 2 else flags if axis else flags.T


def _mask(lab: Lab, trace: Trace, found: Found, step: Trace) -> tuple[Op | None, Site | None, int | str]:
    """The operation that applied a mask just before an attention that sees too far, what made the mask, and how far it sees; or what a mask holds that hides nothing."""
    leaves = {key: leaf.tensor for leaf in lab.call.leaves if (key := trace.known_key(leaf.tensor)) is not None}
    reach = triangles.reach_ahead(trace, found.op, leaves)
    if reach is None:
        opened = triangles.opening(trace)
        mine = opened is not None and any(seen.key in trace.ancestors({one.key for one in found.op.ins}) for seen in opened.outs)
        if not mine and (shown := triangles.shown_ahead(trace, found.op, leaves)) is not None:
            return None, mask_made(lab, trace, found.op, shown), triangles.SOME
        if not mine and (idle := triangles.idle_mask(trace, found.op, leaves)) is not None and (made_at := mask_made(lab, trace, *idle[:2])) is not None:
            return idle[0] if idle[0] is not found.op else None, made_at, idle[2]
        return None, trace.site(opened) if opened is not None and mine and opened.place.code is opened.place.user_code else None, 0
    applied = None
    if found.op.name == "softmax" and found.op.ins:
        for op in trace.made_through(found.op.ins[0], ARRANGING | {"div", "div_", "dropout"}):
            applied = op if op.name in _MASKING and op.place.direct else None
    made = {site.span: site for op in triangles.makers(step, reach) if op.place.direct and (site := step.site(op)) is not None}
    if made:
        return applied, next(iter(made.values())) if reach > 0 or len(made) == 1 else None, reach
    masks = [seen for seen in (applied or found.op).ins[1:] if triangles.is_square(seen) and trace.ancestors({seen.key}).isdisjoint(trace.parameters)]
    return applied, mask_made(lab, trace, applied or found.op, masks[0]) if len(masks) == 1 else None, reach
