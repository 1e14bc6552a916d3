"""A torch call that raised: what it is, what it was given, and where the sizes and values came from."""

from __future__ import annotations

import ast
import dataclasses
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.all_labels import with_dataset
from torchsleuth.capture.configured import sizes_configured
from torchsleuth.capture.cut_short import cut_short
from torchsleuth.capture.earlier_inputs import taken_before
from torchsleuth.capture.embedded import OTHER_PROCESSES, Embedded, embedded, innermost
from torchsleuth.capture.entered import entered
from torchsleuth.capture.failure import Entry, Failure, container_of, is_module_call
from torchsleuth.capture.foreign import foreign
from torchsleuth.capture.intakes import computed_from
from torchsleuth.capture.investigations import device, refusal
from torchsleuth.capture.makers import module_made
from torchsleuth.capture.mapping import mapping
from torchsleuth.capture.not_finite import with_causes
from torchsleuth.capture.operands import Gathering, Raw
from torchsleuth.capture.optimized import no_parameters
from torchsleuth.capture.origins import Origins
from torchsleuth.capture.ranges import Limits, limits, measured
from torchsleuth.capture.results import results_unpacked
from torchsleuth.capture.samples import sample_made, sample_words, worker_samples
from torchsleuth.capture.subscripts import index_items
from torchsleuth.capture.traced import traced_layer, traced_name, traced_operands, traced_origin
from torchsleuth.capture.trails import Trails, mark_of, value_choice
from torchsleuth.capture.unpacked import unpacked
from torchsleuth.capture.value_origins import VALUE_COPIES, Locate, ValueOrigins, without_copy
from torchsleuth.capture.values import BLANK, COPIES
from torchsleuth.evidence import Place
from torchsleuth.evidence_forward import BadValue, FailedOperation, Made, Operand, SizeOrigin
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of
from torchsleuth.probe.tensors import storage_of
from torchsleuth.record.oplog import Mark

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def investigate(crash: Crash) -> FailedOperation | None:
    if device.kind_of(crash.message):
        # The frames of the traceback only noticed that the GPU has stopped. Without a recorded culprit they still tell
        # which operation a library of the GPU's has refused.
        found = device.recovered(crash)
        if found is not None or device.kind_of(crash.message) not in ("cublas", "cudnn"):
            return found
    wrapped = embedded(crash.error)
    if wrapped is not None:
        return _from_text(crash, wrapped)
    failure = Failure.of(crash)
    if failure is None:
        return refusal.investigate(crash)
    place = failure.place()
    if place is None:
        return None
    origins = Origins(failure)
    gathering = Gathering(failure, origins)
    name = _name(failure, gathering)
    items, index_raws = index_items(gathering, failure.program) if failure.is_direct else ((), [])
    if items:
        gathering.raws = [*gathering.raws[:1], *index_raws, *(raw for raw in gathering.raws[1:] if raw.argument == "value")]
        gathering.__dict__.pop("operands", None)
    container, container_made = _container(crash, failure, gathering)
    arguments = gathering.arguments()
    operands = list(gathering.operands)
    call_operands = gathering.user_call() if not container else ()
    for limit in limits(name, gathering.raws, arguments, items, crash.message):
        operands[limit.position] = _with_values(operands[limit.position], gathering, limit)
        call_operands = _with_carried(call_operands, operands[limit.position], gathering, limit)
    module = _module(failure)
    computed = computed_from(origins, module, operands)
    mapped = mapping(failure, origins.definitions)
    return FailedOperation(
        name,
        place,
        with_causes(gathering, operands, crash.message),
        arguments,
        items,
        call_operands,
        gathering.paths.modules.get(id(module), ""),
        type(module).__name__ if module is not None else "",
        _module_made(failure, origins, module),
        _module_sizes(origins, module),
        computed.numbers,
        computed.not_counted,
        type(crash.error).__name__,
        crash.message,
        "vmap" if mapped is not None and mapped.within else "",
        sample_words(failure) or origins.loaders.smaller_batch,
        sample_made(failure, [raw.tensor for raw in gathering.raws if raw.live is not None]),
        failure.operation is not None,
        gathering.raised_in_python,
        container=container,
        container_made=container_made,
        config=sizes_configured(failure),
        training=module.training if module is not None else None,
        fitting=computed.fitting,
        both_directions=bool(operands) and _both_directions(failure, operands[0]),
        foreign=foreign(failure, gathering, origins),
        mapped=mapped,
        took=taken_before(failure, module),
        cut_short=cut_short(failure),
        no_parameters=no_parameters(failure, origins.definitions, crash.message),
        entered=entered(failure),
    )


def _both_directions(failure: Failure, operand: Operand) -> bool:
    """Its last size comes from the call of a recurrent layer that reads in both directions."""
    made = operand.origin_of(-1) if operand.shape else None
    entry = failure.program
    if made is None:
        return False
    if made.operation in ("lstm", "gru", "rnn_tanh", "rnn_relu"):  # the log has seen it: which of the layers has that size?
        layers = [module for _, root in failure.crash.names.modules for module in root.modules() if isinstance(module, torch.nn.RNNBase)]
        fitting = {bool(layer.bidirectional) for layer in layers if layer.hidden_size * (1 + bool(layer.bidirectional)) == operand.shape[-1]}
        return fitting == {True}
    if source.display_name(entry.code.co_filename) != made.place.span.file:
        return False
    span = made.place.span
    call = source.expression_at(entry.code.co_filename, (span.line, span.column - 1, span.end_line, span.end_column - 1))
    layer = entry.evaluator.value(call.func) if isinstance(call, ast.Call) else None
    return isinstance(layer, torch.nn.RNNBase) and bool(layer.bidirectional)


def _name(failure: Failure, gathering: Gathering) -> str:
    """The operation as its documentation calls it."""
    inner = failure.inner
    if inner.code.co_name == "__init__" and inner.origin is Origin.TORCH:
        made = locals_of(inner.frame).get("self")
        return type(made).__name__ if made is not None else "__init__"
    if failure.operation is not None:
        name = failure.operation.name
        if name in ("__getitem__", "__setitem__"):
            return name
        for home in ("linalg", "fft", "special"):
            name = f"{home}.{name.removeprefix(home + '_')}" if name.startswith(home + "_") else name
        return name.removeprefix("__").removesuffix("__")
    own = gathering.program_call
    if own is not None and own.is_torchs:
        return own.name
    call = gathering.inner_call
    if call is not None:
        if call.entry.code.co_filename.endswith("functional.py") and not call.entry.code.co_name.startswith("_"):
            return call.entry.code.co_name
        return {"cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll_loss"}.get(call.name, call.name)
    if gathering.program_call is not None:
        return gathering.program_call.name
    return ""


def _with_values(operand: Operand, gathering: Gathering, limit: Limits) -> Operand:
    values = with_dataset(measured(gathering.raws, limit), gathering.failure)
    if values is None:
        return operand
    raw = gathering.raws[limit.position]
    made, whence = None, ValueOrigins(gathering.failure, gathering.origins)
    held = (raw.entry, raw.node, values.first[0]) if values.bad and raw.entry is not None and raw.node is not None and raw.element is None else None
    if values.bad and raw.mark is not None and gathering.origins.log_reaches:
        made = whence.value(raw.mark, values.first[0], _badness(gathering, limit), held)
    if made is None and held is not None and not gathering.origins.log_reaches:
        made = Trails(gathering.origins.definitions).follow(*held[:2], value_choice(VALUE_COPIES))
        given = whence.by_syntax(*held)
        if given is not None and (made is None or made.operation in BLANK or not made.complete and made.operation not in COPIES):
            made = given  # not the call of some function that returned it, nor of what was written over
        elif made is not None and made.given is None:
            made = dataclasses.replace(made, given=given)
    return dataclasses.replace(operand, values=values, value_made=without_copy(made or operand.made))


def _badness(gathering: Gathering, limit: Limits) -> Locate:
    """Where a tensor of the log, if it still lives, holds a bad value too."""
    names = gathering.failure.crash.names

    def locate(mark: Mark) -> BadValue | typing.Literal[False] | None:
        named = names.by_id(mark.ident)
        if named is None or tuple(named.tensor.shape) != mark.shape:
            return None
        values = measured([Raw("", None, None, named.tensor, mark)], limit._replace(position=0))
        return None if values is None else values.first[0] if values.bad else False

    return locate


def _with_carried(found: tuple[Operand, ...], bad: Operand, gathering: Gathering, limit: Limits) -> tuple[Operand, ...]:
    """The user's own tensor from which a library has carried the bad values to the failing operation."""
    raw = gathering.raws[limit.position]
    if bad.values is None or not bad.values.bad or raw.mark is None or not gathering.origins.log_reaches:
        return found
    result, whence = [], ValueOrigins(gathering.failure, gathering.origins)
    for operand, own in zip(found, gathering.call_raws):
        flattened = own.tensor is not None and raw.tensor is not None and _is_flattened(own.tensor, raw.tensor)
        if own.tensor is not None and own.mark is not None and (flattened or whence.carries_from(raw.mark, id(own.tensor))):
            values = measured([own], limit._replace(position=0))
            if values is not None and values.bad:
                made = whence.value(own.mark, values.first[0], _badness(gathering, limit)) if flattened else bad.value_made
                operand = dataclasses.replace(operand, values=values, value_made=made, carried_by=bad.argument)
        result.append(operand)
    return tuple(result)


def _is_flattened(one: torch.Tensor, flat: torch.Tensor) -> bool:
    """torch reads the rows of one tensor as a single one: `nn.EmbeddingBag` does, with ids in two dimensions."""
    return flat.dim() == 1 < one.dim() and one.is_contiguous() and storage_of(one) == storage_of(flat) != 0 and one.numel() == flat.numel() and one.dtype == flat.dtype


# -- the module ---------------------------------------------------------------------------------------


def _module(failure: Failure) -> torch.nn.Module | None:
    """The innermost module whose forward was running below the user's frame."""
    found = None
    first = failure.user.position + 1 if failure.user is not None else 0
    for entry in failure.entries[first:]:
        if is_module_call(entry):
            module = locals_of(entry.frame).get("self")
            if isinstance(module, torch.nn.Module):
                found = module
    return found


def _module_made(failure: Failure, origins: Origins, module: torch.nn.Module | None) -> Made | None:
    if module is None:
        return None
    for parameter in module.parameters(recurse=False):

        mark = mark_of(parameter)
        made = origins.of_parameter(mark) if mark is not None else None
        if made is not None:
            return dataclasses.replace(made, operation=type(module).__name__)
    return module_made(failure, origins.definitions, module)


def _module_sizes(origins: Origins, module: torch.nn.Module | None) -> tuple[SizeOrigin, ...]:
    found: dict[int, SizeOrigin] = {}
    for parameter in module.parameters(recurse=False) if module is not None else ():
        mark = mark_of(parameter)
        for axis, size in enumerate(parameter.shape):
            made = origins.of_parameter(mark, size, axis) if mark is not None and size not in found else None
            if made is not None:
                found[size] = SizeOrigin(axis, size, dataclasses.replace(made, operation=type(module).__name__))
    return tuple(found.values())


def _container(crash: Crash, failure: Failure, gathering: Gathering) -> tuple[str, Made | None]:
    """What Python itself indexed or unpacked, in words, and where it was made; its tensors become the operands."""
    entry = failure.program
    value = container_of(crash.error, entry) if failure.is_direct else None
    if value is None:
        returned = unpacked(crash, entry) if failure.is_direct else None
        several = results_unpacked(crash.message, entry.statement, entry.evaluator) if failure.is_direct and returned is None else None
        if several is not None:
            gathering.__dict__.pop("operands", None)
            gathering.raws = []
            place = source.place_of_node(several.code, several.node, Known.INFERRED) if several.code is not None and several.node is not None else None
            return several.words, Made("results", place) if place is not None else None
        if returned is None:
            return "", None
        gathering.__dict__.pop("operands", None)
        layer = entry.evaluator.value(returned[1].func)
        own = isinstance(layer, torch.nn.Module) and not type(layer).__module__.startswith("torch.")
        by = f"a {type(layer).__name__}" if isinstance(layer, torch.nn.Module) and not own else f"`{ast.unparse(returned[1].func)}`"
        whole = entry.node in getattr(entry.statement, "targets", ())
        gathering.raws = [Raw("returned", returned[1] if whole else None, entry if whole else None, None, returned[0])]
        return f"a tensor of shape {list(returned[0].shape)}, returned by {by}", None
    node = entry.node.value if isinstance(entry.node, ast.Subscript) else getattr(entry.statement, "value", None)
    gathering.__dict__.pop("operands", None)
    if isinstance(value, (torch.Size, torch.Tensor)):
        owner = node.func if isinstance(node, ast.Call) else node  # x.size(), x.shape
        owner = owner.value if isinstance(value, torch.Size) and isinstance(owner, ast.Attribute) else owner
        tensor = entry.evaluator.value(owner)
        gathering.raws = []
        if isinstance(tensor, torch.Tensor):
            known = Known.RECOMPUTED if entry.evaluator.is_recomputed(tensor) else Known.OBSERVED
            gathering.raws = [Raw("self", owner, entry, tensor, mark_of(tensor), known)]
        words = f"the shape {list(value)}, {len(value)} sizes" if isinstance(value, torch.Size) else f"a tensor of shape {list(value.shape)}"
        return words, None
    gathering.raws = [Raw(f"self[{k}]", node, entry, item, mark_of(item), element=k) for k, item in enumerate(value)]
    return f"a {type(value).__name__} of {len(value)} tensors", gathering.origins.definitions.made(entry, node)


# -- text ---------------------------------------------------------------------------------------------


_PYTHONS_TYPES = frozenset({"KeyError", "AttributeError", "NameError", "UnboundLocalError", "FileNotFoundError", "ZeroDivisionError"})


def _from_text(crash: Crash, found: Embedded) -> FailedOperation | None:
    frames = [entry for entry in _entries(crash) if entry.origin is Origin.USER]
    outer = frames[-1] if frames else None
    place = innermost(found, lambda origin: origin.is_program)
    if place is None and found.origins[-1] is Origin.TORCH and outer is not None:
        place = outer.place()  # a worker joined the samples with torch's own code: the loop over the loader is the program's part
    if place is None or found.type in _PYTHONS_TYPES:
        return None
    inner_is_torchs = found.origins[-1] is Origin.TORCH or found.wrapper not in OTHER_PROCESSES or _is_torchs_text(found, place)
    if not inner_is_torchs:
        return None
    user = innermost(found, lambda origin: origin is Origin.USER)
    if user is not None and user is not place:
        place = dataclasses.replace(place, via=user)
    if place.via is None and place.in_library and outer is not None:
        place = dataclasses.replace(place, via=source.place_of_instruction(outer.code, outer.lasti))
    compiled = found.wrapper == "torch.compile"
    operands = _with_origins(crash, place, traced_operands(crash.message, place)) if compiled else ()
    weight = next((operand.shape for operand in operands if operand.argument == "weight"), None)
    layer = traced_layer(crash, place, weight) if weight is not None else None
    return FailedOperation(
        (traced_name(crash.message) if compiled else "") or _text_name(place),
        place,
        operands,
        module=layer.called if layer is not None else "",
        module_type=layer.kind if layer is not None else "",
        module_made=layer.made if layer is not None else None,
        type=found.type,
        message=found.message,
        wrapper=found.wrapper,
        sample=worker_samples(_entries(crash)) if found.wrapper == "a DataLoader worker" else "",
    )


def _with_origins(crash: Crash, place: Place, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """What syntax tells of the variables that the traced line names."""
    result = []
    for operand in operands:
        made = traced_origin(crash, place, operand.source) or _given_outside(crash, operand) if operand.source.isidentifier() else None
        sizes = tuple(SizeOrigin(axis, size, made) for axis, size in enumerate(operand.shape)) if made is not None else ()
        result.append(dataclasses.replace(operand, made=made, sizes=sizes))
    return tuple(result)


def _given_outside(crash: Crash, operand: Operand) -> Made | None:
    """The one tensor of this shape and dtype that the program's own call, `model(x)`, has handed over."""
    failure = Failure.at_the_users_call(crash)
    call = failure.user.node if failure is not None and failure.user is not None else None
    if failure is None or failure.user is None or not isinstance(call, ast.Call):
        return None
    values = [(node, failure.user.evaluator.value(node)) for node in (*call.args, *(keyword.value for keyword in call.keywords))]
    same = [node for node, value in values if isinstance(value, torch.Tensor) and tuple(value.shape) == operand.shape and operand.tensor.dtype in str(value.dtype)]
    return Origins(failure).definitions.made(failure.user, same[0]) if len(same) == 1 else None


def _entries(crash: Crash) -> list[Entry]:
    return [Entry(frame, lasti, position) for position, (frame, lasti) in enumerate(crash.entries)]


def _is_torchs_text(found: Embedded, place: typing.Any) -> bool:
    """In a worker only the text is left: the failing line must be no `raise`, and the words torch's."""
    from torchsleuth.capture.failure import _TORCHS_WORDS

    text = found.last_source or place.source.lstrip()
    if text.startswith(("raise ", "assert ")) or found.type not in ("RuntimeError", "IndexError", "ValueError", "NotImplementedError"):
        return False
    return bool(_TORCHS_WORDS.search(found.message) or found.type == "RuntimeError")


def _text_name(place: typing.Any) -> str:
    from torchsleuth.capture.unlogged import operation_word

    try:
        tree = ast.parse(place.source.strip(), mode="eval").body
    except SyntaxError:
        return ""
    word = operation_word(tree)
    return word if word not in ("expression", "variable", "constant", "attribute") else ""


