"""Which expression of a statement made a node: compared with the nodes torch really builds."""

from __future__ import annotations

import ast

import pytest
import torch

from torchsleuth.capture.alignment import expression_of_node

OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@")


def _nodes(value: torch.Tensor) -> set[str]:
    """Names of all nodes of a graph but the leaves'."""
    names, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and not node.name().endswith("AccumulateGrad"):
            names.add(node.name())
            waiting += [following for following, _ in node.next_functions]
    return names


def _tensor() -> torch.Tensor:
    return torch.rand(3, 3, requires_grad=True)


def _chosen(names: set[str], text: str) -> set[str | None]:
    statement = ast.parse(text).body[0]
    found = {expression_of_node(name, statement) for name in names}
    return {ast.unparse(node) if node is not None else None for node in found}


@pytest.mark.parametrize("one", OPERATORS)
@pytest.mark.parametrize("other", OPERATORS)
def test_operators_are_told_apart(one: str, other: str) -> None:
    left, right, scope = f"a {one} b", f"c {other} d", {name: _tensor() for name in "abcd"}
    if one == other or {one, other} == {"*", "/"}:
        return  # `/` of a number is a multiplication by its reciprocal: these two share a kind
    text = f"y = [({left}), ({right})]"
    assert _chosen(_nodes(eval(left, scope)), text) == {left}
    assert _chosen(_nodes(eval(right, scope)), text) == {right}


@pytest.mark.parametrize(
    "expression", ["a // 2", "2 // a", "a // b", "a.floor_divide(2)", "torch.floor_divide(a, b)", "torch.div(a, 2, rounding_mode='floor')", "a / 2", "2 / a"]
)
def test_divisions(expression: str) -> None:
    scope = {"a": _tensor(), "b": _tensor(), "torch": torch}
    assert _chosen(_nodes(eval(expression, scope)), f"y = torch.exp({expression}) + c - d") == {expression.replace('"', "'")}


@pytest.mark.parametrize("operator", OPERATORS[:-1])
def test_writing_operators(operator: str) -> None:
    scope = {"a": _tensor() * 1, "b": _tensor()}
    exec(f"a {operator}= b", scope)
    assert _chosen({scope["a"].grad_fn.name()}, f"a {operator}= b") == {f"a {operator}= b"}


WRITES = [
    ("a[0] = b.sum()", "a[0]"),
    ("a[mask] = b[mask]", "a[mask]"),
    ("a[0] += b.sum()", "a[0] += b.sum()"),
    ("a[:, 1] *= 2", "a[:, 1] *= 2"),
    ("a[mask] -= b[mask]", "a[mask] -= b[mask]"),
]


@pytest.mark.parametrize(("text", "expected"), WRITES)
def test_writes_into_a_part(text: str, expected: str) -> None:
    scope = {"a": _tensor() * 1, "b": _tensor(), "mask": torch.tensor([True, False, True])}
    exec(text, scope)
    assert _chosen({scope["a"].grad_fn.name()}, text) == {expected}
