"""The backward pass, watched node by node: where a gradient becomes exactly zero, or stops being finite.

Hooks on the nodes of the graph note one number for each gradient that passes (a sum of absolute values,
left on the device); they change nothing. A node is traced back to its expression by its sequence number,
which lies between the numbers read before and after the call that made it.
"""

from __future__ import annotations

import ast
import inspect
import typing

import torch
from torch import nn

from torchsleuth.auditor.gradients.factors import zero_factor
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Cut, Vanish
from torchsleuth.auditor.tracing.modestack import unseen
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of
from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.origin import Origin, origin_of_file

MOST_NODES = 20_000
MOST_REFUSALS = 64
_PRODUCTS = {"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "conv1d", "conv2d", "conv3d", "mv", "dot",
             "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "mul", "embedding"}  # fmt: skip
_FACTORS = {"mul", "__mul__", "__rmul__", "__imul__", "where", "masked_fill"}
_DRAWING = {"bernoulli", "bernoulli_", "rand", "rand_like", "uniform_", "dropout"}
_DROPPING = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}


class Returned(typing.NamedTuple):
    """What a custom Function gave back for one of its inputs."""

    function: type
    position: int
    following: typing.Any  # the node that takes it
    arriving: list[torch.Tensor]
    leaving: list[torch.Tensor]


class BackwardWatch:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._passed: list[tuple[int, list[int], list[torch.Tensor], list[torch.Tensor]]] = []  # node, the nodes it passes on to, what arrives, what leaves
        self._handles: list[typing.Any] = []
        self._given: dict[int, list[torch.Tensor]] = {}  # tensor -> sums of what the operations gave back for it, before its own hooks
        self._refused: list[tuple[type, int, set[int]]] = []  # a Function, which of its gradients was None, the tensors that would have got it
        self._returned: list[Returned] = []

    def forget(self) -> None:
        """What was seen belongs to another backward pass."""
        self._passed, self._given, self._refused, self._returned = [], {}, [], []

    def attach(self, loss: torch.Tensor) -> None:
        if loss.grad_fn is None:
            return
        seen, todo = {loss.grad_fn}, [loss.grad_fn]
        while todo and len(seen) <= MOST_NODES:
            node = todo.pop()
            if node.name() != "struct torch::autograd::AccumulateGrad" and not node.name().endswith("AccumulateGrad"):
                going_on = [at for at, (f, _) in enumerate(node.next_functions) if f is not None and getattr(f, "variable", None) is None]
                self._handles.append(node.register_hook(unseen(self._hook(node._sequence_nr(), [node.next_functions[at][0]._sequence_nr() for at in going_on], going_on))))
                hooked = {at: id(v) for at, (f, _) in enumerate(node.next_functions) if (v := getattr(f, "variable", None)) is not None and v._backward_hooks}
                if hooked:
                    self._handles.append(node.register_hook(unseen(self._giving(hooked))))
                if (function := getattr(node, "_forward_cls", None)) is not None:
                    self._handles.append(node.register_hook(unseen(self._refusing(function, node.next_functions))))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    todo.append(following)

    def _hook(self, number: int, to: list[int], going_on: list[int]):
        """`going_on`: which of its inputs were computed themselves; what a layer's own weights get says nothing of what lies before it."""

        def note(leaving: typing.Any, arriving: typing.Any) -> None:
            try:
                self._passed.append((number, to, _sums(arriving), _sums([leaving[at] for at in going_on] if going_on else leaving)))
            except Exception:  # an unusual layout; the backward pass must not notice
                pass

        return note

    def _giving(self, hooked: dict[int, int]):
        def note(leaving: typing.Any, arriving: typing.Any) -> None:
            for position, key in hooked.items():
                self._given.setdefault(key, []).extend(_sums(leaving[position : position + 1]))

        return note

    def _refusing(self, function: type, edges: tuple):
        def note(leaving: typing.Any, arriving: typing.Any) -> None:
            for position, (gradient, (following, _)) in enumerate(zip(leaving, edges, strict=False)):
                if following is None:
                    continue
                if gradient is None and len(self._refused) < MOST_REFUSALS:
                    self._refused.append((function, position, leaves_below(following)))
                elif gradient is not None and len(self._returned) < MOST_REFUSALS:
                    self._returned.append(Returned(function, position, following, _sums(arriving), _sums((gradient,))))

        return note

    def refusals(self, model: nn.Module, states: dict[str, str], optimized: typing.Container[int] | None) -> list[Cut]:
        """Parameters that are to be trained and have no gradient, whose history goes through a `torch.autograd.Function` that gave None for it."""
        found: dict[typing.Any, Cut] = {}
        for function, position, tensors in self._refused:
            who = tuple(n for n, p in model.named_parameters() if id(p) in tensors and states.get(n) == "none" and (optimized is None or id(p) in optimized))
            site = returned_none(function, position)
            if who and site is not None:
                before = found[site.span].weights if site.span in found else ()
                found[site.span] = Cut(f"{function.__name__}.backward", "function", site, tuple(sorted({*before, *who})))
        return list(found.values())

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def vanished(self, states: dict[str, str], keys: dict[str, int], model: nn.Module) -> list[Vanish]:
        """For parameters whose gradient is zero or NaN: the expression behind which it is; or the program's own hook on the parameter."""
        hooks = {n: s for n, s in _hook_sites(model).items() if any(_state(total) == "ok" for total in self._given.get(id(model.get_parameter(n)), ()))}
        found: list[Vanish] = []
        for kind in ("nan", "zero"):
            names = [name for name, state in sorted(states.items()) if state == kind and name in keys]
            if not names:
                continue
            behind = {name: self.trace.descendants({keys[name]}) for name in names}
            left = set(names)
            for number, _, arriving, leaving in self._passed:  # in the order of the backward pass: the loss first
                states_in = set(map(_state, arriving))
                if not leaving or (not states_in <= {"ok", "zero"} if kind == "nan" else "ok" not in states_in):
                    continue
                if not all(_state(value) in (("nan", "inf") if kind == "nan" else ("zero",)) for value in leaving):
                    continue
                op = self._op(number)
                if op is None or (kind == "zero" and self._goes_on(op)):
                    continue
                mine = sorted(name for name in left if any(seen.key in behind[name] for seen in op.ins))
                own: tuple[str, ...] = ()
                if kind == "zero" and op.name.rstrip("_") in _PRODUCTS:
                    # A weight whose input is zero (the first state of a recurrent cell) has a zero gradient, rightly.
                    direct = {name for name in mine if keys[name] in {seen.key for seen in op.ins}}
                    left -= direct
                    mine = [name for name in mine if name not in direct]
                    own = tuple(sorted(name for name in direct if not model.get_parameter(name).detach().any()))
                if kind == "zero" and self._dropped(op):
                    left -= set(mine)  # in this step; the next one draws other numbers
                elif mine:
                    left -= set(mine)
                    factor = zero_factor(self.trace, op) if kind == "zero" else None
                    dropped = str(_share_dropped(op)) if op.name in _DROPPING else ""
                    found.append(Vanish(kind, tuple(mine), op.name, self.trace.site(op), _sizes(op), factor is not None, *(factor or ()), dropped=dropped, zeros=own, filled=self._settings(op)))
            if kind == "zero":
                by_function = self._zeroed_by_functions({id(model.get_parameter(name)): name for name in left})
                left -= {name for one in by_function for name in one.weights}
                found += by_function
            for name in sorted(left & hooks.keys()):
                left.discard(name)
                found.append(Vanish(kind, (name,), "hook", hooks[name]))
            if left:
                found.append(Vanish(kind, tuple(sorted(left)), "", None))
        return found

    def _goes_on(self, op: Op) -> bool:
        """One call may be many nodes (`pad_packed_sequence` is one for each step): what becomes zero in one of them leaves it by another."""
        first, last = op.numbers
        return any(
            _state(value) == "ok" and not first <= following < last
            for number, to, _, leaving in self._passed if first <= number < last
            for following, value in zip(to, leaving, strict=False)
        )  # fmt: skip

    def _settings(self, op: Op) -> tuple[Site, ...]:
        """Where a normalisation that runs over one element was built."""
        if op.name not in ("layer_norm", "rms_norm") or not op.outs or op.outs[0].size[-1:] != (1,):
            return ()
        made = [self.trace.ops[at] for seen in op.ins[1:2] if (at := self.trace.producer.get(seen.key)) is not None and at < op.index]
        return tuple(site for one in made if one.writes and (site := self.trace.site(one)) is not None and "Norm" in site.source)

    def _dropped(self, op: Op) -> bool:
        """All of it was multiplied by zeros that the same function drew (a branch that is left out now and then, of a batch of one sample)."""
        if op.name in _DROPPING:
            return _share_dropped(op) != 1  # all of it, in every step: no draw
        if op.name.rstrip("_") not in _FACTORS or op.place.code is None or op.place.code.co_name == "<module>":
            return False
        makers = (self.trace.producer.get(key) for key in self.trace.ancestors({seen.key for seen in op.ins if not seen.requires_grad}))
        return any(index is not None and (drawn := self.trace.ops[index]).name in _DRAWING and drawn.place.code is op.place.code for index in makers)

    def _zeroed_by_functions(self, names: dict[int, str]) -> list[Vanish]:
        """Functions of the program's whose `backward` was given a gradient and gave back zeros, which is all that these parameters got."""
        behind: dict[tuple[type, int], set[str]] = {}
        for one in self._returned:
            if names and "ok" in map(_state, one.arriving) and set(map(_state, one.leaving)) == {"zero"}:
                mine = {names.pop(key) for key in leaves_below(one.following) & names.keys()}
                behind.setdefault((one.function, one.position), set()).update(mine)
        places = {(function, position): returned_at(function, position) for (function, position), mine in behind.items() if mine}
        return [Vanish("zero", tuple(sorted(behind[key])), key[0].__name__, site, by_function=True) for key, site in places.items() if site is not None]

    def _op(self, number: int) -> Op | None:
        return next((op for op in reversed(self.trace.ops) if op.numbers[0] <= number < op.numbers[1]), None)


def leaves_below(node: typing.Any) -> set[int]:
    """The identities of the tensors that a gradient which goes in at this node ends in."""
    return {id(variable) for variable in variables_below(node)}


def variables_below(node: typing.Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    seen, todo = {node}, [node]
    while todo and len(seen) <= MOST_NODES:
        node = todo.pop()
        if (variable := getattr(node, "variable", None)) is not None:
            found.append(variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return found


def _hook_sites(model: nn.Module) -> dict[str, Site]:
    """Parameters with a gradient hook that is written in the user's code, and where: `p.register_hook(function)`."""
    found = {}
    for name, parameter in model.named_parameters():
        for hook in (parameter._backward_hooks or {}).values():
            code = getattr(inspect.unwrap(hook) if callable(hook) else None, "__code__", None)
            if code is None or origin_of_file(code.co_filename) is not Origin.USER or (tree := syntax_of(code.co_filename)) is None:
                continue
            made = [n for n in ast.walk(tree) if isinstance(n, (ast.Lambda, ast.FunctionDef)) and n.lineno == code.co_firstlineno]
            if made:
                node = made[0].body if isinstance(made[0], ast.Lambda) else made[0].body[-1]
                found[name] = site_of_node(code.co_filename, node, code.co_qualname)
    return found


def returned_none(function: type, position: int) -> Site | None:
    """The `None` that this Function's `backward` returns at that place of its tuple, in the user's source."""
    return returned_at(function, position, lambda entry: isinstance(entry, ast.Constant) and entry.value is None)


def returned_at(function: type, position: int, wanted: typing.Callable[[ast.expr], bool] = lambda entry: True) -> Site | None:
    """What this Function's `backward` returns at that place of its tuple; or all of it, where that cannot be read off its one `return`."""
    code = getattr(inspect.unwrap(getattr(function, "backward", None)), "__code__", None)
    if code is None or origin_of_file(code.co_filename) is not Origin.USER or (tree := syntax_of(code.co_filename)) is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and code.co_firstlineno <= node.lineno < code.co_firstlineno + 3 + len(node.decorator_list):
            returns = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None]
            entries = [r.elts[position] for r in returns if isinstance(r, ast.Tuple) and position < len(r.elts)]
            named = [e for e in entries if wanted(e)] or [r for r in returns if len(returns) == 1]
            return site_of_node(code.co_filename, named[0], code.co_qualname) if named else None
    return None


def _sums(gradients: typing.Any) -> list[torch.Tensor]:
    found = []
    for gradient in gradients:
        if gradient is not None:
            values = gradient._values() if gradient.is_sparse else gradient
            found.append(values.detach().abs().sum())
    return found


def _state(total: torch.Tensor) -> str:
    value = float(total)
    return "nan" if value != value else "inf" if value == float("inf") else "zero" if value == 0 else "ok"


def _share_dropped(op: Op) -> typing.Any:
    """The `p` of a dropout, as the program gave it: `F.dropout(x, self.training)` gives True, which is 1."""
    return op.argument(1, "p", 0.5)


def _sizes(op: Op) -> str:
    return " -> ".join(str(list(seen.size)) for seen in (*op.ins[:1], *op.outs[:1]))
