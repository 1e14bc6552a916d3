"""Edits keep what they do not change: formatting, comments, line endings, encodings; fuzzed around each pattern."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchsleuth.evidence import Place
from torchsleuth.fixes.forward.device_mismatch import as_buffer
from torchsleuth.fixes.inplace_on_leaf import under_no_grad
from torchsleuth.fixes.outofplace import out_of_place
from torchsleuth.fixes.script import Script, Scripts
from torchsleuth.linter.edits import edited_bytes
from torchsleuth.linter.source import decoded, source_from
from torchsleuth.model import Known


def _scripts(data: bytes) -> Scripts:
    return Scripts(lambda label: data if label == "prog.py" else None)


def _write_in(script: Script) -> ast.AST:
    """The write of the statement that is marked with `# here`."""
    line = next(number for number, text in enumerate(script.source.lines, 1) if "# here" in text)
    simple = [n for n in ast.walk(script.tree) if isinstance(n, ast.stmt) and not hasattr(n, "body") and n.lineno <= line <= n.end_lineno]
    node = max(simple, key=lambda n: (n.lineno, n.col_offset))
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0]
    if isinstance(node, ast.AugAssign):
        return node
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return next(n for n in calls if any(k.arg in ("out", "inplace") for k in n.keywords) or (isinstance(n.func, ast.Attribute) and n.func.attr.endswith("_")))


def _fixed(text: str | bytes) -> str | None:
    data = text.encode() if isinstance(text, str) else text
    scripts = _scripts(data)
    script = scripts.get("prog.py")
    rewrite = out_of_place(script, script.span(_write_in(script)))
    fix = scripts.fix("", rewrite.edits) if rewrite is not None else None
    return decoded(edited_bytes(data, "prog.py", fix.edits)) if fix is not None else None


GOLDEN = {
    "h += 1  # here": "h = h + 1  # here",
    "h+=1  # here": "h= h +1  # here",
    "h -= a - b  # here": "h = h - (a - b)  # here",
    "h -= (a - b)  # here": "h = h - (a - b)  # here",
    "h -= a * b  # here": "h = h - a * b  # here",
    "h *= a + b  # here": "h = h * (a + b)  # here",
    "h /= a if c else b  # here": "h = h / (a if c else b)  # here",
    "h @= w  # here": "h = h @ w  # here",
    "h **= 2  # here": "h = h ** 2  # here",
    "self.h.w += 1  # here": "self.h.w = self.h.w + 1  # here",
    "h.mul_(2)  # here": "h = h.mul(2)  # here",
    "h.mul_(2).add_(1)  # here": "h = h.mul(2).add(1)  # here",
    "h.clamp_(min = 0)  # here": "h = h.clamp(min = 0)  # here",
    "h.copy_(y)  # here": "h = h.clone().copy_(y)  # here",
    "h.zero_()  # here": "h = torch.zeros_like(h)  # here",
    "h.fill_(3)  # here": "h = torch.full_like(h, 3)  # here",
    "h.fill_(v)  # here": "h = h.clone().fill_(v)  # here",
    "y = h.relu_()  # here": "y = h = h.relu()  # here",
    "h = h.relu_()  # here": "h = h.relu()  # here",
    "torch.relu_(h)  # here": "h = torch.relu(h)  # here",
    "F.relu(h, inplace=True)  # here": "h = F.relu(h, inplace=False)  # here",
    "torch.add(a, b, out=h)  # here": "h = torch.add(a, b)  # here",
    "torch.add(a, b, alpha=2, out=h)  # here": "h = torch.add(a, b, alpha=2)  # here",
    "h[0] = 1  # here": "h = h.clone()\nh[0] = 1  # here",
    "h[i, :] += y  # here": "h = h.clone()\nh[i, :] += y  # here",
    "self.h[0] = 1  # here": "self.h = self.h.clone()\nself.h[0] = 1  # here",
    "h[0].add_(1)  # here": "h = h.clone()\nh[0].add_(1)  # here",
    "a = 1; h += 1  # here": "a = 1; h = h + 1  # here",
    "a = 1; h[0] = 1  # here": "a = 1; h = h.clone(); h[0] = 1  # here",
    "if a: h += 1  # here": "if a: h = h + 1  # here",
    "if a: h[0] = 1  # here": "if a: h = h.clone(); h[0] = 1  # here",
    "h += (  # here\n    a\n    - b)  # kept": "h = h + (  # here\n    a\n    - b)  # kept",
    "größe += 'ä' # here": "größe = größe + 'ä' # here",
    'x = "\tä"; h += 1  # here': 'x = "\tä"; h = h + 1  # here',
}


@pytest.mark.parametrize("before", GOLDEN)
def test_out_of_place(before: str) -> None:
    assert _fixed(f"import torch\n{before}\n") == f"import torch\n{GOLDEN[before]}\n"


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_line_endings_stay(ending: str) -> None:
    text = ending.join(["import torch", "if a:", "    h[0] = 1  # here", "b = 2"])
    assert _fixed(text.encode()) == ending.join(["import torch", "if a:", "    h = h.clone()", "    h[0] = 1  # here", "b = 2"])


def test_encodings_stay() -> None:
    data = "# -*- coding: latin-1 -*-\nimport torch\nnäme = 'é'\nh += 1  # here\n".encode("latin-1")
    scripts = _scripts(data)
    script = scripts.get("prog.py")
    fix = scripts.fix("", out_of_place(script, script.span(_write_in(script))).edits)
    after = edited_bytes(data, "prog.py", fix.edits)
    assert after == data.replace(b"h += 1", b"h = h + 1")
    assert edited_bytes(b"\xef\xbb\xbf" + b"h += 1  # here\n", "prog.py", ()).startswith(b"\xef\xbb\xbf")


def test_wrapping_keeps_strings_and_comments() -> None:
    text = 'import torch\n\nif a:\n\tw.copy_(load("""\n  as it is\n"""))  # here\n\n\tb = 1\n'
    scripts = _scripts(text.encode())
    script = scripts.get("prog.py")
    fix = under_no_grad(scripts, script, script.tree.body[1].body[0], True)
    after = decoded(edited_bytes(text.encode(), "prog.py", fix.edits))
    assert after == 'import torch\n\nif a:\n\twith torch.no_grad():\n\t\tw.copy_(load("""\n  as it is\n"""))  # here\n\n\tb = 1\n'


WRITES = st.sampled_from([before for before in GOLDEN if "\n" not in before and not before.startswith(("if", "a = 1"))])
OTHERS = st.sampled_from([
    "x = 1", "y = {'a': [1, 2]}  # note", "print(f'{x:>3}')", "s = '''\n  text\n'''", "z = (1 +\n     2)", "pass", "def g(a, *b, c=1): return a",
    "class K:\n    q = 1", "t = [i for i in range(3)]; u = 2", "v = \\\n    3", "# a comment", "", "w: int = 4", "assert True, 'ü'", "lambda k: k",
])  # fmt: skip
HEADS = st.sampled_from(["if x:", "for i in range(3):", "while False:", "with open(p) as f:", "def f(self, h, b=2):", "try:"])


def _indented(text: str, indent: str) -> str:
    """Only lines that begin outside strings may move: these programs' strings are the last thing on their lines."""
    if "'''" in text or "\\\n" in text:
        return indent + text
    return "\n".join(indent + line if line else line for line in text.split("\n"))


@settings(max_examples=120, deadline=None)
@given(st.lists(OTHERS, max_size=4), WRITES, st.lists(OTHERS, max_size=4), st.lists(HEADS, max_size=3), st.sampled_from(["    ", "\t", "  "]), st.booleans())
def test_fuzzed_edits_parse_touch_nothing_else_and_settle(before, write, after, heads, step, crlf) -> None:
    lines, depth = ["import torch"], 0
    for head in heads:
        lines.append(step * depth + head)
        depth += 1
    indent = step * depth
    body = [_indented(text, indent) for text in (*before, write, *after)]
    tail = [step * (depth - 1 - k) + "finally: pass" for k, head in enumerate(reversed(heads)) if head == "try:"]
    if len(tail) > 1 or (tail and heads[-1] != "try:"):
        return
    text = "\n".join([*lines, *body, *tail]) + "\n"
    try:
        ast.parse(text)
    except SyntaxError:
        return
    if crlf:
        text = text.replace("\n", "\r\n")
    fixed = _fixed(text.encode())
    assert fixed is not None
    plain, result = text.replace("\r\n", "\n"), fixed.replace("\r\n", "\n")
    assert crlf == ("\r\n" in fixed)
    ast.parse(result)
    golden = "\n".join(indent + line for line in GOLDEN[write].split("\n"))
    assert result == plain.replace(indent + write, golden, 1)
    # Settled: what was written out of place gets no further rewrite, unless it writes into the clone it now makes.
    if ".clone()" not in golden:
        script = Script(source_from(fixed.encode(), "prog.py"))
        there = [s for s in ast.walk(script.tree) if isinstance(s, ast.stmt) and not hasattr(s, "body") and "# here" in script.source.lines[s.end_lineno - 1]]
        statement = max(there, key=lambda s: (s.lineno, s.col_offset))
        for node in ast.walk(statement):
            if isinstance(node, (ast.Call, ast.AugAssign)):
                assert out_of_place(script, script.span(node)) is None


@pytest.mark.parametrize("write", ["h.mul_(2)", "h[0] = 1", "torch.relu_(h)"])
def test_no_new_local_of_a_name_from_outside(write: str) -> None:
    """`h = h.mul(2)` in a function that reads a global `h` would be an UnboundLocalError."""
    assert _fixed(f"import torch\nh = torch.zeros(2)\ndef f():\n    {write}  # here\n") is None
    assert _fixed(f"import torch\nh = torch.zeros(2)\ndef f():\n    global h\n    {write}  # here\n") is not None


@pytest.mark.parametrize("write", ["h.mul_(2).add_(h)", "self.h.mul_(2).clamp_(max=self.h.mean())"])
def test_no_chain_that_reads_what_it_has_changed(write: str) -> None:
    assert _fixed(f"class C:\n    def f(self, h):\n        {write}  # here\n        return h\n") is None


def test_a_chain_that_reads_something_else() -> None:
    assert "h = h.mul(2).add(g)" in _fixed("def f(h, g):\n    h.mul_(2).add_(g)  # here\n    return h\n")


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("self.table = torch.arange(n).float()  # kept", 'self.register_buffer("table", torch.arange(n).float(), persistent=False)  # kept'),
        ("self.mask=~mask; self.n = n", 'self.register_buffer("mask", ~mask, persistent=False); self.n = n'),
        ("self.table = (\n            a + b\n        )", None),
        ("self.a = self.b = torch.ones(n)", ""),
        ("table = self.tables[0] = torch.ones(n)", ""),
    ],
)
def test_attributes_become_buffers(line: str, fixed: str | None) -> None:
    data = f"class M:\n    def __init__(self, n):\n        {line}\n".encode()
    scripts = _scripts(data)
    script = scripts.get("prog.py")
    assign = next(node for node in ast.walk(script.tree) if isinstance(node, ast.Assign))
    fix = as_buffer(Place(script.span(assign.value), "", "", None, False, Known.INFERRED), scripts)
    if fixed == "":
        assert fix is None
        return
    text = decoded(edited_bytes(data, "prog.py", fix.edits))
    ast.parse(text)
    assert "register_buffer" in text and "self.table =" not in text
    assert fixed is None or fixed in text
