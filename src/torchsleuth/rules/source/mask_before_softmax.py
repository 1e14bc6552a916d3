"""A mask multiplied onto scores before softmax: masked positions still get weight."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.definitions import last_definition
from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role

MASK = re.compile(r"mask|pad", re.IGNORECASE)
SCALE = re.compile(r"scal|factor|weight|temp", re.IGNORECASE)


class MaskBeforeSoftmax(LintRule):
    """A mask is multiplied onto the scores before softmax, so masked positions get weight exp(0).

    What happened
    -------------
    `softmax(scores * mask)`, or `softmax(scores.masked_fill(mask == 0, 0))`: what is masked becomes a score of 0 before normalising.

    Why
    ---
    Softmax takes the exponential: a score of 0 becomes `exp(0) = 1`, not 0. Masked positions get an ordinary share of
    the weight, more than every position with a negative score. Nothing raises, and training even works a
    little.

    Example
    -------
    This runs and prints the weight of the masked position, which is not zero but the largest.

        import torch
        scores = torch.tensor([-1.0, -2.0, -3.0])
        mask = torch.tensor([1.0, 1.0, 0.0])
        print(torch.softmax(scores * mask, dim=-1)[2].item() > 0.5)

    Fix
    ---
    `scores.masked_fill(mask == 0, float("-inf"))` before softmax.

    Common false explanations
    -------------------------
    "Zero scores mean zero attention." Only minus infinity does.
    """

    name = "mask-before-softmax"
    calls = frozenset({"softmax", "Softmax", "log_softmax"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.path and not call.is_torch:
            return None
        value = call.receiver if call.receiver is not None and call.receiver.is_tensor else call.args[0] if call.args else None
        filled = _filled_with_zero(call)
        if filled is not None:
            return self._zero_filled(filled, call, view)
        if value is not None and value.op == "either":  # `if mask is not None: scores = scores * mask`
            value = next((i for i in value.inputs if i.op in ("mul", "mul_") and _mask_operand(i.node) is not None), None)
        node = value.node if value is not None and value.is_tensor and value.op in ("mul", "mul_") else None
        if value is not None and value.kind == "unknown" and call.is_torch:
            node = _multiplied(call)  # whatever it is: softmax takes tensors
        if node is None:
            return None
        mask = _mask_operand(node)
        if mask is None or _is_applied_again(mask, call) or _holds_scores(mask, call) or _is_multiplied_by_one_number(mask, node, call):
            return None
        return self.diagnosis(
            f"`{view.short(node)}` before softmax does not mask: exp(0) is 1",
            [
                view.culprit(Role.OPERAND, node, "masked scores become 0, not minus infinity", call.frame),
                view.culprit(Role.CALL, call.node, "gives them weight exp(0)", call.frame),
            ],
            f"Where `{ast.unparse(mask)[:40]}` is 0 the score becomes 0, and softmax gives it weight exp(0) = 1 before normalising: more "
            "than every position with a negative score.",
            Confidence.LIKELY,
            fixes=[advice('`scores.masked_fill(mask == 0, float("-inf"))` before softmax')],
        )

    def _zero_filled(self, filled: ast.Call, call: Call, view: View) -> Found:
        mask = filled.args[0]
        if _is_applied_again(mask, call) or call.name == "log_softmax" and OF_POSITIONS.search(ast.unparse(mask)):
            return None
        return self.diagnosis(
            f"`{view.short(filled)}` before softmax does not mask: exp(0) is 1",
            [
                view.culprit(Role.OPERAND, filled, "masked scores become 0, not minus infinity", call.frame),
                view.culprit(Role.CALL, call.node, "gives them weight exp(0)", call.frame),
            ],
            f"Where `{ast.unparse(mask)[:40]}` is True the score becomes 0, and softmax gives it weight exp(0) = 1 before normalising: more "
            "than every position with a negative score.",
            Confidence.LIKELY,
            fixes=[advice('fill with `float("-inf")` (or `torch.finfo(scores.dtype).min`) before softmax')],
        )


# In a loss: positions that are not counted, whose whole row is filled so that nothing overflows.
OF_POSITIONS = re.compile(r"target|label|ignore|valid", re.IGNORECASE)
# Rows without any position left are filled so that softmax gives no NaN; what is not a number is replaced.
OTHER_PURPOSE = re.compile(r"nan|inf|finite|all|any|full|row|empty|inval|diag|eye", re.IGNORECASE)


def _filled_with_zero(call: Call) -> ast.Call | None:
    """`scores.masked_fill(mask == 0, 0)`, which softmax is given, written out or just set."""
    receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    if receiver is not None and call.receiver is not None and call.receiver.is_tensor:
        given = receiver
    else:
        given = call.node.args[0] if call.node.args and call.is_torch else None
    if isinstance(given, ast.Name):
        made = last_definition(call.frame.node, given.id, call.node.lineno)
        given = made.value if isinstance(made, ast.Assign) else None
    if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute) or given.func.attr not in ("masked_fill", "masked_fill_") or len(given.args) != 2:
        return None
    mask, number = given.args
    zero = isinstance(number, ast.Constant) and isinstance(number.value, (int, float)) and number.value == 0 and not isinstance(number.value, bool)
    text = ast.unparse(mask)
    return given if zero and MASK.search(text) and not OTHER_PURPOSE.search(text) else None


def _mask_operand(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.AugAssign):
        parts = [node.value]
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    else:
        return None
    for part in parts:
        text = ast.unparse(part)
        if isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) and MASK.search(text.split("(")[0]) and not SCALE.search(text):
            return part
        if isinstance(part, ast.Compare):
            return part
    return None


def _holds_scores(mask: ast.expr, call: Call) -> bool:
    """`dist_mask = torch.where(inside, 0, -1e6)`, `scores_masked`: what is large and negative where it does not count."""
    if not isinstance(mask, ast.Name):
        return False
    made = last_definition(call.frame.node, mask.id, call.node.lineno)
    numbers = [n.value for n in ast.walk(made.value) if isinstance(n, ast.Constant)] if isinstance(made, ast.Assign) else []
    return mask.id.lower().endswith("masked") or any(isinstance(n, (int, float)) and abs(n) >= 1000 for n in numbers) or (
        isinstance(made, ast.Assign) and "inf" in ast.unparse(made.value))  # fmt: skip


def _is_multiplied_by_one_number(mask: ast.expr, node: ast.AST, call: Call) -> bool:
    """`sharpness * mask`: there are no scores that could be masked."""
    other = (node.right if node.left is mask else node.left) if isinstance(node, ast.BinOp) else None
    if isinstance(other, ast.UnaryOp):
        other = other.operand
    if isinstance(other, ast.Name):
        made = last_definition(call.frame.node, other.id, call.node.lineno)
        other = made.value if isinstance(made, ast.Assign) and isinstance(made.value, (ast.Attribute, ast.Constant)) else other
    value = call.frame.env.get(other.id) if isinstance(other, ast.Name) else None
    return isinstance(other, (ast.Constant, ast.Attribute)) or value is not None and value.kind == "number"


def _multiplied(call: Call) -> ast.AST | None:
    """The product that softmax is given, written out or just set."""
    given = call.node.args[0] if call.node.args else None
    if isinstance(given, ast.Name):
        made = last_definition(call.frame.node, given.id, call.node.lineno)
        if isinstance(made, ast.AugAssign):
            return made if isinstance(made.op, ast.Mult) else None
        given = made.value if made is not None else None
    return given if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult) else None


def _is_applied_again(mask: ast.expr, call: Call) -> bool:
    """`softmax(scores * mask) * mask`, normalised once more: the masked weights are taken out again."""
    text = ast.unparse(mask)
    for node in ast.walk(call.frame.node):
        if getattr(node, "lineno", 0) < call.node.lineno:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and text in (ast.unparse(node.left), ast.unparse(node.right)):
            if not any(child is node for child in ast.walk(call.node)):
                return True
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and ast.unparse(node.value) == text:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("masked_fill", "masked_fill_") and node.args:
            if ast.unparse(node.args[0]) == text and not any(child is node for child in ast.walk(call.node)):
                return True
    return False
