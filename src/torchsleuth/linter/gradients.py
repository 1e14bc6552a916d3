"""Where the gradient stops on the way back from a loss: the operations that cut it, by way of abstract values."""

from __future__ import annotations

from torchsleuth.linter.values import BREAKS, Value

REACH = 300


def cuts_behind(loss: Value) -> list[Value]:
    """Operations behind `loss` through which no gradient flows though their input has or may have one, loss first."""
    found: list[Value] = []
    seen: set[int] = set()
    pending = [loss]
    while pending and len(seen) < REACH:
        value = pending.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if value.op == "data" and value.inputs and value.inputs[0].op in ("LSTM", "GRU", "RNN", "unknown"):
            continue  # `.data` of a packed sequence is what has the gradient
        if value.op in BREAKS and value.inputs:
            if any(may_need_gradient(source) for source in value.inputs):
                found.append(value)
        pending.extend(value.inputs)
        pending.extend(value.items or ())
    return found


def unrecorded_behind(loss: Value) -> Value | None:
    """Something behind `loss` that was computed from parameters while nothing was recorded."""
    seen: set[int] = set()
    pending = [loss]
    while pending and len(seen) < REACH:
        value = pending.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if value.unrecorded is not None:
            return value
        pending.extend(value.inputs)
    return None


def may_need_gradient(value: Value) -> bool:
    if value.kind == "list":
        return any(may_need_gradient(i) for i in value.items or ())
    return value.is_tensor and value.grad is not False and value.dtype not in ("int", "bool")


def needs_gradient(value: Value) -> bool:
    """Certain to require a gradient, through this or anything it is made of."""
    if value.kind == "list":
        return any(needs_gradient(i) for i in value.items or ())
    return value.is_tensor and value.grad is True


def has_unknown_origin(value: Value) -> bool:
    """Something this is made of may carry a gradient that cannot be seen here."""
    seen: set[int] = set()
    pending = [value]
    while pending and len(seen) < REACH:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.unrecorded is not None:
            continue  # computed where nothing is recorded: it has no history, whatever went in
        if current.kind == "unknown" or (current.is_tensor and current.grad is None and not current.inputs):
            return True
        if current.op not in BREAKS:
            pending.extend(current.inputs)
    return False


def trains_only_through(loss: Value, result: Value) -> bool:
    """Whatever gradient `loss` has, it has by way of `result`; the target of a loss is data."""
    seen: set[int] = set()
    pending = [loss]
    reached = False
    while pending:
        current = pending.pop()
        if current is result:
            reached = True
            continue
        if id(current) in seen or current.kind == "number" or current.is_tensor and current.grad is False:
            continue
        seen.add(id(current))
        if len(seen) > REACH:
            return False
        prediction = (current.extra or {}).get("prediction") if current.is_tensor else None
        sources = [prediction] if prediction is not None else [*current.inputs, *(current.items or ())]
        if not sources or prediction is None and (current.extra or {}).get("more"):
            return False  # something else went in, of which nothing is known
        pending.extend(sources)
    return reached


def is_cut_off(loss: Value) -> bool:
    """No gradient can reach the model from this loss: nothing in it has one, or its prediction has none for certain."""
    if loss.grad is False:
        return not has_unknown_origin(loss)
    prediction = (loss.extra or {}).get("prediction")
    for _ in range(4):
        if prediction is None and loss.op in ("mean", "sum", "mul", "div", "add") and len(loss.inputs) == 1:
            loss = loss.inputs[0]
            prediction = (loss.extra or {}).get("prediction")
    return prediction is not None and prediction.is_tensor and prediction.grad is False and bool(cuts_behind(prediction))


def added_parts(value: Value) -> list[Value]:
    """The terms of a sum: what a loss is added up from."""
    parts: list[Value] = []
    pending = [value]
    seen: set[int] = set()
    while pending and len(seen) < REACH:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.op in ("add", "sub", "add_", "sub_") and len(current.inputs) >= 2:
            pending.extend(current.inputs)
        else:
            parts.append(current)
    return parts
