"""The tensors that went into the failing call: names, shapes, source expressions and origins, as facts."""

from __future__ import annotations

import ast
import dataclasses
import functools
import typing
from collections import Counter
from dataclasses import dataclass

import torch

from torchsleuth import source
from torchsleuth.capture.arguments import Call, Given, call_at, checked_values, holds_tensors, is_helper, schema_names
from torchsleuth.capture.attributes import kept_as_plain_attribute
from torchsleuth.capture.autocast import lowered
from torchsleuth.capture.divided_sizes import divided_with_rest
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry, Failure, is_module_call
from torchsleuth.capture.makers import module_made, owner_of
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.paths import Paths
from torchsleuth.capture.plain_arguments import PlainArguments
from torchsleuth.capture.returns import UNSEEN
from torchsleuth.capture.trails import SizeChoice, Trails, mark_of, property_choice
from torchsleuth.capture.unowned import unowned
from torchsleuth.evidence import Place, TensorFact
from torchsleuth.evidence_forward import Made, Operand, SizeOrigin
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of
from torchsleuth.probe.tensors import dtype_name, storage_of, tensor_fact
from torchsleuth.record.oplog import Mark

_MOST_OPERANDS = 40


@dataclass
class Raw:
    """A tensor operand while it is being found out about: live, or known from the log, or recomputed."""

    argument: str
    node: ast.AST | None
    entry: Entry | None
    tensor: torch.Tensor | None
    mark: Mark | None
    known: Known = Known.OBSERVED
    element: int | str | None = None  # its position in a list, or its key in a `**` dict
    recomputed: bool = False  # `tensor` was computed again, or only its shape: not the tensor that was there
    device: str = ""  # of what was recomputed

    @property
    def live(self) -> torch.Tensor | None:
        """The very tensor that went into the call, where it is still there."""
        return None if self.recomputed else self.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        if self.mark is not None:
            return self.mark.shape
        return tuple(self.tensor.shape) if self.tensor is not None else ()

    @property
    def dtype(self) -> torch.dtype | None:
        return self.mark.dtype if self.mark is not None else self.tensor.dtype if self.tensor is not None else None


class Gathering(PlainArguments):
    """Finds the operands of one failure. `raws` and `plain` are what the torch call was given."""

    def __init__(self, failure: Failure, origins: Origins) -> None:
        self.failure = failure
        self.origins = origins
        self._names = failure.crash.names
        self.paths = Paths(failure)
        below = failure.torch_entries[0] if failure.torch_entries else None
        self.logged = failure.operation.name if failure.operation is not None else failure.recorded
        self.program_call = call_at(failure.program, below, self.logged)
        self.inner_call, self.raised_in_python = self._inner()
        self.program_raws = self._flattened(self.program_call.given if self.program_call else (), failure.program)
        if self.inner_call is None:
            self.raws = self._with_log(self.program_raws)
        else:
            self.raws = self._flattened(self.inner_call.given, self.inner_call.entry)
            self.raws = [raw for raw in self.raws if raw.tensor is not None]
            self._lend_sources(self.program_raws, forget=True)
            self._lend_arguments()
            if not self.raws:
                self.raws = self._with_log(self.program_raws)
        if failure.user is not None and failure.user is not failure.program:
            self._lend_sources(self._user_raws, forget=False)
        self._settle()

    # -- finding --------------------------------------------------------------------------------

    def _inner(self) -> tuple[Call | None, bool]:
        """torch's own innermost call with tensors in it, and whether its Python code raised after a check."""
        raised = bool(self.failure.torch_entries) and self.failure.inner.raises_itself
        entries = self.failure.torch_entries
        cut = next((position for position, entry in enumerate(entries) if _is_internal(entry)), len(entries))
        entries = entries[:cut]
        for position in range(len(entries) - 1, -1, -1):
            entry = entries[position]
            if is_module_call(entry):
                continue
            below = entries[position + 1] if position + 1 < len(entries) else None
            if entry.raises_itself or is_helper(entry):
                given = checked_values(entry)
                if any(holds_tensors(item.value) for item in given) and not is_helper(entry):
                    return Call(entry.code.co_name, entry, given), raised
                continue
            call = call_at(entry, below)
            if call is not None and any(holds_tensors(item.value) for item in call.given):
                if below is not None and is_helper(below):  # the helper complains about this function's own arguments
                    own = checked_values(entry)
                    if any(holds_tensors(item.value) for item in own):
                        return Call(entry.code.co_name, entry, own), raised
                return call, raised
            given = checked_values(entry)
            if any(holds_tensors(item.value) for item in given):
                return Call(entry.code.co_name, entry, given), raised
        return None, raised

    def _flattened(self, given: typing.Iterable[Given], entry: Entry) -> list[Raw]:
        found: list[Raw] = []
        starred = Counter[int]()
        for item in given:
            before = len(found)
            self._add(found, item.name, item.node, item.value, entry, item.recomputed)
            if isinstance(item.node, ast.Starred) and item.value is not UNKNOWN:  # `f(*args)`: one of the arguments is `args[k]`
                for raw in found[before:]:
                    raw.element = starred[id(item.node)] if raw.element is None else raw.element
                starred[id(item.node)] += 1
            if item.key is not None:
                for raw in found[before:]:
                    raw.element = item.key if raw.element is None else raw.element
        return found[:_MOST_OPERANDS]

    def _add(
        self, found: list[Raw], name: str, node: ast.AST | None, value: typing.Any, entry: Entry, recomputed: bool, depth: int = 3
    ) -> None:
        if isinstance(value, torch.Tensor):
            recomputed = recomputed or entry.evaluator.is_recomputed(value)  # one of a list's, `[rows[index], x]`
            known = Known.RECOMPUTED if recomputed else Known.OBSERVED
            mark = None if recomputed else self._mark(value)
            device = entry.evaluator.device_of(value) if recomputed else ""
            found.append(Raw(name, node, entry, value, mark, known, None, recomputed, device))
        elif isinstance(value, (list, tuple)) and depth and holds_tensors(value):
            elements = node.elts if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == len(value) else None
            for position, inner in enumerate(value):
                before = len(found)
                self._add(found, f"{name}[{position}]", elements[position] if elements else node, inner, entry, recomputed, depth - 1)
                if not elements:
                    for raw in found[before:]:
                        raw.element = position if raw.element is None else raw.element
        elif value is UNKNOWN and self.logged:
            found.append(Raw(name, node, entry, None, None))  # to be filled from the log, or dropped

    def _mark(self, tensor: torch.Tensor) -> Mark | None:
        if self.failure.operation is not None:
            for mark in self.failure.operation.operands:
                if mark.ident == id(tensor):
                    return mark
        return mark_of(tensor)

    def _with_log(self, raws: list[Raw]) -> list[Raw]:
        """Fill in temporaries from the log, in the order in which the call was given its tensors."""
        operation = self.failure.operation
        if operation is None:
            return [raw for raw in raws if raw.tensor is not None]
        marks = self._without_index(list(operation.operands))
        if not raws:
            return [Raw(name, None, None, None, mark) for name, mark in zip(self._log_names(len(marks)), marks)]
        known = {id(raw.tensor): raw for raw in raws if raw.live is not None}
        rest = [mark for mark in marks if mark.ident not in known]
        open_ = [raw for raw in raws if id(raw.tensor) not in known]
        if len(open_) == len(rest):
            for raw, mark in zip(open_, rest):
                raw.mark, raw.known = mark, Known.OBSERVED
        elif len(open_) == 1 and rest and _takes_several(open_[0].node):
            position = raws.index(open_[0])
            lead = open_[0]
            items = _written_out(lead.node, len(rest))
            raws[position : position + 1] = [
                Raw(f"{lead.argument}[{k}]", items[k] if items else lead.node, lead.entry, None, mark, element=None if items else k)
                for k, mark in enumerate(rest)
            ]
        else:
            likely = [raw for raw in open_ if raw.tensor is not None] or [raw for raw in open_ if not _looks_plain(raw.node)]
            if len(likely) == len(rest):
                for raw, mark in zip(likely, rest):
                    raw.mark, raw.known = mark, Known.OBSERVED
            elif rest and not likely:
                self._name_as_logged(marks, known)
                raws += [Raw(name, None, None, None, mark) for name, mark in zip(self._log_names(len(marks)), marks) if mark.ident not in known]
        return [raw for raw in raws if raw.tensor is not None or raw.mark is not None]

    def _name_as_logged(self, marks: list[Mark], known: dict[int, Raw]) -> None:
        """`functional_call(model, params, (x,))` is not the operation that failed: what is its `args[0]` is the operation's `input`."""
        for name, mark in zip(schema_names(self.logged), marks):
            if mark.ident in known:
                known[mark.ident].argument = name

    def _without_index(self, marks: list[Mark]) -> list[Mark]:
        """`x[rows] = values`: the log has the tensors of the index between the two that the syntax gives here; `x[rows]`: behind it."""
        node, evaluator = self.failure.program.node, self.failure.program.evaluator
        if self.logged == "__getitem__" and isinstance(node, ast.Subscript):
            return marks[:1]
        if self.logged != "__setitem__" or not isinstance(node, ast.Subscript) or len(marks) < 2:
            return marks
        index = [evaluator.value(item) for item in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
        known = all(item is not UNKNOWN and not isinstance(item, (list, tuple)) for item in index)
        return [marks[0], *marks[1 + sum(isinstance(item, torch.Tensor) for item in index) :]] if known else marks

    def _log_names(self, count: int) -> list[str]:
        names = list(schema_names(self.logged))[:count]
        return names + [f"operand {position + 1}" for position in range(len(names), count)]

    def _lend_sources(self, lenders: list[Raw], forget: bool) -> None:
        """torch's (or a library's) frame knows the tensors; the expression for the same tensor further out is the user's."""
        by_id = {id(raw.tensor): raw for raw in lenders if raw.tensor is not None}
        by_id.update({raw.mark.ident: raw for raw in lenders if raw.mark is not None})
        for raw in self.raws:
            ident = id(raw.tensor) if raw.tensor is not None else raw.mark.ident if raw.mark is not None else 0
            lender = by_id.get(ident)
            if lender is None and forget:
                lender = self._same_memory(raw, lenders) or self._same_argument(raw, lenders)
                if lender is not None:  # what the user gave, not what torch made of it
                    raw.tensor, raw.mark, raw.known = lender.tensor, lender.mark, lender.known
                    raw.recomputed, raw.device = lender.recomputed, lender.device
            if lender is None and not forget:  # a library handed on a view that looks the same
                lender = self._same_memory(raw, lenders)
                lender = lender if lender is not None and lender.shape == raw.shape and lender.dtype == raw.dtype else None
            if lender is not None:
                raw.node, raw.entry, raw.element = lender.node, lender.entry, lender.element
            elif forget:
                raw.node, raw.entry = None, None

    def _lend_arguments(self) -> None:
        """A constructor of torch's checks what it has made of its own arguments: `Normal(mean, self.log_std(h))` its `scale`."""
        call, built = self.failure.program.node, self.failure.torch_entries[0].code
        if not isinstance(call, ast.Call) or built.co_name != "__init__" or self.failure.inner.code.co_name != "__init__":
            return
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return
        given = dict(zip(built.co_varnames[1 : built.co_argcount], call.args)) | {keyword.arg: keyword.value for keyword in call.keywords}
        for raw in self.raws:
            if raw.node is None and raw.argument in given:
                raw.node, raw.entry = given[raw.argument], self.failure.program

    def _same_memory(self, raw: Raw, lenders: list[Raw]) -> Raw | None:
        """torch's code made a view of an argument.

        Only one with the argument's own sizes (transposed, unsqueezed): what `nn.Flatten` inside of a Sequential hands
        on is another tensor to its reader, with other sizes.
        """
        if raw.tensor is None:
            return None
        storage = storage_of(raw.tensor)
        same = [lender for lender in lenders if lender.tensor is not None and storage and storage_of(lender.tensor) == storage]
        same = [lender for lender in same if _real_sizes(lender.shape) == _real_sizes(raw.shape)]
        return same[0] if len(same) == 1 else None

    def _same_argument(self, raw: Raw, lenders: list[Raw]) -> Raw | None:
        """torch's code converted an argument (a boolean mask to an additive one, say): same name, same shape.

        What the innermost module was given by another one (the second layer of a Sequential, by the first) is no argument of the
        program's; only masks are handed on converted.
        """
        alike = next((lender for lender in lenders if lender.argument == raw.argument and lender.shape == raw.shape), None)
        innermost = next((entry for entry in reversed(self.failure.torch_entries) if is_module_call(entry)), None)
        if alike is None or innermost is None or "mask" in raw.argument:
            return alike
        scope = locals_of(innermost.frame)
        received = (*scope.get("args", ()), *scope.get("kwargs", {}).values())
        return alike if any(value is alike.tensor for value in received) else None

    @functools.cached_property
    def _user_raws(self) -> list[Raw]:
        """The tensors in the user's own call, where the failure is deep inside a library."""
        user = self.failure.user
        if user is None or user is self.failure.program:
            return []
        call = call_at(user, self.failure.entries[user.position + 1])
        return [] if call is None else [raw for raw in self._flattened(call.given, user) if raw.tensor is not None]

    def _settle(self) -> None:
        for raw in self.raws:
            if raw.argument == "" and len(self.raws) > 1:
                raw.argument = f"operand {self.raws.index(raw) + 1}"
            raw.argument = raw.argument or "input"

    # -- facts ----------------------------------------------------------------------------------

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(self.operand(raw) for raw in self.raws)

    def operand(self, raw: Raw) -> Operand:
        fact = self._fact(raw)
        mark = raw.mark
        made, chain, formed, input_made, input_sizes, sizes, dtype_made, device_made = None, (), None, None, (), (), None, None
        origins = self.origins
        if fact.kind in ("parameter", "buffer") and mark is not None:
            made = origins.of_parameter(mark)
            if made is None and raw.node is not None and raw.entry is not None:
                made = origins.definitions.made(raw.entry, raw.node)
            made = made or self._module_attribute(raw)
            sizes, device_made = _all_axes(raw.shape, made), origins.device_of_parameter(mark)
            if made is not None and made.place.known is Known.OBSERVED:
                sizes = tuple(SizeOrigin(k, n, origins.of_parameter(mark, n, k) or made) for k, n in enumerate(raw.shape))
        elif mark is not None and origins.log_reaches:
            made = origins.tensor(mark)
            chain, formed = origins.chain(mark), origins.formed(mark)
            input_made, input_sizes = origins.input(mark)
            sizes = tuple(origin for axis in range(len(raw.shape)) if (origin := origins.size_origin(mark, axis)) is not None)
            dtype_made, device_made = origins.property(mark, "dtype"), origins.property(mark, "device")
        if raw.entry is not None and raw.entry.origin is Origin.USER and raw.node is not None:
            # The log begins inside of a library, which was handed a tensor that had come into being unseen.
            unseen = [made is not None and made.place.in_library, dtype_made is not None and dtype_made.place.in_library]
            own = origins.definitions.made(raw.entry, raw.node) if any(unseen) and fact.kind not in ("parameter", "buffer") else None
            if own is not None:
                made = own if unseen[0] else made
                dtype_made = own if unseen[1] else dtype_made
            if dtype_made is not None and raw.element is None and _is_part_of(dtype_made.place, self._place(raw.node, raw.entry)):
                # `X[:8]` of an `X` that came into being unseen: the syntax may lead further than the log.
                dtype_made = Trails(origins.definitions).follow(raw.entry, raw.node, property_choice("dtype")) or dtype_made
        if made is None and raw.live is not None:
            made = origins.of_live(raw.live) if raw.live.grad_fn is not None else None
        if made is None and raw.node is not None and raw.entry is not None:
            made = origins.definitions.made(raw.entry, raw.node) if raw.element is None else origins.definitions.element_made(raw.entry, raw.node)
        if not sizes and made is not None and made.place.known is Known.INFERRED and made.operation not in UNSEEN:
            trails, entry, node = Trails(origins.definitions, origins.loaders), raw.entry, raw.node
            if raw.element is None and entry is not None and node is not None:
                sizes = tuple(
                    SizeOrigin(axis, size, trails.follow(entry, node, SizeChoice(axis)) or made) for axis, size in enumerate(raw.shape)
                )
                dtype_made = trails.follow(entry, node, property_choice("dtype"))
                device_made = trails.follow(entry, node, property_choice("device"))
        if not sizes and made is not None:
            sizes = _all_axes(raw.shape, made)
            if not origins.log_reaches and raw.shape and raw.element is None and raw.node is not None and raw.entry is not None and fact.kind not in ("parameter", "buffer"):
                # The line that computed it did not choose the number of samples: the loader behind the loop did.
                loader = Trails(origins.definitions, origins.loaders).follow(raw.entry, raw.node, SizeChoice(0))
                sizes = (SizeOrigin(0, raw.shape[0], loader), *sizes[1:]) if loader is not None and loader.operation == "DataLoader" else sizes
        return Operand(
            raw.argument,
            self._expression(raw),
            # `**batch` is no expression for one of its tensors
            self._place(raw.node, raw.entry) if raw.node is not None and raw.entry is not None and type(raw.element) is not str else None,
            fact,
            raw.known,
            _is_contiguous(raw),
            made,
            chain,
            formed,
            input_made,
            input_sizes,
            origins.turned(mark) if mark is not None and origins.log_reaches else None,
            sizes,
            dtype_made or made,
            origins.promoted(mark) if mark is not None and origins.log_reaches and fact.kind not in ("parameter", "buffer") else None,
            device_made or made,
            lowered=lowered(self.failure, origins, mark) if mark is not None and origins.log_reaches and fact.kind not in ("parameter", "buffer") else None,
            divided=divided_with_rest(origins, mark) if mark is not None and origins.log_reaches and input_made is not None else (),
            kept=self._kept(raw) if fact.kind not in ("parameter", "buffer") else unowned(self.failure, origins.definitions, raw.live),
        )

    def _kept(self, raw: Raw) -> Made | None:
        found = kept_as_plain_attribute(raw.entry.evaluator.value, raw.node) if raw.entry is not None else None
        place = source.place_of_node(*found, Known.INFERRED) if found is not None else None
        return Made("attribute", place) if place is not None else None

    def _module_attribute(self, raw: Raw) -> Made | None:
        """A parameter of a module that the log did not see being made: the `self.fc = nn.Linear(…)` in its owner's class."""
        return module_made(self.failure, self.origins.definitions, owner_of(self.failure, raw.tensor))

    def _fact(self, raw: Raw) -> TensorFact:
        if raw.live is not None:
            if id(raw.live) in self.paths.tensors:
                return tensor_fact(raw.live, *self.paths.tensors[id(raw.live)])
            fact = self._names.fact(raw.live)
            # A saved transpose is its owner to a reader of backward; an operand has the shape it went in with.
            return fact if fact.shape == tuple(raw.live.shape) else tensor_fact(raw.live, view_of=fact.name)
        if raw.mark is not None:
            mark = raw.mark
            named = self._names.by_id(mark.ident)
            name, kind = (named.name, named.kind) if named is not None and tuple(named.tensor.shape) == mark.shape else ("", "")
            return TensorFact(
                name, mark.shape, dtype_name(mark.dtype), str(mark.device), mark.requires_grad, mark.is_leaf, kind
            )
        fact = tensor_fact(raw.tensor)  # type: ignore[arg-type]
        return dataclasses.replace(fact, device=raw.device) if raw.device else fact

    def _expression(self, raw: Raw) -> str:
        if raw.node is None or raw.entry is None:
            return ""
        text = self._text(raw.node, raw.entry)
        if isinstance(raw.node, ast.Starred):
            text = self._text(raw.node.value, raw.entry) if raw.element is not None else text
        return f"{text}[{raw.element!r}]" if raw.element is not None else text

    def _text(self, node: ast.AST, entry: Entry) -> str:
        return source.text_of(entry.code.co_filename, source.node_range(entry.code.co_filename, node))

    def _place(self, node: ast.AST, entry: Entry) -> Place | None:
        via = None
        user = self.failure.user
        if entry.origin is Origin.LIBRARY and user is not None and user is not entry:
            via = user.place()
        return source.place_of_node(entry.code, node, Known.OBSERVED, via)

    def user_call(self) -> tuple[Operand, ...]:
        """Tensors of the program's own call, and of the user's around it, that the torch call was not given as they are."""
        seen = {id(raw.tensor) for raw in self.raws}
        self.call_raws: list[Raw] = []
        for raw in (*self.program_raws, *self._user_raws):
            if raw.tensor is not None and id(raw.tensor) not in seen:
                seen.add(id(raw.tensor))
                self.call_raws.append(raw)
        return tuple(self.operand(raw) for raw in self.call_raws)


def _is_internal(entry: Entry) -> bool:
    """Below the public functions (`torch/_refs`, `torch/_prims_common`, `torch/_meta_registrations.py`, …)."""
    parts = entry.code.co_filename.replace("\\", "/").split("/torch/")[-1].split("/")
    return parts[0].startswith("_") and parts[0] not in ("_tensor.py", "_jit_internal.py")


def _real_sizes(shape: tuple[int, ...]) -> list[int]:
    return sorted(size for size in shape if size != 1)


def _all_axes(shape: tuple[int, ...], made: Made | None) -> tuple[SizeOrigin, ...]:
    return tuple(SizeOrigin(axis, size, made) for axis, size in enumerate(shape)) if made is not None else ()


def _is_part_of(place: Place, whole: Place | None) -> bool:
    one, other = place.span, whole.span if whole is not None else None
    return other is not None and one.file == other.file and (other.line, other.column) <= (one.line, one.column) and (one.end_line, one.end_column) <= (other.end_line, other.end_column)


def _is_contiguous(raw: Raw) -> bool:
    try:
        if raw.live is not None:
            return raw.live.is_contiguous()
        if raw.mark is not None and raw.mark.strides:
            return torch.empty_strided(raw.mark.shape, raw.mark.strides, device="meta").is_contiguous()
    except Exception:
        pass
    return True


def _takes_several(node: ast.AST | None) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Starred, ast.Name, ast.Call, ast.Attribute, ast.Subscript))


def _written_out(node: ast.AST | None, count: int) -> list[ast.expr]:
    """The items of `[a, f(b)]`, where each is one of the operands."""
    if not isinstance(node, (ast.List, ast.Tuple)) or len(node.elts) != count or any(isinstance(item, ast.Starred) for item in node.elts):
        return []
    return list(node.elts)


def _looks_plain(node: ast.AST | None) -> bool:
    return isinstance(node, (ast.Constant, ast.JoinedStr, ast.Dict, ast.Lambda)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    )
