"""A kept state that is the model itself."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class StateNotCopied(AuditRule):
    """`load_state_dict` is given the tensors that the model holds already: it changes nothing.

    What happened
    -------------
    Every tensor of the state that was loaded lies at the very address of the model's own parameter.

    Why
    ---
    `model.state_dict()` copies nothing: its tensors are the parameters themselves, and training goes on writing into them.
    A "best" state that was kept so is always the latest one. The same happens where two names stand for one model: a target network
    that was not copied follows every step.

    Example
    -------
    The kept state moves with the model. This prints 5.0:

        import torch

        model = torch.nn.Linear(1, 1, bias=False)
        best = model.state_dict()
        with torch.no_grad():
            model.weight.fill_(5.0)
        model.load_state_dict(best)
        print(model.weight.item())

    Fix
    ---
    `copy.deepcopy(model.state_dict())`, or `{k: v.clone() for k, v in model.state_dict().items()}`; `copy.deepcopy(model)` for a
    second model.

    Common false explanations
    -------------------------
    "`state_dict()` is a snapshot": it is a view; only saving it to a file makes one.
    """

    name = "state-not-copied"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for state in observation.states:
            label = "is another name for the same model" if state.alias else "holds the model's own tensors, and no copies"
            culprits = [culprit(state.taken, Role.CREATE, label, Known.INFERRED)] if state.taken is not None else []
            culprits.append(culprit(state.site, Role.CALL, "copies every parameter onto itself"))
            yield Diagnosis(
                self.name, "the model is copied onto itself: two names stand for one model" if state.alias else "the state that is put back is the model's own: nothing changes",
                Confidence.LIKELY if state.alias else Confidence.CERTAIN, tuple(culprits),
                observed(f"after {state.steps} optimizer steps every parameter of the state that is loaded here lies at the address of the model's own: it has changed with every step"),
                f"`{state.alias}` and the model that is loaded are one object; nothing is kept apart." if state.alias else "`state_dict()` copies nothing: training goes on writing into the same tensors, and what is put back is what is there.",
                (advice("Make a second model: `copy.deepcopy(model)`." if state.alias else "Keep copies: `copy.deepcopy(model.state_dict())`."),),
            )  # fmt: skip
