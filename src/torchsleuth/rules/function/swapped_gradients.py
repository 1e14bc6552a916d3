"""Gradients returned in the wrong order, or one input's gradient returned for another."""

from __future__ import annotations

from torchsleuth.checker.trial import Finding, FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import culprits, fixes, measured, name_of


class SwappedGradients(FunctionRule):
    """A custom backward returns the gradient of one input in the place of another.

    What happened
    -------------
    `backward` must return one gradient per input of `forward`, in forward's order. Here a returned
    gradient is, number for number, the true gradient of a different input. It may also stand in the place of
    an input that has no gradient at all, such as a number or an index: then a None is missing before it.

    Why
    ---
    Nothing checks the order except the shapes. Where the inputs have the same shape (two matrices of the
    same size, queries and keys), swapped gradients go through and training quietly learns nonsense.

    Example
    -------
    The derivative of a * b with respect to a is b; this prints the values of a in a's own gradient:

        import torch

        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx, grad_output):
                a, b = ctx.saved_tensors
                return grad_output * a, grad_output * b

        a = torch.tensor([2.0], requires_grad=True)
        b = torch.tensor([5.0], requires_grad=True)
        Product.apply(a, b).backward()
        print(a.grad.item())

    Fix
    ---
    Return the gradients in the order of forward's inputs: `grad_output * b, grad_output * a`.

    Common false explanations
    -------------------------
    "PyTorch matches gradients to inputs by name": it goes by position only. "It would have raised":
    only if the shapes did not fit.
    """

    name = "backward-swapped-gradients"
    priority = 85

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out: list[Diagnosis] = [_misplaced(self.name, trial, finding) for finding in trial.of_kind("misplaced")]
        found = [f for f in trial.of_kind("values", "shape") if f.relation is not None and f.relation.kind == "other-input"]
        done: set[int] = set()
        for finding in found:
            if finding.input in done:
                continue
            done.add(finding.input)
            name, other = name_of(trial, finding), trial.inputs[finding.relation.other].name
            partner = next((f for f in found if f.input == finding.relation.other and f.relation.other == finding.input), None)
            facts = (Fact(f"what backward returns for `{name}` equals the true gradient for `{other}`", Known.RECOMPUTED),)
            if partner is not None or finding.relation.swapped:
                if partner is not None:
                    done.add(partner.input)
                title = f"the gradients for `{name}` and `{other}` are swapped"
                facts += (Fact(f"what backward returns for `{other}` equals the true gradient for `{name}`", Known.RECOMPUTED),)
                why = f"backward has to return its gradients in the order of forward's inputs: {', '.join(i.name for i in trial.inputs)}."
            else:
                title = f"backward returns the gradient for `{other}` in the place of the one for `{name}`"
                why = f"Position {finding.input} of what backward returns belongs to `{name}`."
            mend = finding if finding.mend is not None or partner is None else partner
            out.append(
                Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit, partner.culprit if partner else None),
                          facts + measured(trial, finding), why, fixes(mend, f"exchange the returned gradients for `{name}` and `{other}`"))
            )  # fmt: skip
        return tuple(out)


def _misplaced(rule: str, trial: Trial, finding: Finding) -> Diagnosis:
    """All gradients are there, and some of them where another input's belong."""
    moved = [(name, place) for name, place in zip(finding.names, finding.places, strict=True) if trial.inputs[place].name != name]
    title = "backward returns " + " and ".join(f"the gradient for `{name}` in the place of `{trial.inputs[place].name}`" for name, place in moved)
    facts = tuple(Fact(f"what backward returns in place {place} equals the true gradient for `{name}`", Known.RECOMPUTED) for name, place in moved)
    why = (f"backward has to return one value for each input of forward, in their order ({', '.join(i.name for i in trial.inputs)}): "
           "None for those that are no tensors or need no gradient.")  # fmt: skip
    return Diagnosis(rule, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why, fixes(finding, "return the gradients in the order of the inputs"))
