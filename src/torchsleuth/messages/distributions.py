"""Messages of `torch.distributions`: parameters and values outside of what a distribution allows."""

from __future__ import annotations

import re

from torchsleuth.messages import Found, Reading, raising, reads, running

_MEANT = {
    "Real": "a finite number or infinity, but not NaN",
    "Positive": "greater than 0",
    "NonNegative": "0 or greater",
    "Simplex": "at least 0, and some of each row greater (`probs` are divided by their sum before they are checked)",
    "PositiveDefinite": "a symmetric matrix with eigenvalues above 0 only",
    "LowerCholesky": "a lower triangular matrix with a diagonal above 0",
    "IndependentConstraint": "allowed in every element of the last dimensions (NaN is in none)",
}


def _meant(constraint: str) -> str:
    """`GreaterThan(lower_bound=0.0)` in words."""
    name, _, bounds = constraint.partition("(")
    low, high = (re.search(rf"{side}_bound=(-?[\d.]+)", bounds) for side in ("lower", "upper"))
    if name == "GreaterThan" and low:
        return f"greater than {low[1]}"
    if name == "GreaterThanEq" and low:
        return f"{low[1]} or greater"
    if low and high:
        return f"between {low[1]} and {high[1]}" + (", and whole" if name.startswith("Integer") else "")
    return _MEANT.get(name, f"what `{name}` allows")


def _remedies(constraint: str) -> tuple[str, ...]:
    if constraint.startswith(("GreaterThan", "Positive(", "NonNegative")):
        return ("Make it positive: `F.softplus(raw) + 1e-6`, or `log_std.clamp(-20, 2).exp()`.",)
    if constraint.startswith(("Simplex", "Interval")):
        return ("Hand raw scores over as `logits=scores`, by name: the first positional argument is `probs`.",)
    return ()


@reads(
    r"Expected parameter (?P<parameter>\w+) \(\w+ of shape \((?P<shape>[\d, ]*)\)\) of distribution (?P<kind>\w+)\([^\n]*\) to satisfy the constraint "
    r"(?P<constraint>\w+\([^\n]*?\)(?:, \d+\))?), but found invalid values",
    example="ValueError: Expected parameter loc (Tensor of shape (2,)) of distribution Normal(loc: torch.Size([2]), scale: torch.Size([2])) to satisfy the "
    "constraint Real(), but found invalid values:\ntensor([nan, 0.])",
    fragments=(r"expected parameter \w+ .{0,200}to satisfy the constraint", r"to satisfy the constraint \w+\(\), but found invalid values"),
)
def distribution_parameter(found: Found) -> Reading:
    name, kind, constraint = found["parameter"], found["kind"], found["constraint"]
    nan = "nan" in found.text[found.match.end() :][:400] or constraint.startswith("Real")
    program = {
        ("Normal", "loc"): "torch.distributions.Normal(torch.tensor([float('nan'), 0.0]), torch.ones(2))",
        ("Normal", "scale"): "torch.distributions.Normal(torch.zeros(2), torch.tensor([-1.0, 1.0]))",
        ("Categorical", "logits"): "torch.distributions.Categorical(logits=torch.tensor([float('nan'), 0.0]))",
        ("Categorical", "probs"): "torch.distributions.Categorical(torch.tensor([-0.5, 0.2, 0.3]))",
        ("Bernoulli", "probs"): "torch.distributions.Bernoulli(torch.tensor([1.5]))",
    }.get((kind, name), "")
    exploded = (
        "NaN came out of the network: an earlier update was too large (learning rate, gradients not clipped), the observations or rewards hold NaN, or a `log`, "
        "`sqrt` or division of 0 stands before it.",
    )
    return Reading(
        f"`{name}` of {kind} holds values that it does not allow" + (" (NaN)" if nan else ""),
        f"Every value of `{name}` must be {_meant(constraint)}. " + ("NaN satisfies no constraint, so this is often the first line that notices it." if nan else
        "The values printed under the message do not satisfy that."),
        exploded if nan else (f"A layer's raw output was used as `{name}` without what keeps it in range.", *exploded),
        raising(program, raises=f"ValueError: Expected parameter {name} (") if program else None,
        (
            *_remedies(constraint),
            *(("Find the first NaN: check the inputs and the parameters (`all(p.isfinite().all() for p in model.parameters())`) before the step; "
               "`torch.autograd.set_detect_anomaly(True)` names the backward that made one.",) if nan else ()),
            "`validate_args=False` only moves the failure further on.",
        ),
        running(
            "scale = F.softplus(torch.tensor([-1.0, 1.0])) + 1e-6",
            "print(torch.distributions.Normal(torch.zeros(2), scale).sample().isfinite().all().item())",
            prints="True",
        ) if name == "scale" else None,
    )  # fmt: skip


@reads(
    r"Expected value argument \(\w+ of shape \((?P<shape>[\d, ]*)\)\) to be within the support \((?P<support>\w+\([^\n]*?\)(?:, \d+\))?)\) of the distribution "
    r"(?P<kind>\w+)\(",
    example="ValueError: Expected value argument (Tensor of shape ()) to be within the support (IntegerInterval(lower_bound=0, upper_bound=2)) of the "
    "distribution Categorical(probs: torch.Size([3])), but found invalid values:\n5",
    fragments=(r"expected value argument .{0,60}to be within the support",),
)
def outside_of_the_support(found: Found) -> Reading:
    kind = found["kind"]
    return Reading(
        f"`log_prob` was asked for values that {kind} cannot take",
        f"{kind} gives values that are {_meant(found['support'])}; those under the message are not.",
        (
            "Actions or labels of another space: they count from 1, belong to another number of choices, or are continuous where whole numbers are meant.",
            "The value is NaN: an earlier computation broke.",
            "A sample was changed after it was drawn (scaled, clipped to the very bound).",
        ),
        raising("torch.distributions.Categorical(torch.ones(3)).log_prob(torch.tensor(5))", raises="ValueError: Expected value argument (")
        if kind == "Categorical"
        else None,
        ("Ask for the value as it was drawn, or build the distribution over as many choices as there are.",),
    )
