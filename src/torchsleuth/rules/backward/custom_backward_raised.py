"""An exception raised by code inside a custom backward or a hook."""

from __future__ import annotations

import re

from torchsleuth.evidence import CustomBackward, Evidence, Place
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first

_OF_THE_GRAPH = re.compile(r"modified by an inplace operation|after they have already been freed")


class CustomBackwardRaised(CrashRule):
    """Code inside a custom `backward`, or inside a gradient hook, raised an exception.

    What happened
    -------------
    `loss.backward()` ran Python code of the program: the `backward` of a custom autograd Function, or a function given
    to `register_hook`. That code raised; or it could not even be called, because it takes another number of gradients than
    forward has outputs.

    Why
    ---
    The traceback shows the line in the backward, but not which forward call it belongs to; a Function is often applied
    in many places. The node in the graph knows: its sequence number leads back to the call.

    Example
    -------
    This raises "shape '[5]' is invalid":

        import torch

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad.view(5) * 2

        Scale.apply(torch.ones(3, requires_grad=True)).sum().backward()

    Fix
    ---
    Correct the line in the backward or hook. `torchsleuth check` runs a custom Function on inputs of many shapes.

    Common false explanations
    -------------------------
    "An index or shape error in backward means that PyTorch reduced a dimension of the gradient." The gradient handed to
    `backward` always has the shape of forward's output; the error is in the code that was written there. This runs and
    prints the shape:

        import torch

        class Show(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sum(dim=1)

            @staticmethod
            def backward(ctx, grad):
                print(grad.shape)        # that of the output, [1, 100]
                return grad.unsqueeze(1).expand(1, 32, 100)

        Show.apply(torch.randn(1, 32, 100, requires_grad=True)).sum().backward()
    """

    name = "custom-backward-raised"
    messages = ()
    needs = ("custom",)
    priority = 1

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        custom = evidence.custom
        if custom is None or not custom.raised_inside or custom.raised_at is None:
            return None
        if _OF_THE_GRAPH.search(evidence.exception.message):
            return None  # `ctx.saved_tensors` only noticed what was done to them elsewhere
        if custom.given is not None:
            return _called_wrongly(self.name, custom, custom.raised_at, custom.given)
        where = f"the hook `{custom.function}`" if custom.is_hook else f"`{custom.function}.backward`"
        exception = evidence.exception
        culprits = [custom.raised_at.culprit(Role.OPERAND, f"raised {exception.type} during backward")]
        if custom.forward_call is not None:
            call = custom.forward_call.via or custom.forward_call
            culprits.append(call.culprit(Role.CALL, forward_label(custom.is_hook)))
        facts = [Fact(f"The exception was raised by code inside {where}, which `backward()` had called.", Known.OBSERVED)]
        if custom.module:
            facts.append(Fact(f"The hook ran for {custom.module}.", Known.OBSERVED))
        why = f"This is an error in the code of {where}, not in the forward pass: backward only ran it."
        if custom.missing_inputs:
            listed = ", ".join(map(str, custom.missing_inputs))
            facts.append(Fact(f"Of the gradients of its inputs that it was given, number {listed} is None.", Known.OBSERVED))
            why += " A module's input that does not require grad (the data itself, for the first layer) has no gradient, and the hook is given None for it."
        elif custom.tensors_saved is not None and _reads_saved_tensors(custom.raised_at):
            kept = "no tensor" if custom.tensors_saved == 0 else "1 tensor" if custom.tensors_saved == 1 else f"{custom.tensors_saved} tensors"
            facts.append(Fact(f"Forward gave {kept} to `save_for_backward`: that is what `saved_tensors` holds.", Known.OBSERVED))
            if custom.set_on_context:
                listed = ", ".join(f"`{name}`" for name in custom.set_on_context[:6])
                facts.append(Fact(f"Attributes that were set on ctx: {listed}. They are no part of `saved_tensors`.", Known.OBSERVED))
        elif missing_on_context(evidence) and custom.set_on_context:
            listed = ", ".join(f"`{name}`" for name in custom.set_on_context[:6])
            facts.append(Fact(f"Attributes that forward set on ctx: {listed}.", Known.OBSERVED))
        elif not custom.is_hook:
            why += " The gradient it is given has the shape of the forward's output."
        return Diagnosis(
            self.name,
            f"{upper_first(where)} raised {exception.type}: {short(exception.message, 90)}",
            Confidence.CERTAIN,
            tuple(culprits),
            tuple(facts),
            why,
        )


def missing_on_context(evidence: Evidence) -> str:
    """`scale` of `ctx.scale` that nobody has set."""
    custom = evidence.custom
    if custom is None or custom.is_hook or evidence.exception.type != "AttributeError":
        return ""
    missing = re.fullmatch(r"'(\w+)' object has no attribute '(\w+)'", evidence.exception.message)
    return missing[2] if missing is not None and missing[1] == f"{custom.function}Backward" else ""


def _called_wrongly(rule: str, custom: CustomBackward, definition: Place, given: int) -> Diagnosis:
    outputs = "1 output" if given == 1 else f"{given} outputs"
    takes = f"{len(custom.takes)} gradient{'' if len(custom.takes) == 1 else 's'}"
    named = f" ({', '.join(f'`{name}`' for name in custom.takes)})" if custom.takes else ""
    culprits = [definition.culprit(Role.OPERAND, f"takes {takes} after ctx, and is given {given}")]
    if custom.forward_call is not None:
        call = custom.forward_call.via or custom.forward_call
        culprits.append(call.culprit(Role.CALL, forward_label(False)))
    more = given > len(custom.takes)
    fix = f"Let it take {given}, one for each output of forward in their order" + (", and add up what each contributes." if more else ".")
    return Diagnosis(
        rule,
        f"`{custom.function}.backward` takes {takes}, but forward has {outputs}",
        Confidence.CERTAIN,
        tuple(culprits),
        (Fact(f"Forward of `{custom.function}` returned {outputs}, so its backward was called with {given} after ctx; it takes {len(custom.takes)}{named}.", Known.OBSERVED),),
        "Autograd calls backward with one gradient for each output of forward, by position. The call itself failed; no code of backward ran.",
        (Fix(fix, Applicability.DISPLAY_ONLY),),
    )


def _reads_saved_tensors(place: Place) -> bool:
    """The statement does: what raised may be the target that `a, b = ctx.saved_tensors` unpacks into."""
    return place.excerpt is not None and any("saved_tensors" in line for line in place.excerpt.lines)


def forward_label(is_hook: bool) -> str:
    return "made the tensor the hook is on" if is_hook else "the forward call this backward belongs to"

