"""What the optimizer holds against what the model trains."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import OptimizerFact
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class OptimizerParameters(AuditRule):
    """Parameters get a gradient but the optimizer does not hold them, so they never change.

    What happened
    -------------
    After the first backward pass these parameters have a gradient. They are not among the parameters
    of the optimizer that took the step. If the optimizer holds tensors that are no longer the model's,
    the weights were replaced after it was built.

    Why
    ---
    An optimizer changes the tensor objects it was given when it was built, and no others. A layer
    added or replaced later (`model.head = nn.Linear(...)`, `layer.weight = nn.Parameter(...)`) has new
    tensors; the optimizer goes on with the old ones, which nothing uses any more.

    Example
    -------
    The head is replaced after the optimizer was built. This prints True, because the new head is the
    same before and after the step:

        import torch

        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model.weight = torch.nn.Parameter(torch.ones(1, 2))
        before = model.weight.detach().clone()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        print(torch.equal(before, model.weight))

    Fix
    ---
    Build the optimizer after the model is complete, with `model.parameters()`; `optimizer.add_param_group`
    for what comes later; `weight.copy_(...)` under `no_grad` instead of a new `nn.Parameter`. Parameters
    that are meant to stay as they are: `requires_grad_(False)`.

    Common false explanations
    -------------------------
    "The gradients are there, so it trains": the optimizer decides what changes.
    """

    name = "optimizer-parameters"
    order = 6

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.optimizer:
            culprits = []
            if fact.kind == "thawed":
                yield _thawed(fact)
                continue
            if fact.rebound is not None:
                known = Known.INFERRED if fact.by_syntax else Known.OBSERVED
                culprits.append(culprit(fact.rebound, Role.MUTATE, "new parameters, made after the optimizer was built", known))
            culprits += [culprit(site, Role.MUTATE, "puts new parameters into the model, after the optimizer was built") for site in fact.added]
            if fact.copied is not None:
                culprits.append(culprit(fact.copied, Role.CREATE, "the model that is trained is a copy; the optimizer holds what it was copied from"))
            if fact.site is not None:
                culprits.append(culprit(fact.site, Role.CALL, "the optimizer is built here", Known.OBSERVED))
            if not culprits and observation.call is not None:
                culprits.append(culprit(observation.call, Role.CALL))
            total = fact.total or sum(w.requires_grad for w in observation.weights)
            stale = fact.kind == "stale"
            build = "`weight.copy_(...)` under `no_grad` keeps the tensors that the optimizer holds; or build it anew when they are replaced." \
                if fact.step > 1 else "Build the optimizer after the model is complete."  # fmt: skip
            if fact.copied is not None:
                build = "Give the optimizer the parameters of the model that is trained: build it after the copy, from the copy; or call the one whose parameters it holds."
            if fact.copied_later:
                build = "Put the values back into the model that the optimizer holds: `model.load_state_dict(best.state_dict())`; or build the optimizer anew, from the copy."
            if fact.duplicate is not None:
                culprits.append(culprit(fact.duplicate, Role.CREATE, "what the optimizer holds was copied here, from the model that is trained"))
                build = "Give the optimizer the parameters of the model that the loss is computed with, not those of its copy."
            foreign = fact.kind == "foreign" and fact.copied is None and fact.duplicate is None
            title = f"this {fact.optimizer} holds none of the parameters that the loss before its step trains" if foreign else \
                "the optimizer holds the weights of another model: the one that is trained is a copy" if fact.copied is not None else \
                "the optimizer holds the weights of a copy, and not those of the model that the loss trains" if fact.duplicate is not None else \
                "the optimizer holds old weights that the model no longer uses" if stale else \
                f"{listed(fact.weights, 2)} get a gradient, but are not in the optimizer"  # fmt: skip
            yield Diagnosis(
                self.name, title, Confidence.CERTAIN if stale else Confidence.LIKELY, tuple(culprits),
                observed(
                    f"{len(fact.weights)} of {total} trainable parameters got a gradient and are not in {fact.optimizer}: {listed(fact.weights)}",
                    f"this is so since optimizer step {fact.step}; the steps before it trained what was there before" if fact.step > 1 else "",
                    f"{fact.optimizer} holds {fact.count} tensors" + (", none of which is a parameter of the model" if fact.by_syntax or (stale and fact.apart) else ", some of which are not parameters of the model" if stale else " of something else, none of which got a gradient" if foreign else ""),
                ),
                "An optimizer changes the tensors it was given when it was built, and no others.",
                (advice(build if stale or fact.added or fact.copied is not None or fact.duplicate is not None else "Build it from the parameters of the model that this loss trains." if foreign else
                        "Give these parameters to the optimizer, or freeze them with `requires_grad_(False)` if they are not to be trained."),),
            )  # fmt: skip


def _thawed(fact: OptimizerFact) -> Diagnosis:
    culprits = []
    if fact.site is not None:
        culprits.append(culprit(fact.site, Role.CALL, "the optimizer is built here, without the parameters that were frozen then"))
    if fact.rebound is not None:
        culprits.append(culprit(fact.rebound, Role.MUTATE, "gives them gradients again", Known.INFERRED))
    return Diagnosis(
        OptimizerParameters.name, f"{listed(fact.weights, 2)} are no longer frozen, but are not in the optimizer", Confidence.LIKELY, tuple(culprits),
        observed(
            f"{len(fact.weights)} parameters that were frozen at the first step have a gradient since optimizer step {fact.step}: {listed(fact.weights)}",
            f"no optimizer holds them ({fact.optimizer} holds {fact.count} others), and at the end of the program nothing has been written into them",
        ),
        "An optimizer changes the tensors it was given when it was built, and no others: a parameter that was left out because it was frozen stays out.",
        (advice("Add them when they are thawed: `optimizer.add_param_group({\"params\": ...})`; or give the optimizer all parameters from the start: what is frozen has no gradient, and is skipped."),),
    )  # fmt: skip
