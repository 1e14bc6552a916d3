"""Where the layer that did it was built, if what is wrong with it was decided there."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.owners import softmax_built
from torchsleuth.auditor.tracing.trace import Op, Trace


def built(lab: Lab, op: Op, kind: str) -> tuple[Site | None, str]:
    """The expression that built the layer, and the setting that lets it see what it must not; no site where its making was not seen."""
    if not op.module:
        return None, ""
    layer = lab.runner.model.get_submodule(op.module)
    setting = _setting(layer, kind)
    if isinstance(layer, (nn.Softmax, nn.LogSoftmax)) and kind == "mixing":
        return softmax_built(lab.trace.site(op), op.name), f"dim={layer.dim}"
    if not setting or lab.step is None:
        return None, setting
    names = [kind.__name__ for kind in type(layer).__mro__ if issubclass(kind, nn.Module) and kind is not nn.Module]  # one with a parametrization is of a class made for it
    for parameter in layer.parameters():
        for made in writers(lab.step, parameter):
            site = lab.step.site(made)
            if site is not None and not site.library and any(name in site.source for name in names):
                return site, setting
    return _copied(lab, op.module, layer), setting


def _copied(lab: Lab, path: str, layer: nn.Module) -> Site | None:
    """A layer that was copied (`nn.TransformerEncoder` does that) was built where the only one of its kind and size was."""
    trace, model = lab.step, lab.runner.model
    assert trace is not None
    sizes = {tuple(p.shape) for p in layer.parameters()}
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = type(model.get_submodule(".".join(parts[:count]))).__name__ + "("
        made = {op.place: op for op in trace.ops if op.writes and op.outs and op.outs[0].size in sizes}
        sites = {site.span: site for op in made.values() if (site := trace.site(op)) is not None and not site.library and name in site.source}
        if sites:
            return next(iter(sites.values())) if len(sites) == 1 else None
    return None


def writers(trace: Trace, parameter: nn.Parameter) -> Iterator[Op]:
    """The calls that wrote to it, the last one first: optimizer steps, then those that gave it its first values."""
    key = trace.known_key(parameter)
    while key is not None and (made := trace.producer.get(key)) is not None and made < len(trace.ops):
        op = trace.ops[made]
        yield op
        # An optimizer on a GPU writes to all parameters in one call, `_foreach_…_`: each result was the argument at its place.
        place = next((at for at, seen in enumerate(op.outs) if seen.key == key), 0) if op.name.startswith("_foreach") else 0
        key = op.ins[place].key if op.writes and place < len(op.ins) and op.ins[place].key != key else None


def _setting(layer: nn.Module, kind: str) -> str:
    if kind == "causal":
        if isinstance(layer, nn.RNNBase) and layer.bidirectional:
            return "bidirectional=True"
        if isinstance(layer, nn.Conv1d) and layer.padding not in (0, (0,)):
            return f"padding={layer.padding!r}" if isinstance(layer.padding, str) else f"padding={layer.padding[0]}"
        if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) > 1:
            return f"normalized_shape={tuple(layer.normalized_shape)}"
    elif isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)) and layer.batch_first == (kind == "mixing-time-first"):
        return f"batch_first={layer.batch_first}"
    return ""
