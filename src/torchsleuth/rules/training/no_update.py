"""An optimizer step that changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, listed, observed, uncalled
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class NoUpdate(AuditRule):
    """A training step left every parameter exactly as it was.

    What happened
    -------------
    torchsleuth compared the parameters before and after the first `optimizer.step()`: not one bit
    changed. Or no optimizer took a step at all, and when the program ended the parameters were what they
    had been at its first backward pass. Or nothing that a second optimizer holds had a gradient in any of
    its first steps.

    Why
    ---
    The gradients were cleared between `backward()` and `step()` (or clipped to a norm of zero), the optimizer
    holds other tensors than the ones that got gradients, the learning rate is zero, `backward()` was never
    called at all, or another optimizer's `step()` was called in the place of this one's. A
    step by hand must write into the parameters: `p = p - lr * p.grad` makes a new tensor and gives it the
    loop's name, and the model keeps the old one. The same goes for a teacher or an average of the weights:
    `slow = m * slow + (1 - m) * fast` in a loop leaves the copy as it was.

    Example
    -------
    `zero_grad` stands at the wrong place. This prints True, because the step has nothing to do:

        import torch

        w = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * 2).sum().backward()
        optimizer.zero_grad()
        optimizer.step()
        print(torch.equal(w.detach(), torch.ones(2)))

    Fix
    ---
    `optimizer.zero_grad()` before `loss.backward()`, `optimizer.step()` right after it. By hand, under
    `torch.no_grad()`: `p -= lr * p.grad`.

    Common false explanations
    -------------------------
    "The model is at its optimum": then the gradients would be zero after `backward()`, and they were not.
    """

    name = "no-update"
    order = 7

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.no_update
        if fact is None or (fact.reason == "learning-rate" and fact.scheduled):
            return
        culprits = uncalled(fact.named)
        if fact.unreached is not None and fact.condition is not None:
            culprits += [culprit(fact.condition, Role.CALL, "decides whether a step is taken", Known.INFERRED),
                         culprit(fact.unreached, Role.CALL, "was never come to", Known.INFERRED)]  # fmt: skip
        if fact.cleared is not None:
            idle = fact.reason == "never-stepped"
            culprits.append(culprit(fact.cleared, Role.MUTATE, "clears its gradients, and no step of its own follows" if idle else "clears the gradients before the step could use them"))
        if fact.rate is not None:
            culprits.append(culprit(fact.rate, Role.CREATE, "the learning rate is set here", Known.INFERRED))
        if fact.built is not None:
            culprits.append(culprit(fact.built, Role.CREATE, "the schedule is made here" if fact.reason == "vanished" else "the learning rate of 0 comes from here"))
        culprits += [culprit(site, Role.CREATE, f"`{name}` is zero in every element when training begins", Known.INFERRED) for name, site in fact.zeros]
        for writer in fact.writers:
            if fact.reason == "rebound":
                continue
            if fact.reason == "vanished" and not fact.advanced:
                continue
            if fact.reason == "vanished":
                culprits.insert(0, culprit(writer, Role.CALL, f"advances the schedule: {fact.advanced} times in the first {fact.since - 1} steps", Known.INFERRED))
            elif fact.reason == "never-stepped":
                culprits.insert(0, culprit(writer, Role.CALL, "takes a second step, with no `backward()` since its first" if fact.twice else "this optimizer holds nothing that the loss before it gave a gradient to"))
            else:
                culprits.append(culprit(writer, Role.MUTATE, "writes into the gradients between `backward()` and the step" if len(fact.writers) > 1 else "leaves gradients that are all zero"))
        if fact.backward is not None and fact.condition is None and fact.named is None:
            culprits.insert(0, culprit(fact.backward, Role.CALL, "gives gradients, and no step uses them"))
        if fact.closure is not None:
            culprits.append(culprit(fact.closure, Role.LOST_GRAD, "the closure returns a loss, and has not called `backward()`", Known.INFERRED))
        if fact.site is not None:
            moves = "changes no parameter" if not fact.decayed else "moves the parameters by weight decay alone"
            label = "puts a new tensor into the dictionary; the copy keeps its own" if fact.unloaded else {"rebound": "makes a new tensor; the parameter stays as it is", "average": "makes a new tensor; the copy's parameter stays as it is", "never-stepped": "never takes a step", "at-rest": "is given an optimizer whose learning rate is 0"}.get(fact.reason, moves)
            average = fact.reason == "average"
            culprits.append(culprit(fact.site, Role.CREATE if average or fact.reason == "rebound" else Role.CALL, label, Known.INFERRED if average else Known.OBSERVED))
        if fact.reason == "rebound":
            culprits += [culprit(site, Role.CREATE, "the same here") for site in fact.writers]
        why, fix = {
            "cleared": ("after `backward()` there were gradients, when `step()` was called there were none",
                        "Call `zero_grad()` before `backward()`, not between `backward()` and `step()`."),
            "zeroed": ("after `backward()` there were gradients, when `step()` was called they were zero",
                       "Look at what is done to the gradients between `backward()` and `step()`: a limit or a factor of 0 leaves nothing of them."),
            "learning-rate": ("the learning rate is 0" + (f", and the parameters are still the same after {fact.steps} steps" if fact.steps else ""), "Give the optimizer a learning rate above 0" + (", and look at what the scheduler makes of it." if fact.steps else ".")),
            "at-rest": (f"the learning rate of this {fact.optimizer} is 0 for all its parameters, and no schedule has been made for it", "Give the optimizer a learning rate above 0."),
            "no-backward": ("the program has taken steps and never called `backward()`: no parameter of the optimizer has a gradient",
                            "Call `loss.backward()` in the closure, before it returns the loss." if fact.closure is not None else
                            "Call `loss.backward()` before `optimizer.step()` (with its parentheses)."),
            "rebound": ("at the end of the program the parameters are bit for bit what they were at its first backward pass, although this "
                        "was computed from them and their gradients", "Write into the parameter, under `torch.no_grad()`: `p -= lr * p.grad`, or `p.sub_(lr * p.grad)`."),
            "average": ("a copy of the model is at the end of the program bit for bit what the model was at its first backward pass, although the model has been trained since",
                        "Load the dictionary when the loop is done: `copy.load_state_dict(state)`; or write into its tensors (`state[name].copy_(...)`)." if fact.unloaded else
                        "Write into the copy, under `torch.no_grad()`: `slow.mul_(m).add_(fast, alpha=1 - m)`, `slow.lerp_(fast, 1 - m)` or `slow.copy_(...)`."),
            "never-stepped": (f"`step()` of this {fact.optimizer} was never called; at the end of the program its parameters are bit for bit what they were "
                              + ("when its gradients were first cleared" if fact.cleared is not None else "at the first backward pass"), "Call `optimizer.step()` after `loss.backward()`." if fact.condition is None else
                              f"Look at `{expression_of(fact.condition)}`: where gradients are gathered over several batches, a step is due after the last batch of an epoch, too."),
            "barren": (f"none of the {fact.held} parameters of this {fact.optimizer} had a gradient in any of its first {fact.steps} steps",
                       "Look at what the loss before this step is computed from: something between it and these parameters is detached, or not used at all."),
            "vanished": (f"from step {fact.since} of {fact.steps} on the learning rate of {fact.optimizer} is below a millionth of what it was"
                         + (f"; by then the schedule had been advanced {fact.advanced} times" if fact.advanced else ""),
                         "Look at how often `scheduler.step()` is called: a schedule that counts epochs is advanced once for each epoch, after the loop over "
                         "the batches; or make it as long as there are steps."),
            "zero-gradient": ("after `backward()` every gradient of the optimizer's parameters is zero in every element"
                              + (f"; {listed([name for name, _ in fact.zeros])} are zero in every element together: in a product each gives the gradient of the other a factor of zero" if fact.zeros else ""),
                              "Let one of the factors begin with random numbers, and the others at zero." if fact.zeros else
                              "Look for what multiplies by zero, or is flat, between the parameters and the loss."),
            "no-gradient": ("none of the optimizer's parameters has a gradient", "Give the optimizer the parameters that the loss depends on."),
        }.get(fact.reason, ("the cause was not found", "Look at what the optimizer holds."))  # fmt: skip
        title = {"at-rest": "the optimizer's steps will change no parameter", "rebound": "the update makes new tensors and changes no parameter", "average": "the averaged copy of the model never moves: the update makes new tensors", "never-stepped": "the optimizer never takes a step",
                 "barren": "the optimizer has no gradients to step with", "vanished": "the schedule takes the learning rate to nothing long before the end"}
        first = "" if fact.reason in ("at-rest", "no-backward", "rebound", "average", "never-stepped", "barren", "vanished") else "every parameter is bit for bit the same before and after the first step"
        if fact.decayed:
            first = "the parameters do move, but by weight decay alone: towards zero, whatever the loss is"
        if fact.beside:
            first = f"at the end of the program all that this {fact.optimizer} holds is bit for bit what it was before its first step" if fact.built is not None else ""
        yield Diagnosis(
            self.name, "the optimizer step has nothing of the gradients: they are all zero" if fact.decayed else title.get(fact.reason, "the optimizer step changes no parameter"), Confidence.LIKELY if fact.reason == "average" else Confidence.CERTAIN, tuple(culprits),
            observed(first, why),
            "`state_dict()` gives a dictionary of the model's tensors: a new tensor under one of its names is in the dictionary, and not in the model." if fact.unloaded else
            "In a loop, `p = ...` gives the loop's name to a new tensor; the model keeps the old one." if fact.reason == "average" else
            "Training runs, and " + ("most of its steps change next to nothing." if fact.reason == "vanished" else "what this optimizer holds is not trained." if fact.beside or fact.reason in ("barren", "never-stepped") else "nothing is learned."),
            (advice(fix),),
        )  # fmt: skip
