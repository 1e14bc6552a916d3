"""Train and eval mode where the other one was meant."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ModeFact
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, number, observed, recomputed, uncalled
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class EvalModeTraining(AuditRule):
    """A training step is taken while the model is in eval mode: dropout and BatchNorm are switched off.

    What happened
    -------------
    The optimizer took a step on a model whose `training` flag is False, and the model holds layers that
    behave differently in training.

    Why
    ---
    `eval()` is called for validation and stays until `train()` is called. In eval mode dropout passes
    everything and BatchNorm uses its running values, which then never change. Models loaded with
    `from_pretrained` start in eval mode.

    Example
    -------
    Dropout does nothing in eval mode. This prints tensor([1., 1., 1., 1.]):

        import torch

        layer = torch.nn.Dropout(0.5).eval()
        print(layer(torch.ones(4)))

    Fix
    ---
    `model.train()` at the start of every training epoch. Where only some layers are meant to stay fixed,
    call `eval()` on those.

    Common false explanations
    -------------------------
    "`eval()` stops gradients": it does not; `torch.no_grad()` does.
    """

    name = "eval-mode-training"
    order = 40

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.modes:
            if fact.kind == "eval-in-training":
                yield _eval_in_training(observation, fact)


def _eval_in_training(observation: Observation, fact: ModeFact) -> Diagnosis:
    site = fact.site or observation.call
    culprits = [culprit(fact.changed, Role.CREATE, "puts the model in eval mode; nothing takes it out again before the step")] if fact.changed else []
    culprits += uncalled(fact.named)
    if site is not None:
        culprits.append(culprit(site, Role.CALL, "`training` is False during this step"))
    if fact.held is not None:
        culprits.append(culprit(fact.held, Role.CALL, "this optimizer trains it, together with a model in train mode"))
    if fact.step > 1:
        title = f"from optimizer step {fact.step} on the model is trained in eval mode"
        text = f"`training` is True in the first step and False in {fact.steps} later one{'s' * (fact.steps != 1)}, from step {fact.step} on"
    else:
        title, text = "the model is trained in eval mode", "`training` is False in the step that the optimizer took"
    behave = "behaves" if len(fact.modules) == 1 else "behave"
    return Diagnosis(
        EvalModeTraining.name, title, Confidence.LIKELY, tuple(culprits),
        observed(f"{text}; {listed(fact.modules)} {behave} differently in training"),
        "In eval mode dropout lets everything pass and BatchNorm keeps its running values as they are.",
        (advice("A model that is only to be asked (a teacher, say) is not handed to the optimizer, and is called under `torch.no_grad()`; one that is to learn: call its `train()` before the training loop." if fact.beside else
                "Call `model.train()` before the training loop (and again after every validation)."),),
    )  # fmt: skip


class TrainModeEvaluation(AuditRule):
    """A trained model is evaluated while it is in train mode: dropout and batch statistics are active.

    What happened
    -------------
    Between optimizer steps the model was called without gradients, its result was compared with targets, and
    its `training` flag was True. torchsleuth ran that call again in both modes; the results differ.

    Why
    ---
    `torch.no_grad()` only stops the recording of gradients. Dropout goes on dropping, and BatchNorm goes on
    using the statistics of the batch and takes the evaluation data into its running values. The score is too
    low, changes from run to run, and depends on which samples are evaluated together.
    How other calls without gradients (a generator's samples, a teacher, a rollout) are told from an evaluation:
    their results are not compared with targets under `no_grad`.

    Example
    -------
    `no_grad` does not switch off dropout. This prints False:

        import torch

        layer = torch.nn.Dropout(0.5)
        torch.manual_seed(0)
        with torch.no_grad():
            print(bool((layer(torch.ones(100)) == 1).all()))

    Fix
    ---
    `model.eval()` before the evaluation, `model.train()` after it.

    Common false explanations
    -------------------------
    "`no_grad` switches the model to evaluation": it knows nothing of modes.
    """

    name = "train-mode-evaluation"
    order = 41

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.modes:
            if fact.kind != "train-in-evaluation" or fact.site is None:
                continue
            culprits = [*uncalled(fact.named), culprit(fact.site, Role.CALL, "`training` is True here")]
            if fact.around is not None and fact.around.span.line != fact.site.span.line:
                culprits.insert(0, culprit(fact.around, Role.CALL, "the evaluation; `training` is True in it"))
            leaves = fact.operation in ("tolist", "numpy", "__array__")
            if fact.metric is not None and fact.metric.span.line != fact.site.span.line:
                culprits.append(culprit(fact.metric, Role.OPERAND, f"here its result leaves torch, beside as many {'numbers of the data' if fact.numbers else 'labels'}" if leaves else "here its result is compared"))
            behave = "behaves" if len(fact.modules) == 1 else "behave"
            yield Diagnosis(
                self.name, "the model is evaluated in train mode", Confidence.LIKELY, tuple(culprits),
                (
                    *observed(
                        f"the call runs without gradients while `training` is True; {listed(fact.modules)} {behave} differently in training",
                        f"{'its predictions' if fact.numbers else 'the classes chosen from its result'} leave as {'a list' if fact.operation == 'tolist' else 'an array'}, and so do as many {'numbers that it is not given' if fact.numbers else 'labels'}: it is an evaluation" if leaves else
                        f"`{fact.operation}` then compares its result with another tensor, and nothing there has a history: it is an evaluation",
                    ),
                    *recomputed(f"in eval mode the same inputs give another `{fact.output}`: it differs by up to {number(fact.distance)}"),
                    *observed("BatchNorm counted this batch into its running values" if fact.updated else ""),
                ),
                "`no_grad` stops gradients, not dropout or batch statistics; those follow the mode.",
                (advice("Call `model.eval()` before the evaluation and `model.train()` after it."),),
            )  # fmt: skip


class DropoutInEval(AuditRule):
    """Dropout is active although the model is in eval mode: predictions are random.

    What happened
    -------------
    torchsleuth ran the model twice in eval mode with different random numbers. The results differ, and
    the first operation whose result differs is a dropout, or draws the mask of one that is written by hand (the features
    are multiplied with zeros and ones and divided by the share that is kept).

    Why
    ---
    `F.dropout(x, p)` drops by default (`training=True`), and `scaled_dot_product_attention` drops
    whenever `dropout_p` is above zero. Neither knows about `model.eval()`; the `nn.Dropout` module does, if it is a part of
    the model: one that is made inside `forward` is new in each call, and in train mode.

    Example
    -------
    The functional form knows nothing of modes. This prints False, because some elements are dropped
    although the module is in eval mode:

        import torch

        module = torch.nn.Linear(2, 2).eval()
        torch.manual_seed(0)
        dropped = torch.nn.functional.dropout(torch.ones(100), 0.5)
        print(bool((dropped == 1).all()))

    Fix
    ---
    `F.dropout(x, p, training=self.training)`, `dropout_p=self.p if self.training else 0.0`, or `nn.Dropout`.

    Common false explanations
    -------------------------
    "`model.eval()` switches off all dropout": only that of modules.
    """

    name = "dropout-in-eval"
    order = 15

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.modes:
            if fact.kind == "dropout-in-eval":
                if fact.metric is not None:
                    yield _dropped_by_hand(fact, fact.metric)
                    continue
                site = fact.site or observation.call
                yield Diagnosis(
                    self.name, "dropout is active in eval mode", Confidence.CERTAIN,
                    (*((culprit(fact.built, Role.CREATE, "a plain container: what is in it is no part of the model", Known.INFERRED),) if fact.built is not None else ()),
                     *((culprit(site, Role.CALL if site.library else Role.CREATE, f"`{fact.operation}` drops regardless of the mode"),) if site else ())),
                    recomputed(
                        f"in eval mode two runs with different random numbers differ by {number(fact.distance)}",
                        f"the first result that differs is that of `{fact.operation}`",
                    ),
                    "The layer that drops is no part of the model (it is made anew in the forward pass, or kept in a plain list): it is in train mode, and `model.eval()` does not reach it." if fact.stranger else
                    "A function does not know the mode of the module it is called in; it drops unless it is told not to.",
                    (advice("Make the layer a part of the model: `self.dropout = nn.Dropout(p)` in `__init__` (several in an `nn.ModuleList`), and call that here." if fact.stranger else
                            "Pass `training=self.training` (or `dropout_p=self.p if self.training else 0.0`)."),),
                )  # fmt: skip


def _dropped_by_hand(fact: ModeFact, product: Site) -> Diagnosis:
    culprits = [culprit(fact.site, Role.CREATE, "draws a mask regardless of the mode")] if fact.site is not None else []
    if fact.site is None or product.span.line != fact.site.span.line:
        culprits.append(culprit(product, Role.CALL, "multiplies the features with it"))
    return Diagnosis(
        DropoutInEval.name, "dropout written by hand is active in eval mode", Confidence.LIKELY, tuple(culprits),
        recomputed(
            f"in eval mode two runs with different random numbers differ by {number(fact.distance)}",
            f"the first result that differs is that of `{fact.operation}`, of which a mask of zeros and ones for the features is made",
        ),
        "The mask is drawn in every call. `model.eval()` only sets the flag `training` of the modules; nothing here asks for it.",
        (advice("Return the features as they are where `self.training` is False, or use `nn.Dropout`."),),
    )  # fmt: skip
