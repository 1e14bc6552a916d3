"""Samples that are drawn from what has a history, and through which no gradient goes back to it."""

from __future__ import annotations

from torchsleuth.auditor.gradients.gradients import Flow, silenced
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.tracing.trace import Op, Trace


def draws(trace: Trace) -> list[Op]:
    """Calls inside functions of torch's that switch history off themselves, with inputs that had one and numbers as a result; and
    `torch.normal`, which keeps the history and gives back gradients of zero."""
    return [
        op for op in trace.ops
        if op.outs and op.outs[0].dtype.is_floating_point and any(seen.requires_grad for seen in op.ins)
        and (op.name == "normal" if op.grad_enabled else not silenced(op))
    ]  # fmt: skip


def drawn(flow: Flow, wanted: set[str]) -> list[Cut]:
    """Samples on the way to the loss that give no gradient to these parameters, where no score of theirs (`log_prob`) is taken.

    The parameters may get a gradient from elsewhere (a divergence), and nothing is missing that would tell.
    """
    trace = flow.trace
    found: dict[tuple, tuple[Op, Site, set[str]]] = {}
    for op in draws(trace):
        site = trace.site(op)
        if site is None or not (".sample(" in site.source or op.grad_enabled) or not any(seen.key in flow.on_the_way for seen in op.outs):
            continue
        before = trace.ancestors({seen.key for seen in op.ins if seen.requires_grad})
        if op.grad_enabled and _met_again(trace, op, before):
            continue
        who = {name for name in wanted & flow.keys.keys() if flow.keys[name] in before}
        found.setdefault((op.place.user_code, op.place.user_offset), (op, site, set()))[2].update(who)
    if not found or any("log_prob" in site.source for op in trace.ops if op.ins and (site := trace.site(op)) is not None):
        return []
    return [
        Cut(op.name, "drawn" if op.grad_enabled else "no-grad", site, tuple(sorted(who)), scope=site, partly=True, sure=False)
        for op, site, who in found.values() if who
    ]  # fmt: skip


def _met_again(trace: Trace, op: Op, before: set[int]) -> bool:
    """The sample itself meets something computed from the same parameters (its density is taken), or what is computed from it meets these
    parameters (a model that draws its own inputs)."""
    parameters = set(trace.parameters)
    learned = before & parameters
    itself = below = {seen.key for seen in op.outs}
    related = trace.descendants(learned) - trace.descendants(below)
    for later in trace.ops[op.index + 1 :]:
        given = {seen.key for seen in later.ins}
        if (given & below and given & learned) or (given & itself and given & related):
            return True
        made = {seen.key for seen in later.outs}
        below = below | made if given & below else below
        itself = itself | made if given & itself and not given & parameters else itself
    return False
