"""Layers that the model uses and does not own."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Unregistered
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class UnregisteredParameters(AuditRule):
    """The model computes with parameters that `model.parameters()` does not list, so no optimizer trains them.

    What happened
    -------------
    In the forward pass parameters were used that belong to no registered module of the model, and that no
    optimizer holds.

    Why
    ---
    A module registers layers and parameters that are assigned as attributes. Inside a plain Python list,
    tuple or dict they are not seen: they are missing from `parameters()` and from `state_dict()`, and
    `model.to(device)` leaves them behind. They keep their first random values for ever. A layer
    that is made in `forward` has new random values in each call. A tensor with `requires_grad=True` that is no
    `nn.Parameter` gets gradients, and is listed nowhere, either; nor is one beside the model (weights of losses, a temperature)
    in the optimizer, if it was not given it. Layers that are
    kept out on purpose run under `torch.no_grad()`, or are frozen; those are not accused.

    Example
    -------
    Two layers in a plain list. This prints 0, the number of parameters that an optimizer would get:

        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]

        print(len(list(Net().parameters())))

    Fix
    ---
    `nn.ModuleList([...])`, `nn.ModuleDict({...})` or `nn.ParameterList([...])` in place of the plain container; for a
    layer that is made in `forward`, an attribute that `__init__` makes.

    Common false explanations
    -------------------------
    "The layers get gradients, so they are trained": an optimizer changes what it was given, no more.
    """

    name = "unregistered-parameters"
    order = 6

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        seen = set()
        for one in observation.unregistered:
            if one.kind == "outside":
                yield _outside(one)
                continue
            if one.made is not None:
                yield _made_anew(one, one.made)
                continue
            if one.kind == "tensor":
                yield _plain_tensor(one)
                continue
            key = one.built.span if one.built is not None else one.site.span
            if key in seen:
                continue
            seen.add(key)
            culprits = []
            if one.built is not None:
                culprits.append(culprit(one.built, Role.CREATE, f"a {one.kind}, which is no nn.Module: its layers are not registered" if one.kind else "a plain container: its layers are not registered", Known.INFERRED))
            culprits.append(culprit(one.site, Role.LOST_GRAD, "computes with parameters that the model does not own"))
            sizes = ", ".join(str(list(size)) for size in one.sizes[:4])
            yield Diagnosis(
                self.name, f"parameters in `{one.holder}` are not registered: no optimizer will train them" if one.holder else "the model computes with parameters that are not its own: no optimizer will train them", Confidence.CERTAIN if one.holder else Confidence.LIKELY,
                tuple(culprits),
                observed(f"`{expression_of(one.site)}` uses parameters of sizes {sizes}; `parameters()` of the model does not list them",
                         f"they lie in `{one.holder}`, {f'a {one.kind} that is no nn.Module' if one.kind else 'a plain Python container'}" if one.holder else ""),
                "A module registers the modules and parameters that are assigned as its attributes"
                + (", not what lies inside an object of another class." if one.kind else ", not what lies inside a plain list, tuple or dict." if one.holder else ", and no others."),
                (advice(f"Make `{one.kind}` an `nn.Module` (with `super().__init__()`)." if one.kind else "Use `nn.ModuleList`, `nn.ModuleDict` or `nn.ParameterList`." if one.holder else
                        "Make them once, in `__init__`, as attributes of the model (in an `nn.ModuleList` or `nn.ParameterList` if there are several)."),),
            )  # fmt: skip


def _plain_tensor(one: Unregistered) -> Diagnosis:
    culprits = [culprit(one.built, Role.CREATE, "a tensor that asks for gradients, and no `nn.Parameter`", Known.INFERRED)] if one.built is not None else []
    culprits.append(culprit(one.site, Role.LOST_GRAD, "computes with it"))
    return Diagnosis(
        UnregisteredParameters.name, f"`{one.holder}` is a plain tensor and no parameter: no optimizer will train it", Confidence.LIKELY, tuple(culprits),
        observed(f"`{one.holder}`, of size {list(one.sizes[0])}, requires a gradient, and the loss was computed from it", "it is no `nn.Parameter`, no optimizer holds it, and nothing was seen to write into it"),
        "A module registers `nn.Parameter`s that are assigned as its attributes. A plain tensor is missing from `parameters()` and `state_dict()`, and keeps its first values.",
        (advice(f"Wrap it: `self.{one.holder} = nn.Parameter(...)`; if it is not to be trained, leave `requires_grad` out and use `register_buffer`."),),
    )  # fmt: skip


def _outside(one: Unregistered) -> Diagnosis:
    culprits = [culprit(one.built, Role.CREATE, "asks for gradients")] if one.built is not None else []
    culprits += [culprit(one.made, Role.CALL, "the optimizer is built here, without it")] if one.made is not None else []
    culprits.append(culprit(one.site, Role.LOST_GRAD, "computes with it"))
    return Diagnosis(
        UnregisteredParameters.name, "a tensor that asks for gradients is in no optimizer: it keeps its first values", Confidence.LIKELY, tuple(culprits),
        observed(f"a tensor of size {list(one.sizes[0])} requires a gradient and got one from the loss; a few steps later no optimizer holds it, and its values are what they were"),
        "An optimizer changes the tensors that it was given, and no others.",
        (advice("Give it to the optimizer: `Adam([*model.parameters(), tensor])`; if it is not to be trained, leave `requires_grad` out."),),
    )  # fmt: skip


def _made_anew(one: Unregistered, made: Site) -> Diagnosis:
    culprits = [culprit(made, Role.CREATE, "makes a new layer, with new random weights, in each forward pass")]
    if one.site.span.line != made.span.line or one.site.span.file != made.span.file:
        culprits.append(culprit(one.site, Role.LOST_GRAD, "computes with parameters that the model does not own"))
    sizes = ", ".join(str(list(size)) for size in one.sizes[:4])
    return Diagnosis(
        UnregisteredParameters.name, "a layer is made anew in each forward pass: no optimizer will train it", Confidence.LIKELY, tuple(culprits),
        observed(f"`{expression_of(made)}` made parameters of sizes {sizes} during the forward pass, and the loss was computed with them; `parameters()` of the model does not list them"),
        "What a layer has learned is in its parameters, and these are gone when `forward` returns: the next call draws new ones.",
        (advice("Make the layer once, in `__init__` (`self.layer = ...`), and call it in `forward`."),),
    )  # fmt: skip
