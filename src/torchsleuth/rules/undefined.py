"""Operations that make NaN or infinity of finite numbers: of which, and what to do about it, a few words for each."""

from __future__ import annotations

# What makes NaN of finite numbers, and of which.
NAN_OF = {
    "div": "0 / 0", "truediv": "0 / 0", "true_divide": "0 / 0", "log": "the logarithm of a negative number", "sqrt": "the root of a negative number",
    "rsqrt": "the root of a negative number", "pow": "a root of a negative number", "acos": "a number beyond 1", "asin": "a number beyond 1",
}  # fmt: skip
_FIXES = {
    "softmax": "See to it that at least one position is left in every row: do not mask the whole of it, or give such rows zeros afterwards.",
    "log": "Keep the argument above zero (`clamp_min`, an `eps`), or use the function that does it in one (`log_softmax`, `logsigmoid`).",
    "std": "Take it over more than one element, or pass `correction=0`.",
    "div": "Keep the denominator away from zero (`clamp_min`, an `eps`).",
    "sqrt": "Keep the argument above zero (`clamp_min`, an `eps`).",
    "mean": "Leave out batches in which nothing is left to average.",
    "cross_entropy": "Leave out batches in which every label is ignored, or divide a sum by the count yourself (`clamp_min(1)`).",
    "exp": "Subtract the largest value first (`logsumexp`, `log_softmax`), or bound the argument.",
}
_LIKE = {"log_softmax": "softmax", "true_divide": "div", "var": "std", "rsqrt": "sqrt", "pow": "sqrt", "nll_loss": "cross_entropy",
         "log2": "log", "log10": "log", "log1p": "log", "nanmean": "mean", "expm1": "exp"}  # fmt: skip


def remedy(operation: str) -> str:
    return _FIXES.get(_LIKE.get(operation, operation), "Keep its inputs inside the range in which it is defined.")
