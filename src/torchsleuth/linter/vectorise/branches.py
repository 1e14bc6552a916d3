"""Conditions inside a loop: both arms are read, and what they leave behind is chosen by the test, turn by turn."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from torchsleuth.linter.vectorise.lift import Lifter
from torchsleuth.linter.vectorise.lifted import GiveUp, Lifted, expression
from torchsleuth.linter.vectorise.totals import Accumulator


@dataclass
class Store:
    """`out[index] = value`, or `+=` where `op` says so, for all turns at once."""

    target: str
    entries: list[ast.expr]
    value: Lifted
    op: ast.operator | None
    axes: tuple[str, ...]
    test: Lifted | None = None
    tests: tuple[Lifted, ...] = ()
    previous: bool = False  # out[i] = out[i - 1] + value: a running total
    helpers: dict[str, Lifted] = field(default_factory=dict)  # what the names in its index stand for in that turn


class Branches:
    """The part of a reader that reads `if`."""

    lifter: Lifter
    stores: list[Store]
    stored: dict[tuple[str, str], Lifted]
    accumulators: dict[str, Accumulator]
    helpers: list[tuple[str, Lifted]]
    tests: list[Lifted]

    def _if(self, node: ast.If) -> None:
        extreme = self._extreme(node)
        if extreme is not None:
            self._accumulate(*extreme)
            return
        test = self.lifter.condition(node.test)
        known = dict(self.lifter.env)
        stores = len(self.stores)
        self.tests.append(test)
        first_env = self._arm(node.body)
        self.tests.pop()
        middle = len(self.stores)
        second_env: dict = {}
        if node.orelse:
            self.lifter.env = dict(known)
            self.tests.append(replace(test, code=ast.UnaryOp(ast.Invert(), test.code), kept=None))
            second_env = self._arm(node.orelse)
            self.tests.pop()
        self._merge_stores(stores, middle, test)
        self._merge_arms(known, first_env, second_env, test, bool(node.orelse))

    def _arm(self, statements: list[ast.stmt]) -> dict:
        self._body(statements)
        return dict(self.lifter.env)

    def _merge_arms(self, known: dict, first: dict, second: dict, test: Lifted, has_else: bool) -> None:
        env = dict(known)
        for variable in set(first) | set(second):
            a, b = first.get(variable), second.get(variable)
            before = known.get(variable)
            if a is before and (b is before or not has_else):
                continue
            if variable in self.accumulators:
                env[variable] = a if a is not None else b
                env.pop(variable)
                self.lifter.carried[variable] = "a running total"
                continue
            if isinstance(a, Lifted) and isinstance(b, Lifted) and before is None:
                env[variable] = self.lifter.where(test, a, b)
                self.helpers.append((variable, env[variable]))
            elif before is None:
                env.pop(variable, None)
                self.lifter.carried[variable] = "set only under a condition"
            else:
                env[variable] = a if not has_else or b is before else b if a is before else a
                if has_else and a is not before and b is not before:
                    raise GiveUp(f"`{variable}` is changed in both arms of a condition")
        self.lifter.env = env

    def _merge_stores(self, start: int, middle: int, test: Lifted) -> None:
        """The same place written in both arms: one value, chosen by the test."""
        depth = len(self.tests)
        first, second = self.stores[start:middle], self.stores[middle:]
        for one in first:
            for other in second:
                if one.target == other.target and one.op is None and other.op is None and _same(one.entries, other.entries):
                    one.value = self.lifter.where(test, self._chosen(one, depth + 1), self._chosen(other, depth + 1))
                    self.stores.remove(other)
                    one.tests = tuple(self.tests)
                    one.test = self._test() if self.tests else None
                    break
        self.stored.clear()

    def _chosen(self, store: Store, depth: int) -> Lifted:
        """What a store leaves in its place: its value where its inner conditions hold, what was there otherwise."""
        value = store.value
        for test in reversed(store.tests[depth:]):
            place = ast.Subscript(expression(store.target), store.entries[0] if len(store.entries) == 1 else ast.Tuple(store.entries, ast.Load()), ast.Load())
            value = self.lifter.where(test, value, self.lifter.index(self.lifter.base(place.value), list(store.entries)))
        return value

    def _extreme(self, node: ast.If):
        """`if v > best: best = v` -> an accumulated maximum."""
        if len(node.body) != 1 or node.orelse or not isinstance(node.body[0], ast.Assign) or not isinstance(node.test, ast.Compare):
            return None
        target, value = node.body[0].targets[0], node.body[0].value
        if not isinstance(target, ast.Name) or len(node.test.ops) != 1:
            return None
        left, right, op = ast.unparse(node.test.left), ast.unparse(node.test.comparators[0]), node.test.ops[0]
        text = ast.unparse(value)
        if target.id not in (left, right) or text not in (left, right) or target.id == text:
            return None
        greater = isinstance(op, (ast.Gt, ast.GtE))
        if not greater and not isinstance(op, (ast.Lt, ast.LtE)):
            return None
        if left == target.id:
            greater = not greater
        self.lifter.mark_scalars(node.test)
        return target.id, "amax" if greater else "amin", value


def _same(a: list[ast.expr], b: list[ast.expr]) -> bool:
    return [ast.unparse(x) for x in a] == [ast.unparse(x) for x in b]
