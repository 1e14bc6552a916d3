"""A layer built for another size than it is given: which expression to change, to what, and in which file.

The number of a constructor comes through links: `nn.LayerNorm(features)` in a class, `Head(width, 2)` in another, `width=12`. The one
to change is the first that is a bare number, or that stands beside the layer whose output is the input (the producer): further in
it would be wrong for other uses, further out it would change the producer, too. The best text is what the producer was built for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsleuth.evidence_forward import Made, Operand
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Function, Script, Scripts, called
from torchsleuth.frozen import frozen
from torchsleuth.model import Fix

# Where the constructor of a layer has the size of what the layer returns.
_OUTPUTS = {
    **dict.fromkeys(("Linear", "LazyLinear"), (1, "out_features")),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), (1, "out_channels")),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"), (1, "hidden_size")),
    "Embedding": (1, "embedding_dim"),
}
_MOST_ADDED = 8  # rows that a count may have missed: special tokens, the end of a range


@frozen
class Link:
    """An expression on the way of a number from where it is set to the constructor."""

    script: Script
    node: ast.expr

    @property
    def text(self) -> str:
        return self.script.segment(self.node)

    @property
    def scope(self) -> ast.AST:
        return self.script.scope_of(self.node)


@frozen
class Producer:
    """The layer whose output has the size: the expressions through which it was given that."""

    links: tuple[Link, ...]
    twice: bool  # it returns both directions

    def beside(self, link: Link) -> Link | None:
        """What it was given in the same function as this link of another layer's; not in a class of which both are instances."""
        for own in self.links:
            same = own.script is link.script and own.scope is link.scope and own.script.parent(own.node) is not link.script.parent(link.node)
            if same and not _is_made_often(own.script, own.node):
                return own
        return None

    def text_beside(self, link: Link) -> str:
        """An expression for its size that can stand there; "" where it was given a number, or elsewhere."""
        own = self.beside(link)
        named = own is not None and isinstance(own.node, (ast.Name, ast.Attribute)) and _is_set_once(own.script, own.node, own.scope)
        return f"{'2 * ' * self.twice}{own.text}" if named else ""


def resized(
    failed: Failed, layers: tuple[str, ...], position: int, keyword: str, now: int, size: int, words: str, data: Operand, axis: int = -1, made: Made | None = None
) -> list[Fix | None]:
    """The layer for the `size` it is given at `axis` of `data`, in place of `now`."""
    if failed.operation.took is not None:
        return []  # the layer has taken other inputs
    links = _links(failed, made or failed.operation.made_for(now), layers, position, keyword)
    if not links or size <= 0 or size == now:
        return []
    title = f"Build the layer for the {counted(size, words)} it is given"
    doubt = f"Right if the layer was built for the wrong size; if {counted(size, words)} is what is wrong, change that instead."
    origin = data.origin_of(axis)
    producer = producer_of(failed.scripts, origin)
    fix = failed.scripts.fix
    own = next((link for link in links if not _is_made_often(link.script, link.node)), None)  # not what other layers are made by, too
    for text, why in _counts(failed, own, now, size, data, axis) if own is not None else ():
        return [fix(f"{title}: `{text}`.", [own.script.replace(own.node, text)], f"{why} {doubt}", safe=False)]
    for link in links:
        number = number_in(link.node)
        if number is None and (_is_made_often(link.script, link.node) or producer is None or producer.beside(link) is None):
            continue
        if link is links[0] and is_in_a_loop(link.script, link.node):
            return []
        if number not in (None, now) or number is None and not isinstance(link.node, (ast.Name, ast.Attribute, ast.Subscript)):
            return []
        text = producer.text_beside(link) if producer is not None else ""
        if text and text != link.text:
            why = f"`{text}` is what the layer before it returns."
            return [fix(f"{title}: `{text}`.", [link.script.replace(link.node, text)], f"{why} {doubt}", safe=False)]
        where = ", where its number is set" if link is not links[0] else ""
        meaning = doubt if number is not None else f"`{link.text}` stays {now} where else it is used. {doubt}"
        return [fix(f"{title}{where}.", [link.script.replace(link.node, str(size))], meaning, safe=False)]
    return []


def recomputed(failed: Failed, size: int, words: str, data: Operand) -> Fix | None:
    """For a layer whose size was computed for inputs of another size: that one number, set to the size they have."""
    operation = failed.operation
    if operation.took is not None:
        return None
    found = failed.scripts.node_at(operation.computed_from[0].place) if operation.fitting is not None and len(operation.computed_from) == 1 else None
    node = found[1].value if found is not None and isinstance(found[1], (ast.Assign, ast.AnnAssign)) else found[1] if found is not None else None
    was = number_in(node)
    if found is None or was is None or data.input_made is None:
        return None
    meaning = f"The layer is then built for {counted(size, words)}. Right if inputs of {operation.fitting} are what is meant; if {was} is, give it those."
    return failed.scripts.fix(f"Reckon with the size of the inputs: {operation.fitting} in place of {was}.", [found[0].replace(node, str(operation.fitting))], meaning, safe=False)


def enlarged(failed: Failed, layers: tuple[str, ...], position: int, keyword: str, now: int, size: int, title: str, meaning: str, made: Made | None = None) -> list[Fix | None]:
    """Room for `size` entries: the number where it is set, or `len(vocab) + 1` where it is counted."""
    links = _links(failed, made or failed.operation.made_for(now), layers, position, keyword)
    # What a function returns is asked for by others, too.
    links = [link for link in links if not isinstance(link.script.statement_of(link.node), ast.Return)]
    if not links or size <= now:
        return []
    link = next((link for link in links if number_in(link.node) == now), links[-1])
    if number_in(link.node) is not None:
        exact = number_in(link.node) == now
        return [failed.scripts.fix(f"{title}: {size}.", [link.script.replace(link.node, str(size))], meaning, safe=False)] if exact else []
    if size - now > _MOST_ADDED or not isinstance(link.node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)) or _is_made_often(link.script, link.node):
        return []
    text = _sum(link.text, link.node, size - now)
    counted_later = " Where more were added after they had been counted, count them later instead." if "len(" in text else ""
    return [failed.scripts.fix(f"{title}: `{text}`.", [link.script.replace(link.node, text)], f"{meaning}{counted_later}", safe=False)]


def counted(size: int, words: str) -> str:
    """`1 channel`, `16 features`."""
    return f"{size} {words if size != 1 else words.removesuffix('s')}"


def argument_of(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    """What a constructor is given for one of its parameters."""
    named = next((k.value for k in call.keywords if k.arg == keyword), None)
    if named is not None or position >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return named
    return call.args[position]


def number_in(node: ast.AST | None) -> int | None:
    """The value of a number, or of a product of numbers, that stands there as such."""
    if node is None or any(not isinstance(n, (ast.Constant, ast.BinOp, ast.operator)) for n in ast.walk(node)):
        return None
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})  # numbers and operators, nothing else
    except Exception:
        return None
    return value if type(value) is int else None


# -- the way of a number ------------------------------------------------------------------------


def _links(failed: Failed, made: Made | None, layers: tuple[str, ...], position: int, keyword: str) -> list[Link]:
    """From the constructor's argument outwards."""
    found = failed.scripts.node_at(made.place) if made is not None else None
    if found is None or not isinstance(found[1], ast.Call) or called(found[1]) not in layers:
        return []
    node = argument_of(found[1], position, keyword)
    return [Link(found[0], node), *_given(failed.scripts, made)] if node is not None else []


def _given(scripts: Scripts, made: Made) -> Iterator[Link]:
    given = made.given
    while given is not None:
        found = scripts.node_at(given.place)
        value = found[1].value if found is not None and isinstance(found[1], (ast.Assign, ast.AnnAssign)) else found[1] if found is not None else None
        if isinstance(value, ast.expr):
            yield Link(found[0], value)
        given = given.given


def producer_of(scripts: Scripts, made: Made | None) -> Producer | None:
    while made is not None:
        found = scripts.node_at(made.place)
        if found is not None and isinstance(found[1], ast.Call) and called(found[1]) in _OUTPUTS:
            node = argument_of(found[1], *_OUTPUTS[called(found[1])])
            twice = any(k.arg == "bidirectional" and isinstance(k.value, ast.Constant) and k.value.value is True for k in found[1].keywords)
            return Producer((Link(found[0], node), *_given(scripts, made)), twice) if node is not None else None
        made = made.given
    return None


def _counts(failed: Failed, link: Link, now: int, size: int, data: Operand, axis: int) -> Iterator[tuple[str, str]]:
    """Sizes that are a sum or a product, in the constructor's own terms, each with its reason."""
    symbolic = isinstance(link.node, (ast.Name, ast.Attribute, ast.Subscript))
    terms, parts = data.terms_of(axis), data.parts_of(axis)
    missing = failed.operation.not_counted or tuple(term for term in terms if term.size != now) if sum(term.size == now for term in terms) == 1 else ()
    if symbolic and failed.operation.both_directions and size == 2 * now and not _is_handed_on(link):
        yield f"2 * {link.text}", "The layer before it reads in both directions."
    if symbolic and len(terms) > 1 and all(term.size == now for term in terms):
        yield f"{len(terms)} * {link.text}", f"{len(terms)} tensors of {now} are joined."
    if symbolic and missing and now + sum(term.size for term in missing) == size:
        yield " + ".join([link.text, *(_beside(failed, link, term.made) or str(term.size) for term in missing)]), (
            f"{' and '.join(str(term.size) for term in missing)} more are joined to the {now}."
        )
    if len(parts) > 1 and isinstance(link.node, ast.BinOp):
        factors = [_beside(failed, link, part.made) or str(part.size) for part in parts]
        if number_in(link.node) is not None or any(not factor.isdigit() for factor in factors):
            yield " * ".join(factors), f"The {size} are {' × '.join(str(part.size) for part in parts)}."


def _beside(failed: Failed, link: Link, made: Made | None) -> str:
    producer = producer_of(failed.scripts, made)
    return producer.text_beside(link) if producer is not None else ""


def _is_handed_on(link: Link) -> bool:
    """A parameter that the function uses for other layers, too: it is the caller who has to say how wide the input is."""
    if not isinstance(link.node, ast.Name) or not isinstance(link.scope, Function):
        return False
    uses = [n for n in link.script.own_nodes(link.scope) if isinstance(n, ast.Name) and n.id == link.node.id and isinstance(n.ctx, ast.Load)]
    recurrent = [n for n in link.script.own_nodes(link.scope) if isinstance(n, ast.Call) and called(n) in ("LSTM", "GRU", "RNN")]
    return len(uses) > 1 and not recurrent


def _sum(text: str, node: ast.expr, more: int) -> str:
    """`len(vocab) + 2` for one more than `len(vocab) + 1`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
        written = ast.unparse(node.right)
        if text.endswith(written):
            return f"{text[: -len(written)]}{node.right.value + more}"
    return f"{text} + {more}"


def is_in_a_loop(script: Script, node: ast.AST) -> bool:
    for around in script.ancestors(node):
        if isinstance(around, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, *Function)):
            return not isinstance(around, Function)
    return False


def _is_made_often(script: Script, node: ast.AST) -> bool:
    """In a loop, a comprehension or a helper function: what is written there holds for every layer that is made there."""
    around = next((a for a in script.ancestors(node) if isinstance(a, (ast.Lambda, *Function))), None)
    helper = isinstance(around, Function) and around.name != "__init__" and bool(around.args.args) and around.args.args[0].arg != "self"
    return helper or isinstance(around, ast.Lambda) or is_in_a_loop(script, node)


def _is_set_once(script: Script, node: ast.expr, scope: ast.AST) -> bool:
    text = ast.unparse(node)
    return sum(1 for other in script.own_nodes(scope) if isinstance(getattr(other, "ctx", None), ast.Store) and ast.unparse(other) == text) <= 1
