"""A state of which nothing was loaded."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import NothingLoaded
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class NothingIsLoaded(AuditRule):
    """`load_state_dict(..., strict=False)` loads nothing: the model has none of the names in the state.

    What happened
    -------------
    Every parameter of the model was missing in the state that it was given, and nothing else was loaded into it later. It goes on
    with the values that it was built with.

    Why
    ---
    Tensors are found by their names. A state that was saved from a model in `DataParallel` has `module.` before each of them, one of a
    whole model has the name of the part (`encoder.`), and a checkpoint often holds the state in an entry of its own, beside the
    optimizer's. `strict=False` was made for a few names that differ; where all do, it says nothing either, but for the lists that
    `load_state_dict` returns.

    Example
    -------
    The names have a prefix. This prints 2, the number of tensors that were not found:

        import torch

        layer = torch.nn.Linear(2, 2)
        state = {f"module.{name}": value for name, value in torch.nn.Linear(2, 2).state_dict().items()}
        print(len(layer.load_state_dict(state, strict=False).missing_keys))

    Fix
    ---
    `{name.removeprefix("module."): value for name, value in state.items()}`, or the entry that holds the state
    (`checkpoint["model"]`); and without `strict=False`, or with a look at what it returns.

    Common false explanations
    -------------------------
    "The checkpoint is not good enough": none of it has been used.
    """

    name = "nothing-loaded"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.not_loaded:
            yield Diagnosis(
                self.name, f"nothing of the state is loaded: this {fact.model} has none of its names", Confidence.CERTAIN,
                (culprit(fact.site, Role.CALL, "finds none of the model's parameters, and `strict=False` lets that pass"),),
                observed(
                    f"none of the {len(fact.wanted)} parameters of this {fact.model} was in the state, and nothing was loaded into it later",
                    f"the model's names: {listed(fact.wanted, 2)}; those in the state: {listed(fact.given, 2)}",
                    _difference(fact),
                ),
                "Tensors of a state are found by their names; the model keeps the values that it was built with.",
                (advice(_remedy(fact)),),
            )  # fmt: skip


def _difference(fact: NothingLoaded) -> str:
    if fact.entry:
        return f"entry `{fact.entry}` of what was given holds all names of the model"
    if fact.prefix:
        return f"the state has all names of the model, with `{fact.prefix}` before them"
    return f"the model has all names of the state, with `{fact.lacking}` before them" if fact.lacking else ""


def _remedy(fact: NothingLoaded) -> str:
    given = "state"
    if "(" in (call := expression_of(fact.site)):
        given = call.partition("(")[2].partition(",")[0].strip() or given
    if fact.entry:
        return f"Load that entry: `{given}[{fact.entry!r}]`, without `strict=False`."
    if fact.prefix:
        return f'Take the prefix off: `{{name.removeprefix("{fact.prefix}"): value for name, value in {given}.items()}}`, without `strict=False`.'
    if fact.lacking:
        return f"Load it into the part that it is the state of (`{fact.lacking.rstrip('.')}`), without `strict=False`."
    return "Give it names that the model has; without `strict=False` the names that differ are listed."
