"""One slip written into a Function of a module of examples: what the report says of it, where it points, and whether its fixes are right."""

import inspect
import re

import torchsleuth


def assert_named(styles, name, old, new, words, line, folder):
    """`old` is replaced by `new` in backward (or, after "forward:", in forward); the report says `words` and points at a line with `line`."""
    where = "def forward" if old.startswith("forward:") else "def backward"
    old = old.removeprefix("forward:")
    before, text = inspect.getsource(styles).split(f"class {name}(", 1)
    start = text.index(old, text.index(where))
    text = f"{before}class {name}({text[:start]}{new}{text[start + len(old) :]}"
    path = folder / "ops.py"
    path.write_text(text)
    namespace = {"__name__": "ops"}
    exec(compile(text, str(path), "exec"), namespace)
    report = torchsleuth.check(namespace[name], *styles.INPUTS[name]())
    shown = " ".join(str(report).split())
    assert not report.ok, shown
    said = " ".join(" ".join((d.title, d.explanation, *(f.title for f in d.fixes))) for d in report.diagnoses)
    assert words in said, shown
    lines = text.split("\n")
    assert any(line in lines[c.span.line - 1] for d in report.diagnoses for c in d.culprits), shown
    for diagnosis in report.diagnoses:
        # What is offered as an edit is right, whatever it is.
        for edit in (edit for fix in diagnosis.fixes for edit in fix.edits):
            changed = list(lines)
            row = changed[edit.span.line - 1]
            assert edit.span.line == edit.span.end_line
            changed[edit.span.line - 1] = row[: edit.span.column - 1] + edit.replacement + row[edit.span.end_column - 1 :]
            fixed = {"__name__": "ops"}
            exec(compile("\n".join(changed), "<fixed>", "exec"), fixed)
            inputs = [n for n in re.findall(r"`(\w+)`", diagnosis.title) if n in inspect.signature(fixed[name].forward).parameters]
            again = torchsleuth.check(fixed[name], *styles.INPUTS[name]())
            left = {f.input for t in again.trials for f in t.findings if f.kind == "values"}
            names = [t.name for t in again.trials[0].inputs]
            assert not left & {names.index(n) for n in inputs}, f"{edit.replacement}: {again}"
