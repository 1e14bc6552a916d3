"""The place where a gradient stops on its way to the parameters."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role

_WORDS = {
    "argmax": ("`{op}` returns integer positions, and positions have no gradient",
               "Use a soft choice (softmax weights), a straight-through estimator, or keep the values instead of the positions."),
    "item": ("`{op}` turns the tensor into a Python number, which has no history",
             "Keep the tensor: leave out `.item()`/`float()` until after `backward()`."),
    "tensor": ("`torch.tensor` copies the values into a new leaf without history",
               "Use `torch.stack(list)` (or `torch.cat`), which keeps the history."),
    "data": ("`.data` gives the values without their history", "Leave out `.data`."),
    "numpy": ("NumPy arrays have no history", "Do the computation in torch."),
    "no-grad": ("it runs under `torch.no_grad()`, so no history is recorded",
                "Take it out of `torch.no_grad()`, or freeze these parameters on purpose (`requires_grad_(False)`)."),
    "integer": ("the result of `{op}` is of an integer dtype, which carries no gradient", "Stay in floating point."),
    "detach": ("`detach` cuts the history on purpose", "Leave out `detach()` if these parameters are to be trained."),
    "compare": ("a comparison gives True or False, which have no gradient",
                "Use a smooth function (a sigmoid of the difference), or a straight-through estimator."),
    "derivative": ("`autograd.grad` gives derivatives without history unless it is told to keep it", "Pass `create_graph=True`."),
    "parameter": ("a parameter takes the values alone; what they were computed from is left behind",
                  "Compute with the tensor itself (`F.linear(x, weight, bias)`, or `torch.func.functional_call(module, {name: tensor}, x)`)."),
    "drawn": ("`{op}` draws numbers; what it gives back to the mean and the deviation it drew with is a gradient of zero",
              "Draw standard numbers and move them: `mean + std * torch.randn_like(std)`, or `Normal(mean, std).rsample()`."),
    "function": ("`{op}` returns None in the place of this gradient",
                 "Compute the gradient in `backward` and return it here; or take these parameters out of the optimizer."),
    "numbers": ("`{op}` makes a tensor of plain numbers; nothing that the model has computed is in it",
                "Compute the loss from what the model returns: for a policy, from the log-probabilities of its actions, weighted with the rewards."),
    "other": ("`{op}` returns a tensor without history", "Use an operation that has a derivative."),
}  # fmt: skip

# Where it is not the program that has switched history off, but what it calls.
_INSIDE = (
    ("this call computes without history: torch switches it off inside", "Use an operation that keeps the history."),
    ("`sample()` draws without history",
     "Use `rsample()`, which keeps the history, where the distribution has it; or put the sample's `log_prob` into the loss."),
)  # fmt: skip


class GradientCut(AuditRule):
    """Parameters get no gradient because the history of the computation ends before the loss.

    What happened
    -------------
    After `backward()` some parameters have no gradient (`.grad is None`), although what they computed
    is used. torchsleuth followed it through the step and names the expression whose input had a history
    and whose result has none.

    Why
    ---
    Gradients flow along recorded operations. Some calls hand out values without the record: `argmax`
    and comparisons (their results are whole numbers or truth values), `.item()`, `float()`, `.numpy()`,
    `.data`, `.detach()`, `torch.tensor(...)` of existing tensors, integer dtypes, a distribution's
    `sample()` (`rsample()` keeps the record; `torch.normal(mean, std)` keeps it and gives zeros back), and everything under `torch.no_grad()`. A custom Function
    whose `backward` returns None for an input stops its gradient, too. The forward values stay right, the optimizer skips the parameters, and nothing
    is said. `requires_grad_()` on the result silences the one error that would have told.

    Example
    -------
    `torch.tensor` copies. This prints None, because the gradient never reaches `w`:

        import torch

        w = torch.ones(2, requires_grad=True)
        losses = [(w * 2).sum(), (w * 3).sum()]
        loss = torch.tensor([float(one) for one in losses]).mean().requires_grad_()
        loss.backward()
        print(w.grad)

    Fix
    ---
    `torch.stack(losses).mean()` keeps the history; leave out `.item()`, `.data` and `.detach()`; replace
    `argmax` by a softmax-weighted sum or a straight-through estimator.

    Common false explanations
    -------------------------
    "Calling `requires_grad_(True)` on the loss repairs it": it makes a new leaf; the parameters are still
    cut off. "The learning rate is too small": without a gradient no learning rate helps.
    """

    name = "gradient-cut"
    order = 5

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        leaves = [cut for cut in observation.cuts if cut.reason == "parameter"]
        for cut in observation.cuts:
            if cut not in leaves[1:]:
                yield _diagnosis(observation, cut, [other.site for other in leaves[1:]] if cut in leaves else [])


def _decorates(scope: Site) -> bool:
    lines = scope.excerpt.lines[scope.span.line - scope.excerpt.first :] if scope.excerpt is not None else ()
    return bool(lines) and lines[0].lstrip().startswith("@")


def _diagnosis(observation: Observation, cut: Cut, likewise: list[Site]) -> Diagnosis:
    """`likewise`: places that do the same to the next parameters."""
    reason, fix = _WORDS.get(cut.reason, _WORDS["other"])
    reason = reason.format(op=cut.operation.strip("_") if cut.operation.startswith("__") else cut.operation)  # `__float__` is written float()
    if cut.reason == "no-grad" and cut.scope is not None and cut.scope.span == cut.site.span:
        reason, fix = _INSIDE[1 if cut.site.source.rstrip().endswith(")") and ".sample(" in cut.site.source else 0]
    own = cut.reason == "function"  # a `backward` of the program's: history is there, the gradient is not passed on
    culprits = [culprit(cut.site, Role.RETURN_GRAD if own else Role.LOST_GRAD, reason)]
    culprits += [culprit(site, Role.LOST_GRAD, "the same here") for site in likewise]
    if cut.scope is not None and cut.scope.span != cut.site.span:
        # A model that is called in a `with torch.no_grad()` is not to blame for being called there.
        # Nor is there another place for what a function under the decorator computes.
        culprits.insert(len(culprits) if cut.scope.function == cut.site.function and not _decorates(cut.scope) else 0, culprit(cut.scope, Role.LOST_GRAD, "history is switched off from here"))
    if cut.used is not None and cut.shared:
        culprits.append(culprit(cut.used, Role.CALL, f"goes on with what `{cut.site.function.rpartition('.')[2]}` gives back here; other lines call it, too"))
        fix = f"{fix.removesuffix(' if these parameters are to be trained.').rstrip('.')} for this call; other lines call the function, too, and it may be right for them."
    elif cut.used is not None:
        culprits.append(culprit(cut.used, Role.CALL, "takes what was computed there without history"))
        fix = "Compute it anew, with history, for the loss that is to train these parameters; or take it out of `torch.no_grad()`."
    if cut.remade is not None:
        culprits.append(culprit(cut.remade, Role.CREATE, "makes a new tensor of these numbers, without their history"))
        if cut.reason == "item":
            fix = "Keep the tensors instead of their numbers, and put them together with `torch.stack`, which keeps the history."
    if cut.forced is not None and cut.forced.span != cut.site.span:
        culprits.append(culprit(cut.forced, Role.CREATE, "makes a new leaf; it does not bring the history back"))
    total = sum(w.requires_grad for w in observation.weights)
    facts = [f"what the loss computes from it gives no gradient to {listed(cut.weights)}; what gradient they have comes from elsewhere"] if cut.partly else \
        [f"after the backward pass {len(cut.weights)} of {total} trainable parameters have no gradient because of this: {listed(cut.weights)}"]  # fmt: skip
    facts.append("of what the loss is computed from, nothing was computed from a parameter" if cut.reason == "numbers" else "what they compute is in the loss, and the backward pass comes through here" if own or cut.reason == "drawn" else f"what is put into `{expression_of(cut.site)}` was computed with a history; the parameter has none of it" if cut.reason == "parameter" else f"the input of `{expression_of(cut.site)}` had a history, its result has none" + (f" ({cut.times} calls)" if cut.times > 1 else ""))
    optimized = [w.name for w in observation.weights if w.in_optimizer and w.name in set(cut.weights)]
    if optimized and not cut.partly:
        facts.append(f"the optimizer holds {len(optimized)} of them and will skip them")
    if cut.term is not None:
        facts = [f"`{expression_of(cut.term)}` is a term of the loss; it is computed from {listed(cut.weights)}, and has no history: it counts for nothing in the gradients",
                 f"the input of `{expression_of(cut.site)}` had a history, its result has none; what gradient the parameters have comes from the other terms"]  # fmt: skip
        if cut.number is not None:
            calls = f" ({cut.times} calls, together)" if cut.times > 1 else ""
            facts = [f"`{expression_of(cut.term)}` takes {cut.number:.6g}, a plain number, into the loss; it comes from `{expression_of(cut.site)}`{calls} and counts for nothing in the gradients",
                     f"what was read out there had a history, and was computed from {listed(cut.weights)}; what gradient they have comes from the other terms"]  # fmt: skip
        if cut.term.span.line != cut.site.span.line or cut.term.span.file != cut.site.span.file:
            culprits.append(culprit(cut.term, Role.CALL, "this term of the loss is a constant because of it" if cut.number is None else "takes the number into the loss"))
    title = "a term of the loss gives no gradient: nothing is trained by it" if cut.term is not None else "no gradient reaches any parameter: the loss is made of plain numbers" if cut.reason == "numbers" else "no gradient reaches any parameter: the loss has no history" if cut.whole_loss else \
        f"the gradient stops here: {listed(cut.weights, 2)} will not be trained" + (" by what comes after it" if cut.partly else "")  # fmt: skip
    sure = cut.reason in ("argmax", "item", "tensor", "numpy", "integer", "compare", "data", "parameter") or cut.whole_loss or (bool(optimized) and (cut.used is None or cut.shared))
    return Diagnosis(
        GradientCut.name, title, Confidence.CERTAIN if sure and cut.sure else Confidence.LIKELY, tuple(culprits), observed(*facts),
        f"{reason[0].upper()}{reason[1:]}. The forward values are right, and {'no `requires_grad=True` brings a history back' if cut.reason == 'numbers' else 'that part of the loss does not reach the parameters before this point' if cut.partly else 'the parameters before this point stay as they are'}.", (advice(fix),),
    )  # fmt: skip
