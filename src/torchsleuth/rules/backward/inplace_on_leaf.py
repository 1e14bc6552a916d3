"""An in-place write into a leaf that requires grad, or into a view of one."""

from __future__ import annotations

from torchsleuth.evidence import Evidence, InplaceTarget
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short


class InplaceOnLeaf(CrashRule):
    """An in-place operation was applied to a leaf tensor that requires grad, or to a view of one.

    What happened
    -------------
    A leaf is a tensor that no recorded operation made: a parameter, or a tensor created with `requires_grad=True`.
    Its `.grad` is where backward puts the result. An in-place operation tried to overwrite it while gradients were
    being recorded, and PyTorch refused at once, before anything was changed.

    Why
    ---
    After the write the tensor would be the result of an operation, so it would not be a leaf any more, and the values
    that the gradient is asked for would be gone. `x[i] = v`, `x += y`, `x.index_put_(...)` and `x.fill_(0)` are all such
    writes. Which indices are used, and where they come from, has nothing to do with it.

    Example
    -------
    This raises "a leaf Variable that requires grad":

        import torch

        x = torch.zeros(5, requires_grad=True)
        x.index_put_((torch.tensor([1, 3]),), torch.tensor([1.0, 2.0]))

    Fix
    ---
    If the write is part of the model, write into a copy that has a history: `x = x.clone()` first, or use the
    out-of-place form (`x.index_put(...)`, `x + y`, `torch.where`). If it is an initialisation or a manual update of a
    parameter, do it under `with torch.no_grad():`.

    Common false explanations
    -------------------------
    "Static indices work and computed ones fail." Both raise the same error: the example above has static ones, this has
    computed ones and raises "a leaf Variable that requires grad":

        import torch

        x = torch.zeros(5, requires_grad=True)
        x.index_put_((torch.randn(5).argmax().reshape(1),), torch.tensor([1.0]))

    "Detaching the indices helps." Integer indices carry no gradient in the first place; this still raises
    "a leaf Variable that requires grad":

        import torch

        x = torch.zeros(5, requires_grad=True)
        y = torch.randn(5, requires_grad=True)
        x.index_put_((torch.argmax(y).detach().reshape(1),), torch.tensor([1.0]))

    "In-place operations on a tensor that requires grad are forbidden." Only on leaves. This runs and prints the right
    gradient:

        import torch

        x = torch.zeros(5, requires_grad=True)
        h = x.clone()
        h[0] = 1.0
        h.sum().backward()
        print(x.grad)
    """

    name = "inplace-on-leaf"
    messages = (r"leaf Variable that requires grad (is being|was) used in an in-?place operation",)
    needs = ("inplace_target",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        target = evidence.inplace_target
        if target is None:
            frame = evidence.user_frame
            if frame is None:
                return None
            return Diagnosis(
                self.name,
                "An in-place operation was applied to a leaf tensor that requires grad",
                Confidence.LIKELY,
                (frame.place.culprit(Role.MUTATE, "this writes in place"),),
                (),
                _WHY,
                tuple(_fixes(None)),
            )
        leaf = target.base if target.base is not None and not target.tensor.is_leaf else target.tensor
        return Diagnosis(
            self.name,
            f"`{short(target.place.source)}` writes in place into {leaf.called}, a leaf that requires grad",
            Confidence.CERTAIN,
            tuple(_culprits(target, leaf.called)),
            (
                Fact(
                    f"{leaf.called} has shape {leaf.size}, dtype {leaf.dtype}, requires_grad=True and no grad_fn: it is a "
                    f"leaf{', a parameter' if leaf.kind == 'parameter' else ''}. Nothing was written; the error came first.",
                    Known.OBSERVED,
                ),
                *_sameness(target, leaf.called),
            ),
            _WHY,
            tuple(_fixes(target)),
        )


_WHY = (
    "Backward stores its result in the `.grad` of leaves. Overwriting a leaf while operations are recorded would make it "
    "the result of an operation and destroy the values its gradient is for, so PyTorch refuses such writes."
)



def _sameness(target: InplaceTarget, leaf: str) -> list[Fact]:
    if target.same_as is None:
        return []
    written, other = target.same_as
    return [Fact(f"`{written}` and `{other}` are one and the same tensor, {leaf}: what was to be a copy is no copy.", Known.OBSERVED)]


def _culprits(target: InplaceTarget, leaf: str) -> list[Culprit]:
    found = []
    if target.place.via is not None:
        found.append(target.place.via.culprit(Role.CALL, "your call, in which the library writes"))
    found.append(target.place.culprit(Role.MUTATE, f"writes into {leaf}"))
    if target.made is not None and target.made.span != target.place.span:
        if target.base is not None and not target.tensor.is_leaf:
            found.append(target.made.culprit(Role.CREATE, f"made {target.tensor.called}, a view of {leaf}"))
        else:
            what = "made {} require grad" if target.made_by == "requires_grad_" else "made {}"
            found.append(target.made.culprit(Role.CREATE, what.format(leaf)))
    return found


def _fixes(target: InplaceTarget | None) -> list[Fix]:
    if target is not None and target.same_as is not None:
        copies = f"Keep copies: `.detach().clone()` of each tensor (or `copy.deepcopy` of the module) where `{target.same_as[0]}` is made."
        return [Fix(copies, Applicability.DISPLAY_ONLY, meaning=f"The write then goes into the copy, and `{target.same_as[1]}` keeps its values.")]
    name = target.tensor.name if target is not None and target.tensor.name else "x"
    operation = target.operation if target is not None else ""
    if operation.endswith("_") and not operation.startswith("__"):
        first = f"Use the out-of-place form and bind its result: `{name} = {name}.{operation.rstrip('_')}(...)`."
    elif operation == "__setitem__":
        copy = f"{name.rpartition('.')[2]}_copy" if name.replace(".", "_").isidentifier() else "copy"
        first = f"Write into a copy that has a history: `{copy} = {name}.clone()`, then assign into that and use it."
    else:
        first = f"Compute a new tensor instead of overwriting: `y = {name} + ...`, and use `y` from there on."
    fixes = [
        Fix(first, Applicability.DISPLAY_ONLY, meaning=f"The gradient of `{name}` then flows through the operation."),
        Fix(
            "If this is an initialisation or a manual update, wrap it in `with torch.no_grad():`.",
            Applicability.DISPLAY_ONLY,
            meaning="The write is then not differentiated.",
        ),
    ]
    return fixes[::-1] if target is not None and target.tensor.kind == "parameter" else fixes
