"""Fuzzed: statements around each pattern of the larger rewrites; every edit parses, touches nothing else, and settles."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchsleuth.evidence import WriteSite
from torchsleuth.evidence_parts import Place
from torchsleuth.fixes.buffers import stacked
from torchsleuth.fixes.inplace_on_leaf import under_no_grad
from torchsleuth.fixes.inplace_on_view import _Rows
from torchsleuth.fixes.numpy_detour import with_torch
from torchsleuth.fixes.script import Script, Scripts
from torchsleuth.fixes.states import detached
from torchsleuth.linter.edits import edited_bytes
from torchsleuth.linter.source import decoded
from torchsleuth.model import Fix, Known


def _scripts(text: str) -> Scripts:
    return Scripts(lambda label: text.encode() if label == "prog.py" else None)


def _at(script: Script, mark: str) -> ast.stmt:
    line = next(number for number, text in enumerate(script.source.lines, 1) if mark in text)
    found = [n for n in ast.walk(script.tree) if isinstance(n, ast.stmt) and not hasattr(n, "body") and n.lineno <= line <= n.end_lineno]
    return max(found, key=lambda n: (n.lineno, n.col_offset))


def _stack(scripts: Scripts) -> Fix | None:
    script = scripts.get("prog.py")
    target = _at(script, "# here").targets[0]
    place = Place(script.span(target), "", "", None, False, Known.OBSERVED)
    return stacked(scripts, [WriteSite("__setitem__", place, 1, 0, 1, True, fits_exactly=True)])


def _rows(scripts: Scripts) -> Fix | None:
    script = scripts.get("prog.py")
    rows = _Rows.around(script, _at(script, "# here"), "row")
    return rows.collected(scripts) if rows is not None else None


def _no_grad(scripts: Scripts) -> Fix | None:
    script = scripts.get("prog.py")
    return under_no_grad(scripts, script, _at(script, "# here"), True)


def _numpy(scripts: Scripts) -> Fix | None:
    script = scripts.get("prog.py")
    found = with_torch(script, _at(script, "# here").value)
    return scripts.fix("", found[0]) if found is not None else None


def _detach(scripts: Scripts) -> Fix | None:
    script = scripts.get("prog.py")
    return scripts.fix("", detached(script, ["h"], _at(script, "# here")))


# pattern -> (how it is found, the lines before, the lines after); `@` is where other statements may stand
PATTERNS = {
    "stack": (
        _stack,
        "out = torch.zeros(n, 3)\n@\nfor t in range(n):\n    prev = out[t - 1] if t > 0 else x\n@@\n    out[t] = f(prev)  # here\n@@\n@\ny = out",
        "out_list = []\n@\nfor t in range(n):\n    prev = out_list[t - 1] if t > 0 else x\n@@\n    out_list.append(f(prev))  # here\n@@\nout = torch.stack(out_list)\n@\ny = out",
    ),
    "stack columns": (
        _stack,
        "out = x.new_zeros((b, n + 1))\nout[:, 0] = 1\nfor t in range(n):\n@@\n    out[:, t + 1] = (\n        out[:, t]  # kept\n        * 2)  # here\n@\ny = out",
        "out = x.new_zeros((b, n + 1))\nout[:, 0] = 1\nout_list = [out[:, 0]]\nfor t in range(n):\n@@\n    out_list.append((\n        out_list[t]  # kept\n        * 2))  # here\n"
        "out = torch.stack(out_list, dim=1)\n@\ny = out",
    ),
    "rows": (
        _rows,
        "@\nfor row in batch:\n@@\n    row -= row.mean()  # here\n    row.mul_(2)\n@\ny = batch",
        "@\nrows = []\nfor row in batch:\n@@\n    row = row - row.mean()  # here\n    row = row.mul(2)\n    rows.append(row)\nbatch = torch.stack(rows)\n@\ny = batch",
    ),
    "no_grad": (
        _no_grad,
        "@\nself.w.fill_(0)  # here\nself.b[0] = 1\n@",
        "@\nwith torch.no_grad():\n    self.w.fill_(0)  # here\n    self.b[0] = 1\n@",
    ),
    "numpy": (
        _numpy,
        "e = (p - t).detach().cpu().numpy()  # here\n@\nl = np.where(np.abs(e) < 1, e ** 2, np.abs(e))\nloss = torch.from_numpy(l)\n@",
        "e = (p - t)  # here\n@\nl = torch.where(torch.abs(e) < 1, e ** 2, torch.abs(e))\nloss = l\n@",
    ),
    "detach": (
        _detach,
        "h = None\n@\nfor x in xs:\n    y, h = lstm(x, h)\n@@\n    y.backward()  # here\n@@\n@",
        "h = None\n@\nfor x in xs:\n    y, h = lstm(x, h)\n@@\n    y.backward()  # here\n    h = tuple(part.detach() for part in h)\n@@\n@",
    ),
}
OTHERS = st.lists(
    st.sampled_from([
        "q = 1", "u = {'a': [1, 2]}  # note", "print(f'{q:>3}')", "v = '''\n  text\n'''", "z = (1 +\n     2)", "pass", "k = [i for i in range(3)]; m = 2",
        "w2 = \\\n    3", "# a comment", "", "assert True, 'ü'", "lambda k: k", "if q: pass",
    ]),
    max_size=3,
)  # fmt: skip
HEADS = {"stack": "import torch\n", "detach": "import torch\nlstm = torch.nn.LSTM(2, 2)\n", "numpy": "import torch, numpy as np\n"}


def _filled(template: str, fillings: list[list[str]], step: str) -> str:
    lines, used = [], iter(fillings)
    for line in template.split("\n"):
        if line in ("@", "@@"):
            for text in next(used):
                lines.append(step * (len(line) - 1) + text if text else text)
        else:
            outer = len(line) - len(line.lstrip(" "))
            lines.append(step * (outer // 4) + " " * (outer % 4) + line.lstrip(" ") if outer in (4,) else line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_fuzzed(name: str, data: st.DataObject) -> None:
    find, before, after = PATTERNS[name]
    count = sum(line in ("@", "@@") for line in before.split("\n"))
    fillings = [data.draw(OTHERS) for _ in range(count)]
    step = "    "
    head = HEADS.get(name, "import torch\n")
    text = head + _filled(before, fillings, step)
    ast.parse(text)
    scripts = _scripts(text)
    fix = find(scripts)
    assert fix is not None, text
    fixed = decoded(edited_bytes(text.encode(), "prog.py", fix.edits))
    ast.parse(fixed)
    assert _lines(fixed) == _lines(head + _filled(after, fillings, step))
    if name != "no_grad":  # what stands under no_grad already is not looked at again; `detach` may be repeated
        again = None if name == "detach" else _second(find, fixed)
        assert again is None


def _lines(text: str) -> list[str]:
    """Blank lines between a loop and what follows belong to neither."""
    return [line for line in text.split("\n") if line.strip()]


def _second(find, text: str) -> Fix | None:
    """The same rewrite of what it has made: nothing, or the pattern is gone."""
    try:
        return find(_scripts(text))
    except (AttributeError, IndexError):
        return None


# One thing that breaks the proof each: nothing is rewritten.
REFUSED = [
    "out = torch.zeros(n, 3)\nfor t in range(m):\n    out[t] = f(out[t - 1] if t else x)  # here",  # another bound
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(out[t - 1])  # here",  # reads the last row in the first round
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    if t % 2:\n        out[t] = f(x)  # here",  # not every row
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(out)  # here",  # the whole buffer
    "out = torch.zeros(n, 3)\nkeep = out\nfor t in range(n):\n    out[t] = f(x)  # here",  # somebody else holds it
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(x)  # here\n    if g(): break",
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(x)  # here\n    n = n - 1",
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(x)  # here\n    out[0] = 1",
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t] = f(lambda: out)  # here",
    "out = load()\nfor t in range(n):\n    out[t] = f(x)  # here",
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    out[t, 0] = f(x)  # here",  # part of a row
    "out = torch.zeros(n, 3)\nfor t in range(n):\n    x = out[t + 1]\n    out[t] = f(x)  # here",  # reads ahead
    "out = torch.zeros(n, 3)\nfor t in range(2, n):\n    out[t] = f(x)  # here",
]


@pytest.mark.parametrize("body", REFUSED)
def test_no_stack_where_it_is_not_proven(body: str) -> None:
    assert _stack(_scripts(f"import torch\n{body}\n")) is None
