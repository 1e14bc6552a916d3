"""Inputs that a normalisation layer was not built for."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_tensor, of_terms, squeezed
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, expr, failed, inferred, line_of, made_words, plural, seen, shape


class NormShape(CrashRule):
    """A normalisation layer gets an input with other sizes than it was built for.

    What happened
    -------------
    `LayerNorm(n)` takes inputs whose last dimension has size n. `BatchNorm`, `GroupNorm` and `InstanceNorm` take the
    channels at dimension 1. `BatchNorm` in training needs more than one value for each channel.

    Why
    ---
    Typical: a layer built for another width; the features in another dimension than the layer looks at; BatchNorm1d
    for 4-D images; a last batch with one sample.

    Example
    -------
    This raises "Given normalized_shape=[10], expected input with shape [*, 10], but got input of size[4, 8]":

        import torch

        torch.nn.LayerNorm(10)(torch.randn(4, 8))

    Fix
    ---
    Build the layer for the width that arrives, or transpose so that the features are where the layer looks. For a last
    batch of one, `DataLoader(..., drop_last=True)`.

    Common false explanations
    -------------------------
    "BatchNorm1d takes [batch, time, features]." It takes [batch, features] or [batch, features, time]. This prints a shape:

        import torch

        x = torch.randn(2, 7, 5)       # batch, time, features
        print(torch.nn.BatchNorm1d(5)(x.transpose(1, 2)).transpose(1, 2).shape)
    """

    name = "norm-shape"
    messages = (
        r"Given normalized_shape=",
        r"running_(mean|var) should contain \d+ elements not \d+",
        r"weight should contain \d+ elements not \d+",
        r"Expected weight to be a vector of size equal to the number of channels",
        r"expected input's size at dim=1 to match num_features",
        r"expected \dD( or \dD)? input \(got",
        r"Expected more than 1 (value per channel|spatial element) when training",
        r"number of channels in input to be divisible by num_groups",
        r"must be divisible by num_groups",
        r"Expected weight to be of same shape as normalized_shape",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        given = operation.operand("input", "self")
        weight = operation.operand("weight", "running_mean")
        layer = f"`{operation.module}`" if operation.module else f"`{operation.module_type or operation.name}`"
        made = operation.module_made or (weight.made if weight is not None else None)
        words = made_words(made, operation)
        facts = [seen(f"{layer} was made by {words}.")] if words else []
        called = given.called if given is not None else "the input"
        last = re.search(r"normalized_shape=\[([\d, ]*)\].*input of size\s*\[([\d, ]*)\]", message)
        channel = re.search(r"should contain (\d+) elements not (\d+)|match num_features \((\d+)\), but got: (\d+)", message)
        grouped = re.search(r"got weight of shape \[(\d+)\] and input of shape \[(\d+), (\d+)", message)
        channel = channel or grouped and re.match(r"(\d+) (\d+)", f"{grouped[3]} {grouped[1]}")
        if last and given is not None:
            want = tuple(int(n) for n in last[1].split(","))
            axis = next((k - len(want) for k in range(len(want)) if len(given.shape) < len(want) - k or given.shape[k - len(want)] != want[k]), -1)
            fixes = [f"Build the layer for {given.shape[axis] if -axis <= len(given.shape) else '?'} features, or make the input {shape(want)} wide at the end."]
            if len(want) == 1 and want[0] in given.shape:
                other = given.shape.index(want[0])
                facts.append(inferred(f"Dimension {other} of {called} has size {want[0]}: LayerNorm looks at the last one."))
                fixes = [f"`{expr(given, 'x')}.transpose({other}, -1)`, if dimension {other} holds the features."]
            parts, sums = of_terms(operation, given, -1) if len(want) == 1 else ([], [])
            return report(self.name, operation, title=f"{called} {shape(given.shape)} does not end in {shape(want)}, which {layer} normalises over", label=f"ends in {given.shape[-1] if given.shape else '[]'}; {shape(want)} is needed",
                          lead=given, why=f"LayerNorm normalises over the last dimensions, which must be exactly {shape(want)}.", creates=[of_axis(given, axis), (operation.made_for(want[axis]) or made, "the layer is made here"), *parts],
                          facts=[*sums, *facts], fixes=fixes)  # fmt: skip
        if channel and given is not None:
            have, want = (int(channel[1]), int(channel[2])) if channel[1] else (int(channel[4]), int(channel[3]))
            fixes = [f"Build the layer with {have} features, or bring the {want} features to dimension 1."]
            other = len(given.shape) - 1  # channels come second or last; a picture of as many pixels is a coincidence
            if given.source and other > 1 and given.shape[other] == want and given.shape.count(want) == 1:
                facts.append(inferred(f"Dimension {other} of {called} has size {want}: the layer looks at dimension 1."))
                fixes = [f"`{expr(given, 'x')}.transpose(1, {other})`, if dimension {other} holds the features."]
            parts, sums = of_terms(operation, given, 1)
            return report(self.name, operation, title=f"{called} has {have} channels (dimension 1); {layer} was built for {want}", label=f"{have} channels; {want} are taken", lead=given,
                          why="This layer keeps one set of values for each channel, read at dimension 1.", creates=[of_axis(given, 1), (operation.made_for(want) or made, f"the layer is made for {want} here"), *parts], facts=[*sums, *facts], fixes=fixes)  # fmt: skip
        if "Expected more than 1" in message:
            sizes = re.search(r"torch\.Size\(\[([\d, ]*)\]\)", message)
            if operation.training is not None:
                facts.append(seen(f"The module is in {'training' if operation.training else 'evaluation'} mode."))
            if "spatial element" in message:
                return report(self.name, operation, title=f"{layer} got a single value per channel of a sample: [{sizes[1] if sizes else '?'}]", label="one value per channel of a sample", lead=given,
                              why="Instance normalisation computes a variance over the places of one channel in one sample: one place has none.", creates=[of_axis(given, -1)], facts=facts,
                              fixes=["Normalise before the map has shrunk to one place, or use another normalisation there (`GroupNorm`, `LayerNorm`)."])  # fmt: skip
            return report(self.name, operation, title=f"{layer} in training got a single value per channel: [{sizes[1] if sizes else '?'}]", label="one value per channel", lead=given,
                          why="In training, batch normalisation computes a variance over the batch: one value has none.", creates=[of_axis(given, 0)], facts=facts,
                          fixes=["Drop a last batch of one (`DataLoader(..., drop_last=True)`), use larger batches, or `model.eval()` when not training."])  # fmt: skip
        rank = re.search(r"expected (.*?) input \(got (\d)D input\)", message)
        if rank:
            bare = squeezed(given)
            fixes = ["Use the layer for this number of dimensions (BatchNorm1d, 2d, 3d), or add the missing one."]
            if bare:
                facts, fixes = [*facts, *bare], ["Name the dimension that is to go, e.g. `squeeze(-1)`, or leave the `squeeze()` out."]
            return report(self.name, operation, title=f"{layer} takes {rank[1]} inputs; {called} is {rank[2]}D", label=f"{plural(int(rank[2]), 'dimension')}", lead=given, why=f"torch says: {message}",
                          creates=[of_tensor(given), (made, "the layer is made here")], facts=facts, fixes=fixes)  # fmt: skip
        groups = re.search(r"num_channels \((\d+)\) must be divisible by num_groups \((\d+)\)", message)
        if groups:
            return report(self.name, operation, title=f"{code(operation.place.source)} is to divide {groups[1]} channels into {groups[2]} groups", label=f"{groups[1]} channels, {groups[2]} groups",
                          why=f"GroupNorm normalises each group of channels, so the groups must be of one size: {groups[1]} is not divisible by {groups[2]}.",
                          creates=[(a.made, f"{a.source} = {a.value} comes from here") for a in (operation.argument("num_channels"), operation.argument("num_groups")) if a is not None],
                          facts=facts, fixes=[f"Take a number of groups that divides {groups[1]}: {_divisors(int(groups[1]))}."])  # fmt: skip
        return report(self.name, operation, title=f"{layer} does not fit its input", label="sizes do not fit", lead=given, why=f"torch says: {message}",
                      creates=[of_axis(given, 1), (made, "the layer is made here")], facts=facts)  # fmt: skip


def _divisors(number: int) -> str:
    return ", ".join(str(k) for k in range(1, number + 1) if number % k == 0)
