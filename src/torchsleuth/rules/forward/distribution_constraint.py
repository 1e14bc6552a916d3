"""A distribution of `torch.distributions` got a parameter, or was asked about a value, that it does not allow."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Diagnosis, Fact
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_tensor
from torchsleuth.rules.forward._not_finite import cause_facts, cause_fixes, cause_why, causes
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import described, failed, inferred, made_words, plural, seen
from torchsleuth.rules.undefined import NAN_OF


class DistributionConstraint(CrashRule):
    """A distribution got a parameter or a value outside of what it allows: NaN, a scale that is not positive, a label that does not exist.

    What happened
    -------------
    The distributions of torch check what they are made of: a scale must be greater than 0, probabilities lie between 0
    and 1, nothing is NaN. `log_prob` checks its value likewise. A tensor broke the rule in at least one element.

    Why
    ---
    Typical: the raw output of a layer used as a scale (half of it is negative); raw scores handed over as
    probabilities, which come first, where `logits=` was meant; NaN, which a network gives after an update that was too
    large or for an input that was divided by a deviation of 0.

    Example
    -------
    This raises "Expected parameter scale ... to satisfy the constraint GreaterThan(lower_bound=0.0)":

        import torch

        mean, std = torch.tensor([[0.5, -0.2]]).chunk(2, dim=-1)
        torch.distributions.Normal(mean, std)

    Fix
    ---
    `F.softplus(raw) + 1e-6` or `log_std.exp()` for a scale, `logits=scores` for raw scores. For NaN look at what the
    tensor was computed from: the inputs first, then the parameters.

    Common false explanations
    -------------------------
    "`validate_args=False` solves it." It only keeps silent, and NaN goes on into the loss. This prints nan:

        import torch

        dist = torch.distributions.Normal(torch.tensor(0.0), torch.tensor(-1.0), validate_args=False)
        print(dist.log_prob(torch.tensor(0.3)).item())
    """

    name = "distribution-constraint"
    messages = (r"Expected parameter \w+ \(.*to satisfy the constraint", r"Expected value argument \(.*to be within the support")
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        said = _said(operation.message) if operation is not None else None
        if operation is None or said is None:
            return None
        name, kind, rule, printed = said
        operand = operation.operand(name)
        called = operand.called if operand is not None and operand.source else f"`{name}`"
        nan = "nan" in printed
        meant = _meant(rule, name)
        what = "NaN" if nan else f"values that are not {meant}"
        facts = [seen(f"{name}: {described(operand)}.")] if operand is not None else []
        facts += _offending(operand)
        fixes = [] if nan else _remedies(rule, called.strip("`"))
        if nan:
            facts += cause_facts(operand) or _suspects(operand)
            fixes += cause_fixes(operand, ["Look for the NaN in what it was computed from: the inputs first (`x.isfinite().all()`), then the parameters."])
        return report(
            self.name, operation, title=f"{called} holds {what}, which {kind} does not allow{f' as `{name}`' if called.strip('`') != name else ''}",
            label=f"{name} holds {what}", lead=operand, creates=causes(operand) or [(of_tensor(operand)[0], f"{called} was made here")], facts=facts,
            why=" ".join(filter(None, (f"{kind} checks its {name}: every value must be {meant}.", "NaN is in no range." if nan else "At least one is not.", cause_why(operand)))),
            fixes=fixes, mentioned=[operand],
        )  # fmt: skip


def _offending(operand: Operand | None) -> list[Fact]:
    values = operand.values if operand is not None else None
    if operand is None or values is None or not values.bad:
        return []
    first = values.first[0]
    at = f"[{', '.join(map(str, first.position))}]" if first.position else ""
    name = operand.called.strip("`")
    return [seen(f"`{name}{at}` = {first.value:.4g}; {values.bad} of {plural(values.total, 'value')} {'is' if values.bad == 1 else 'are'} refused (smallest {values.minimum:.4g}, largest {values.maximum:.4g}).")]


def _said(message: str) -> tuple[str, str, str, str] | None:
    """(argument, distribution, constraint, the values as printed)."""
    text = " ".join(message.split())
    found = re.search(r"Expected parameter (\w+) \(.*?\) of distribution (\w+)\(.*\) to satisfy the constraint (.*?), but found invalid values:?(.*)", text)
    if found:
        return found[1], found[2], found[3], found[4]
    found = re.search(r"Expected value argument \(.*?\) to be within the support \((.*?)\) of the distribution (\w+)\(.*\), but found invalid values:?(.*)", text)
    return ("value", found[2], found[1], found[3]) if found else None


def _meant(rule: str, argument: str) -> str:
    """`GreaterThan(lower_bound=0.0)` in words."""
    rule = rule.removeprefix("IndependentConstraint(")
    if rule.startswith("Simplex") and argument == "probs":
        return "0 or greater (and not all 0 in a row)"  # they are divided by their sum before they are checked
    low, high = (re.search(rf"{side}_bound=(-?\d+(?:\.\d+)?)", rule) for side in ("lower", "upper"))
    if low and high:
        return f"between {low[1]} and {high[1]}" + (" and whole" if rule.startswith("Integer") else "")
    if low:
        return f"{low[1]} or greater" if "Eq(" in rule else f"greater than {low[1]}"
    return {
        "Real": "a number", "Simplex": "0 or greater, with a sum of 1 in each row", "Positive": "greater than 0",
        "NonNegative": "0 or greater", "PositiveDefinite": "a positive definite matrix", "Boolean": "0 or 1",
    }.get(rule.partition("(")[0], f"what `{rule}` allows")  # fmt: skip


def _remedies(rule: str, called: str) -> list[str]:
    if rule.startswith(("GreaterThan", "Positive(", "NonNegative")):
        return [f"Make it positive: `torch.nn.functional.softplus({called}) + 1e-6`, or `{called}.exp()` if the network is to give its logarithm."]
    if rule.startswith(("Simplex", "Interval")):
        return [f"Raw scores are given by name: `logits={called}`."]
    if rule.startswith("Integer"):
        return ["Check where the values start counting, and over how many choices the distribution is."]
    return []


def _suspects(operand: Operand | None) -> list[Fact]:
    """Calls behind the tensor that make NaN of finite numbers: none is proven."""
    behind = [made for made in (operand.chain if operand is not None else ()) if made.operation in NAN_OF]
    return [inferred(f"{made_words(made)} is behind it: {NAN_OF[made.operation]} is NaN.") for made in behind[:2]]
