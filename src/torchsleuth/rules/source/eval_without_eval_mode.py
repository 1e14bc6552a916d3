"""Evaluation with the model in training mode, or with gradients recorded."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Frame, FunctionNode
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.training import mentions
from torchsleuth.model import Confidence, Role

NAMES = re.compile(r"^_?(eval|evaluate|evaluation|validate|validation|valid|test|test_epoch|test_model|eval_epoch|eval_model|"
                   r"evaluate_model|validate_model|validate_epoch|val_epoch|test_loop|eval_loop|val_loop|compute_accuracy|"
                   r"get_accuracy|calculate_accuracy)$")  # fmt: skip
MODELS = re.compile(r"^(model|net|network|classifier|encoder|module)$")
OWN_MODES = ("training", "train", "is_training", "deterministic", "compute_force", "compute_forces")  # the model is told what it is used for
LOADERS = re.compile(r"load|data|dl$|batch|iter", re.IGNORECASE)


class EvalWithoutEvalMode(LintRule):
    """A model is evaluated without `model.eval()` and without `torch.no_grad()`.

    What happened
    -------------
    A function that evaluates a model over a data loader neither switches the model to evaluation mode nor turns
    gradient recording off.

    Why
    ---
    In training mode dropout still drops and batch normalisation still uses (and updates!) batch statistics, so the
    measured numbers are noisy and the model itself changes. Without `no_grad` every batch builds a graph that
    nobody uses, which costs time and memory.

    Example
    -------
    This runs and prints False: the same input gives two answers, because dropout is still on.

        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
        x = torch.randn(1, 8)
        print(torch.equal(model(x), model(x)))

    Fix
    ---
    `model.eval()` before, `with torch.no_grad():` around the loop, and `model.train()` before training goes on.

    Common false explanations
    -------------------------
    "no_grad switches dropout off." It does not: that is `eval()`. "eval() stops gradients." It does not: that is
    `no_grad()`.
    """

    name = "eval-without-eval-mode"

    def on_function(self, node: FunctionNode, frame: Frame, view: View) -> Found:
        if not NAMES.match(node.name) or frame.no_grad or frame.inlined:
            return None
        model = next((a.arg for a in node.args.args if MODELS.match(a.arg)), None)
        if model is None or mentions(node, "eval", "no_grad", "inference_mode", "set_grad_enabled", "backward", "train", "training", "grad", "requires_grad"):
            return None
        if any(_is_given(model, item.context_expr) for n in ast.walk(node) if isinstance(n, ast.With) for item in n.items):
            return None  # a context of its own may set what is needed
        if _is_prepared(node.name, view.interpreter.tree):
            return None
        for loop in ast.walk(node):
            if not isinstance(loop, ast.For) or not LOADERS.search(ast.unparse(loop.iter)):
                continue
            call = next((n for n in ast.walk(loop) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == model), None)
            if call is not None and not any(k.arg in OWN_MODES for k in call.keywords):
                return self.diagnosis(
                    f"`{node.name}` runs `{model}` in whatever mode it is in, and records gradients",
                    [view.culprit(Role.CALL, call, f"no `{model}.eval()`, no `no_grad`", frame)],
                    f"Nothing here calls `{model}.eval()` or turns gradients off. If the model comes from training, dropout still drops and "
                    "batch normalisation still updates its statistics, and each batch builds a graph nobody uses.",
                    Confidence.LIKELY,
                    fixes=[advice(f"`{model}.eval()` first and `with torch.no_grad():` around the loop")],
                )
        return None


def _is_given(model: str, context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and any(isinstance(n, ast.Name) and n.id == model for n in ast.walk(context))


def _is_prepared(function: str, tree: ast.Module) -> bool:
    """Called under a context that is given something, or by a function that calls `eval()` itself; or handed on, to be called who knows where."""
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    if any(isinstance(n, ast.Name) and n.id == function and isinstance(n.ctx, ast.Load) and id(n) not in called for n in ast.walk(tree)):
        return True
    for node in ast.walk(tree):
        if not isinstance(node, (ast.With, ast.FunctionDef)) or getattr(node, "name", "") == function:
            continue
        calls = any(isinstance(n, ast.Call) and function in (getattr(n.func, "id", ""), getattr(n.func, "attr", "")) for n in ast.walk(node))
        if calls and isinstance(node, ast.With) and any(isinstance(i.context_expr, ast.Call) for i in node.items):
            return True
        if calls and isinstance(node, ast.FunctionDef) and mentions(node, "eval", "no_grad", "inference_mode"):
            return True
    return False
