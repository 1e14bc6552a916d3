"""What is read from the operands of chosen calls while the step runs: lookups, losses, masks.

Values are looked at once, as the call happens; nothing but small facts and copies of token ids is kept.
A watcher never raises into the program: what it cannot read it leaves out.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, field

import torch

from torchsleuth.auditor.laboratory.accelerator import at_hand
from torchsleuth.auditor.losses import distributions, squashed
from torchsleuth.auditor.losses.classaxis import wrong_layer
from torchsleuth.auditor.losses.frames import Measured
from torchsleuth.auditor.losses.magnitudes import above_chance, magnitudes
from torchsleuth.auditor.losses.wholerows import Picked
from torchsleuth.auditor.observation import InputFact, LossCall
from torchsleuth.auditor.observation_parts import Shape, Site
from torchsleuth.auditor.operations.indexed import IndexedWrites
from torchsleuth.auditor.sequences.shifts import Lookup, Shift, shift_of, shift_of_chosen
from torchsleuth.auditor.tracing.beginnings import beginning, maker
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace, tensors_in

LOSSES = {
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss",
    "smooth_l1_loss", "huber_loss", "kl_div", "gaussian_nll_loss", "poisson_nll_loss", "ctc_loss",
}  # fmt: skip
MOST_IDS = 1 << 20
MOST_MASKS = 64
MOST_GOALS = 4


class Refused(Exception):
    """The call was not made: on this device it would end in an assert that no program survives."""


@dataclass
class Watch:
    """The watchers of one traced step and what they saw."""

    trace: Trace
    lookups: list[Lookup] = field(default_factory=list)
    losses: list[tuple[Op, LossCall]] = field(default_factory=list)
    shifts: list[Shift] = field(default_factory=list)
    targets: list[tuple[Op, torch.Tensor, int | None, str]] = field(default_factory=list)
    dense: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # operands of losses that compare number by number
    subtracted: list[torch.Tensor] = field(default_factory=list)  # what predictions are compared with by hand: `(output - goal).abs()`
    picked: list[Picked] = field(default_factory=list)  # labels that `gather` picks log-probabilities for
    packed: list[Measured] = field(default_factory=list)
    aligned: list[Measured] = field(default_factory=list)  # by `ctc_loss`
    answers: list[torch.Tensor] = field(default_factory=list)  # what a loss compares one prediction for each row with, number by number
    inputs: list[InputFact] = field(default_factory=list)
    hidden: list[tuple[Op, torch.Tensor, int]] = field(default_factory=list)  # what masks of attention hide: flags [samples, keys]; and the mask's key
    refuses: bool = False  # stop before a lookup or a loss that would fail on a device other than the CPU
    again: list[LossCall] = field(default_factory=list)  # probabilities that are normalised once more, as scores are
    indexed: IndexedWrites = field(init=False)

    def __post_init__(self) -> None:
        self.indexed = IndexedWrites(self.trace)

    def install(self) -> None:
        add = self.trace.watchers.setdefault
        early = self.trace.early.setdefault
        for name in ("embedding", "embedding_bag"):
            early(name, []).append(self._guarded(self._embedding))
        add("one_hot", []).append(self._guarded(self._one_hot))
        for name in LOSSES:
            early(name, []).append(self._guarded(self._labels))
            add(name, []).append(self._guarded(self._loss))
        for name in ("log_softmax", "logsumexp", "gumbel_softmax"):
            add(name, []).append(self._guarded(self._normalises))
        early("scaled_dot_product_attention", []).append(self._guarded(self._attention))
        early("multi_head_attention_forward", []).append(self._guarded(self._attention))
        for name in ("masked_fill", "masked_fill_"):
            early(name, []).append(self._guarded(self._filled))
        add("gather", []).append(self._guarded(self._chosen))
        add("_pack_padded_sequence", []).append(self._guarded(self._packs))
        for name in ("sub", "__sub__", "__rsub__"):
            add(name, []).append(self._guarded(self._differs))
        for name in ("add", "add_"):
            early(name, []).append(self._guarded(self._added))
        add("__getitem__", []).append(self._guarded(self.indexed.reads))
        for name in ("__setitem__", "index_put_", "index_put", "scatter_", "scatter", "index_copy_"):
            early(name, []).append(self._guarded(self.indexed.writes))

    def _guarded(self, watcher):
        def watch(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
            try:
                with torch.no_grad():
                    watcher(op, args, kwargs, result)
            except Refused:
                raise
            except Exception:  # the program must not notice that we failed to read something
                pass

        return watch

    def _chosen(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        given, index = tensors_in((args, kwargs))[:2]
        source = distributions.activation_of(self.trace, op.ins[0])
        if source is None or source.name != "log_softmax" or not given.requires_grad or given.dim() != 3 or index.shape != (*given.shape[:2], 1) or index.numel() > MOST_IDS:
            return
        if len(self.picked) < MOST_GOALS:
            self.picked.append(Picked(op, at_hand(index).detach().squeeze(-1).clone(), given.shape[2]))
        shift = shift_of_chosen(self.trace, op, source, given.detach(), at_hand(index), [one for one in self.lookups if one.op.name != "one_hot"])
        if shift is not None:
            self.shifts.append(shift)

    def _packs(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if len(self.packed) < MOST_MASKS and len(args) > 1 and isinstance(args[1], torch.Tensor):
            self.packed.append(Measured(op, args[1].detach().clone()))

    def _aligns(self, op: Op, args: tuple, kwargs: dict, given: torch.Tensor) -> None:
        lengths = args[2] if len(args) > 2 else kwargs.get("input_lengths")
        lengths = at_hand(lengths).detach().clone() if isinstance(lengths, torch.Tensor) else torch.tensor(lengths, device="cpu")
        if given.dim() == 3 and lengths.dim() == 1 and len(self.aligned) < MOST_GOALS:
            self.aligned.append(Measured(op, lengths, given.shape[0]))

    def _differs(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        goals = [one for one in args if isinstance(one, torch.Tensor) and not one.requires_grad]
        if len(op.ins) == 2 and len(goals) == 1 and len(self.subtracted) < MOST_GOALS and op.ins[0].size == op.ins[1].size and goals[0].dim() in (2, 3):
            if op.place.direct and goals[0].is_floating_point() and goals[0].numel() <= MOST_IDS:
                self.subtracted.append(goals[0].detach().clone())

    def asked(self) -> list[torch.Tensor]:
        """What the losses compare with."""
        return [target for _, target, _, _ in self.targets] + [target for _, target in self.dense.values()]

    # -- lookups -------------------------------------------------------------------------------

    def _embedding(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        ids = args[0] if args else kwargs["input"]
        table = args[1] if len(args) > 1 else kwargs["weight"]
        if not isinstance(ids, torch.Tensor) or ids.numel() == 0:
            return
        padding_idx = op.argument(2, "padding_idx")
        device, ids = ids.device, at_hand(ids)
        if op.name == "embedding" and ids.dim() == 2 and ids.shape[1] == 1:
            self._piece(op, table.shape[0])
        elif op.name == "embedding" and ids.dim() == 2 and ids.numel() <= MOST_IDS:
            kept = ids.detach().clone()
            self.lookups.append(Lookup(op, kept.to(device), kept, table.shape[0], padding_idx if isinstance(padding_idx, int) else None))
        elif op.name == "embedding" and ids.dim() == 1:
            self._piece(op, table.shape[0])
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= table.shape[0]:
            bad = ((ids < 0) | (ids >= table.shape[0])).nonzero()
            position = tuple(bad[0].tolist())
            value = int(ids[tuple(bad[0])])
            self.inputs.append(
                InputFact(
                    "index-out-of-table", "", f"the indices run from {low} to {high}", value, position, int(table.shape[0]), op.module,
                    self.trace.site(op), int(bad.shape[0]),
                )  # fmt: skip
            )
            self._refuse(table, f"index {value} is out of range for a table of {table.shape[0]} rows")

    def _piece(self, op: Op, rows: int) -> None:
        """One step of a sequence, as a decoder looks it up that goes from token to token: it is the whole that labels are compared with."""
        for made in self.trace.made_through(op.ins[0], ARRANGING):
            whole = self.trace.tensor(made.ins[0].key) if made.ins and len(made.ins[0].size) == 2 and min(made.ins[0].size) > 1 else None
            if whole is not None and whole.numel() <= MOST_IDS and not whole.is_floating_point():
                if not any(known.whole == made.ins[0].key for known in self.lookups):
                    kept = at_hand(whole).detach().clone()
                    self.lookups.append(Lookup(op, kept.to(whole.device), kept, rows, None, made.ins[0].key))
                return

    def _one_hot(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        ids = args[0] if args else kwargs["tensor"]
        if ids.dim() == 2 and 0 < ids.numel() <= MOST_IDS:
            kept = at_hand(ids).detach().clone()
            self.lookups.append(Lookup(op, kept.to(ids.device), kept, result.shape[-1], None))

    def _refuse(self, tensor: torch.Tensor, why: str) -> None:
        if self.refuses and tensor.device.type != "cpu":
            raise Refused(f"{why}; the call was not made, because on {tensor.device.type} it would end in a device-side assert")

    # -- losses --------------------------------------------------------------------------------

    def _labels(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """Class labels against the number of classes, before the loss raises or a device asserts."""
        if op.name not in ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
            return
        given, target = _operands(args, kwargs)
        if op.name.startswith("binary"):
            if target.is_floating_point() and target.numel() and (float(target.min()) < 0 or float(target.max()) > 1):
                value = float(target.max()) if float(target.max()) > 1 else float(target.min())
                self.inputs.append(InputFact("binary-target", "", "", value, site=self.trace.site(op), table=op.name, made=beginning(self.trace, op.ins[1].key)))
            return
        if target.is_floating_point() or target.dtype is torch.bool:
            return
        ignore = _plain_number(op.argument(4, "ignore_index", -100))
        classes = given.shape[1] if given.dim() > 1 else given.shape[0]
        original, target = target, at_hand(target)
        bad = (target != ignore) & ((target < 0) | (target >= classes))
        if bad.any():
            at = bad.nonzero()[0]
            values = tuple(sorted({int(v) for v in target[bad].flatten().tolist()}))[:5]
            self.inputs.append(
                InputFact("label-out-of-range", "", f"the labels run from {int(target.min())} to {int(target.max())}", values[-1], tuple(at.tolist()), int(classes), op.name,
                          self.trace.site(op), int(bad.sum()), beginning(self.trace, op.ins[1].key), lowest=int(target.min()))
            )  # fmt: skip
            self._refuse(original, f"label {values[-1]} is out of range for {classes} classes")

    def _loss(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        given, target = map(at_hand, _operands(args, kwargs))
        if op.name == "ctc_loss":
            self._aligns(op, args, kwargs, given)
        source = distributions.activation_of(self.trace, op.ins[0])
        facts: dict[str, typing.Any] = {"activation": source.name.rstrip("_") if source else "", "activation_site": self.trace.site(source) if source else None}
        facts["scores"] = distributions.layer_site(self.trace, op.ins[0])
        facts |= distributions.of_scores(op.name, given, self.trace, op)
        if op.name == "kl_div":
            facts |= distributions.of_divergence(given, target, bool(kwargs.get("log_target") or (len(args) > 5 and args[5])), self.trace, op)
        facts |= squashed.of_activation(op.name, source, given, target)
        if source is not None and squashed.belongs_not(op.name, source, facts):
            facts["activation_built"], facts["built_inside"] = squashed.built(self.trace, source)
        self._twice(op, source, given)
        classes = facts.pop("classes", None)
        ignore = _plain_number(op.argument(4, "ignore_index", -100)) if classes is not None and not target.is_floating_point() else None
        ignored = int((target == ignore).sum()) if ignore is not None else 0
        reduction = kwargs.get("reduction")
        if reduction is None:
            place = {"cross_entropy": 6, "nll_loss": 6, "binary_cross_entropy_with_logits": 5, "binary_cross_entropy": 5, "ctc_loss": 5}.get(op.name, 4)
            reduction = args[place] if len(args) > place and isinstance(args[place], str) else "mean"
        value = float(result) if isinstance(result, torch.Tensor) and result.numel() == 1 else None
        finite = given.float()
        astray = wrong_layer(self.trace, op.ins[0]) if classes is not None and not target.is_floating_point() and given.dim() > 1 else None
        site = self.trace.site(op)
        if site is None:
            return
        self.losses.append((
            op,
            LossCall(
                op.name, site, value, _shape(given), _shape(target), classes, reduction,
                lowest=float(finite.min()), highest=float(finite.max()),
                spread=float(finite.std()) if finite.numel() > 1 else 0.0,
                weighted=kwargs.get("weight") is not None or kwargs.get("pos_weight") is not None or (len(args) > 2 and args[2] is not None),
                ignore_index=ignore, ignored=ignored, counted=target.numel() - ignored,
                layer=self.trace.site(astray) if astray is not None else None,
                magnitudes=magnitudes(self.trace, op.ins[0], lambda: distributions.factor(self.trace, op.ins[0])) if value is not None and not self.losses and above_chance(op.name, classes, value) else (),
                **facts,
            ),
        ))  # fmt: skip
        if classes is None and reduction != "none" and given.shape == target.shape and given.dim() in (2, 3) and given.numel() <= MOST_IDS:
            self.dense[id(op)] = (given.detach().clone(), target.detach().clone())
        if classes is None and target.dim() in (1, 2) and target.numel() <= MOST_IDS:
            self.answers.append(target.detach().clone())
        if op.name in ("cross_entropy", "nll_loss") and not target.is_floating_point():
            self.targets.append((op, target.detach().clone(), ignore, reduction))
            # Numbers are made one hot of labels, too: only those count that the predictions are made of.
            before = self.trace.ancestors({op.ins[0].key}) if any(one.op.name == "one_hot" for one in self.lookups) else set()
            shift = shift_of(self.trace, op, given, target, ignore, [one for one in self.lookups if one.op.name != "one_hot" or one.op.outs[0].key in before])
            if shift is not None:
                self.shifts.append(shift)

    def _twice(self, loss: Op, source: Op | None, given: torch.Tensor) -> None:
        """`sigmoid(sigmoid(x))`, or `softmax(softmax(x)).log()`, in front of a loss that takes the outer one."""
        if loss.name == "nll_loss":
            chain = list(self.trace.made_through(loss.ins[0], distributions.KEEPING | distributions.LOGS))
            source = chain[-1] if chain else None
        elif loss.name != "binary_cross_entropy":
            return
        before = squashed.twice(lambda seen: distributions.activation_of(self.trace, seen), source)
        site = self.trace.site(source) if source is not None else None
        if source is not None and before is not None and site is not None:
            made, inside = squashed.built(self.trace, before)
            low, high = (float(end.float().logit()) for end in (given.min(), given.max())) if source.name == "sigmoid" else (0.0, 0.0)
            self.again.append(LossCall(source.name, site, None, Shape(source.ins[0].size, str(source.ins[0].dtype).removeprefix("torch.")), None, None, "", lowest=low, highest=high,
                                       activation=before.name, activation_site=self.trace.site(before), activation_built=made, built_inside=inside))  # fmt: skip

    def _normalises(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`log_softmax(p)`, `gumbel_softmax(p)`, or `p - p.logsumexp(-1)` as `Categorical(logits=p)` has it, of the result of a softmax."""
        source, site = distributions.activation_of(self.trace, op.ins[0]), self.trace.site(op)
        dim = op.argument(1 if op.name != "gumbel_softmax" else 4, "dim", -1)
        if source is None or source.name != "softmax" or site is None or not result.requires_grad or not isinstance(dim, int):
            return
        given = at_hand(tensors_in((args, kwargs))[0])
        if given.shape[dim] > 1 and float((given.float().sum(dim) - 1).abs().max()) < distributions.CLOSE:
            self.again.append(
                LossCall(op.name, site, None, _shape(given), None, None, "", lowest=float(given.min()), highest=float(given.max()), activation=source.name,
                         activation_site=self.trace.site(source), rows_sum_to_one=True)
            )  # fmt: skip

    def _attention(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """A floating point mask of zeros and ones, which attention adds to its scores."""
        masks = [kwargs.get("attn_mask"), kwargs.get("key_padding_mask")]
        if op.name == "scaled_dot_product_attention" and len(args) > 3:
            masks.append(args[3])
        self._hides(op, kwargs.get("key_padding_mask") if op.name != "scaled_dot_product_attention" else None, False)
        self._hides(op, kwargs.get("attn_mask", args[3] if len(args) > 3 else None) if op.name == "scaled_dot_product_attention" else None, True)
        for mask in masks:
            if isinstance(mask, torch.Tensor) and mask.is_floating_point() and mask.numel() > 1:
                if bool(((mask == 0) | (mask == 1)).all()) and bool((mask == 1).any()) and bool((mask == 0).any()):
                    name = "key_padding_mask" if mask is kwargs.get("key_padding_mask") else "attn_mask"
                    text = f"`{name}` of `{op.name}` is {str(mask.dtype).removeprefix('torch.')} and holds only 0 and 1: it is added to the scores and hides nothing"
                    self.inputs.append(InputFact("additive-mask", name, text, site=self.trace.site(op), made=self._mask_made(op, mask)))

    def _mask_made(self, op: Op, mask: torch.Tensor) -> Site | None:
        """Where the program made it, if that is another expression than the call that it was given to."""
        made = maker(self.trace, self.trace.known_key(mask))
        here = (op.place.user_code, op.place.user_offset)
        return self.trace.site(made) if made is not None and made.place.user_code is not None and (made.place.user_code, made.place.user_offset) != here else None

    def _filled(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`scores.masked_fill(mask, -inf)`: True hides."""
        value = args[2] if len(args) > 2 else kwargs.get("value")
        if isinstance(value, (int, float)) and value < -1e3 and op.place.direct:
            self._hides(op, args[1] if len(args) > 1 else kwargs.get("mask"), False)

    def _added(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`scores + mask`: numbers far below zero hide."""
        given = [one for one in args if isinstance(one, torch.Tensor)]
        if not op.place.direct or len(given) != 2:
            return
        scores, mask = given if given[0].requires_grad or given[0].dim() > given[1].dim() else given[::-1]
        if scores.dim() > 1 and mask.is_floating_point() and not mask.requires_grad and 1 < mask.numel() <= MOST_IDS and mask.shape[-1] == scores.shape[-1]:
            if bool((mask < -1e3).any()):
                self._hides(op, mask, False)

    def _hides(self, op: Op, mask: typing.Any, keeps: bool) -> None:
        """Notes which keys (the last axis) of which samples (the first) an attention's mask hides. `keeps`: True stands for a key that is kept."""
        if not isinstance(mask, torch.Tensor) or mask.dim() < 2 or mask.numel() > MOST_IDS or len(self.hidden) >= MOST_MASKS:
            return
        key = self.trace.known_key(mask)
        mask = mask.detach()
        hidden = (mask < -1e3) if mask.is_floating_point() else (~mask if keeps else mask) if mask.dtype is torch.bool else None
        if hidden is None:
            return
        while hidden.dim() > 2:
            hidden = hidden.all(1)  # hidden from every head and query
        self.hidden.append((op, hidden.clone(), -1 if key is None else key))


def _operands(args: tuple, kwargs: dict) -> tuple[torch.Tensor, torch.Tensor]:
    given = args[0] if args else kwargs["input"] if "input" in kwargs else kwargs["log_probs"]
    target = args[1] if len(args) > 1 else kwargs["target"] if "target" in kwargs else kwargs["targets"]
    return given, target


def _plain_number(value: typing.Any) -> int:
    return value if isinstance(value, int) else -100


def _shape(tensor: torch.Tensor) -> Shape:
    return Shape(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
