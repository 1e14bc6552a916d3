"""jvp, vmap and autocast: the other ways a Function can be used."""

from __future__ import annotations

from torchsleuth.checker.trial import Finding, FunctionRule, Trial
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known
from torchsleuth.rules.function.wording import culprits, number, shape


class FunctionTransforms(FunctionRule):
    """A custom Function's jvp, vmap or autocast handling is wrong.

    What happened
    -------------
    The Function defines forward-mode derivatives (`jvp`), batching (`vmap` or generate_vmap_rule) or
    autocast handling (`torch.amp.custom_fwd` and `custom_bwd`), and what that gives does not agree with
    forward, or raises.

    Why
    ---
    jvp must return the change of the outputs for given changes of the inputs; vmap must give what a loop
    over the mapped dimension gives, for mapped and unmapped inputs and any dimension. Under autocast
    forward runs in a shorter type than the saved tensors have, unless both methods are decorated.

    Example
    -------
    The derivative of x * x at 3 in direction 1 is 6. This prints 3.0:

        import torch
        import torch.autograd.forward_ad as fwAD

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(x):
                return x * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_forward(inputs[0])
                ctx.save_for_backward(inputs[0])

            @staticmethod
            def backward(ctx, grad_output):
                return 2 * ctx.saved_tensors[0] * grad_output

            @staticmethod
            def jvp(ctx, tangent):
                return ctx.saved_tensors[0] * tangent

        with fwAD.dual_level():
            dual = fwAD.make_dual(torch.tensor(3.0), torch.tensor(1.0))
            print(fwAD.unpack_dual(Square.apply(dual)).tangent.item())

    Fix
    ---
    Make jvp the derivative of forward (`2 * x * tangent`), vmap equal to a loop, and put custom_fwd on
    forward and custom_bwd on backward together.

    Common false explanations
    -------------------------
    "jvp and backward return the same thing": one maps input changes to output changes, the other output
    gradients to input gradients.
    """

    name = "function-transforms"
    priority = 35

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("jvp"):
            facts = (Fact(finding.exception, Known.OBSERVED),) if finding.exception else (
                Fact(f"relative difference {finding.error:.3g} from differences of forward", Known.RECOMPUTED),)  # fmt: skip
            title = "jvp raises" if finding.detail == "raises" else f"jvp does not return the change of {_output(finding)}"
            why = "The tangent jvp returns has to be the derivative of forward along the given tangents."
            if finding.relation is not None:
                factor = finding.relation.factor
                title += ": wrong sign" if abs(factor + 1) < 1e-6 else f": {number(factor)} times the true tangent"
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why))
        for finding in trial.of_kind("vmap"):
            facts = (Fact(f"mapped: {finding.case_text}", Known.OBSERVED),)
            if finding.exception:
                facts += (Fact(finding.exception, Known.OBSERVED),)
            elif finding.returned_shape != finding.expected_shape:
                facts += (Fact(f"vmap gave {shape(finding.returned_shape)}, a loop gives {shape(finding.expected_shape)}", Known.RECOMPUTED),)
            title = "vmap raises" if finding.detail == "raises" else "vmap does not give what a loop over the mapped dimension gives"
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts,
                                 "torch.vmap over a Function has to equal calling it for each slice and stacking the results."))  # fmt: skip
        for finding in trial.of_kind("autocast"):
            title = "backward raises under autocast" + (f": {finding.detail} is missing" if finding.detail else "")
            advice = f"add {finding.detail}" if finding.detail else "cast the tensors backward works with to one type"
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), (Fact(finding.exception, Known.OBSERVED),),
                                 "forward ran in bfloat16 under autocast and backward meets tensors of two types.",
                                 (Fix(advice, Applicability.DISPLAY_ONLY),)))  # fmt: skip
        return tuple(out)


def _output(finding: Finding) -> str:
    return f"output {finding.returned_count}" if finding.expected_count > 1 else "the output"
