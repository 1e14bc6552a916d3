"""`torchsleuth lint` as a command: what it reads, what it prints, how it ends. Run in this process wherever possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from torchsleuth.cli import main

SLOW = "import torch\n\n\ndef f(x):\n    out = torch.zeros(x.shape[0])\n    for i in range(x.shape[0]):\n        out[i] = x[i].sum()\n    return out\n"
BAD = "import torch\nimport torch.nn.functional as F\n\n\ndef f(x):\n    return F.softmax(x)\n"
FINE = "import torch\n\n\ndef f(x):\n    return torch.softmax(x, dim=-1)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    return tmp_path


def lint(*arguments: str) -> int:
    return main(["lint", *arguments])


def report(project: Path, *arguments: str) -> dict:
    lint("--json", "out.json", "--quiet", "--format", "concise", *arguments)
    return json.loads((project / "out.json").read_text(encoding="utf-8"))


def test_exit_status(project, capsys) -> None:
    (project / "fine.py").write_text(FINE)
    (project / "bad.py").write_text(BAD)
    assert lint("fine.py") == 0
    assert lint("bad.py") == 1
    assert lint("bad.py", "--exit-zero") == 0
    assert lint("bad.py", "missing.py") == 2
    assert lint("bad.py", "--select", "no-such-rule") == 2
    assert "no-such-rule" in capsys.readouterr().err


def test_concise_lines(project, capsys) -> None:
    (project / "bad.py").write_text(BAD)
    lint("--format", "concise", "bad.py")
    assert capsys.readouterr().out.startswith("bad.py:6:12: softmax-without-dim: ")


def test_json_is_the_contract(project) -> None:
    (project / "bad.py").write_text(BAD)
    data = report(project, "bad.py")
    assert (data["schema"], data["command"], data["outcome"], data["exception"]) == (1, "lint", "findings", None)
    (diagnosis,) = data["diagnoses"]
    culprit = diagnosis["culprits"][0]
    assert {k: culprit[k] for k in ("file", "line", "end_line", "column", "end_column", "source", "evidence")} == {
        "file": "bad.py", "line": 6, "end_line": 6, "column": 12, "end_column": 24, "source": "F.softmax(x)", "evidence": "inferred",
    }  # fmt: skip
    (project / "bad.py").write_text(FINE)
    assert report(project, "bad.py")["outcome"] == "ok"


def test_select_ignore_and_noqa(project) -> None:
    (project / "a.py").write_text(BAD.replace("F.softmax(x)", "F.softmax(x) + torch.tensor(x.unsqueeze(0))"))
    rules = lambda *a: [d["rule"] for d in report(project, "a.py", *a)["diagnoses"]]  # noqa: E731
    assert rules() == ["softmax-without-dim", "tensor-of-tensor"]
    assert rules("--select", "tensor-of-tensor") == ["tensor-of-tensor"]
    assert rules("--ignore", "tensor-of-tensor") == ["softmax-without-dim"]
    for comment, left in (
        ("# noqa: torchsleuth[softmax-without-dim]", ["tensor-of-tensor"]),
        ("# noqa: E501, torchsleuth[softmax-without-dim, tensor-of-tensor]", []),
        ("# noqa: torchsleuth", []),
        ("# noqa", []),
        ("# noqa: E501", ["softmax-without-dim", "tensor-of-tensor"]),
    ):
        (project / "a.py").write_text(BAD.replace("F.softmax(x)", f"F.softmax(x) + torch.tensor(x.unsqueeze(0))  {comment}"))
        assert rules() == left, comment


def test_configuration(project) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.torchsleuth]\nignore = ["tensor-of-tensor"]\nexclude = ["gen"]\n'
        '[tool.torchsleuth.per-file-ignores]\n"tests/*" = ["softmax-without-dim"]\n'
    )
    for folder in ("gen", "tests", "src"):
        (project / folder).mkdir()
        (project / folder / "a.py").write_text(BAD)
    assert [d["culprits"][0]["file"] for d in report(project, ".")["diagnoses"]] == ["src/a.py"]
    assert len(report(project, ".", "--isolated")["diagnoses"]) == 3
    (project / "pyproject.toml").write_text('[tool.torchsleuth]\nselect = ["softmax-without-dimm"]\n')
    assert lint(".") == 2


def test_bad_input_costs_one_line_each(project, capsys) -> None:
    (project / "good.py").write_text(BAD)
    (project / "syntax.py").write_text("import torch\ndef f(:\n")
    (project / "nulls.py").write_bytes(b"import torch\x00")
    (project / "encoding.py").write_bytes(b"# coding: utf-8\nx = '\xff'\nimport torch\n")
    (project / "cookie.py").write_bytes(b"# coding: klingon\nimport torch\n")
    (project / "huge.py").write_bytes(b"x = 1\n" * 600_000)
    (project / "deep.py").write_text("import torch\nx = " + "(" * 5000 + ")" * 5000 + "\n")
    (project / "sum.py").write_text("import torch\nx = " + "+".join(["1"] * 20_000) + "\n")
    (project / "empty.py").write_text("")
    (project / "book.ipynb").write_text("not json")
    (project / "loop").symlink_to(project, target_is_directory=True)
    (project / "nowhere.py").symlink_to(project / "missing.py")
    data = report(project, ".")
    assert [d["culprits"][0]["file"] for d in data["diagnoses"]] == ["good.py"]
    said = capsys.readouterr().err.splitlines()
    for name in ("syntax.py", "nulls.py", "encoding.py", "cookie.py", "huge.py", "deep.py", "sum.py", "book.ipynb", "nowhere.py"):
        assert sum(f"{name}: " in line for line in said) == 1, (name, said)
    assert len(said) == 9
    assert any("line 2" in line for line in said if "syntax.py" in line)


def test_no_permission(project) -> None:
    """As somebody who is not root: root may read everything, so the command gives its rights away first."""
    (project / "a.py").write_text(BAD)
    (project / "secret.py").write_text(BAD)
    (project / "locked").mkdir()
    (project / "locked" / "b.py").write_text(BAD)
    (project / "secret.py").chmod(0)
    (project / "locked").chmod(0)
    code = (
        "import os, sys\nfrom torchsleuth.cli import main\n"
        "main(['lint', 'a.py', '--quiet', '--sarif', os.devnull, '--format', 'json'])\n"  # imports, which root alone may read
        "print('now', flush=True)\n"
        "if os.geteuid() == 0:\n    os.chown('.', 65534, 65534)\n    os.setgroups([])\n    os.setgid(65534)\n    os.setuid(65534)\n"
        "sys.exit(main(['lint', '.', '--no-cache', '--jobs', '1', '--format', 'concise']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    (project / "locked").chmod(0o700)
    assert done.returncode == 2, done.stderr
    assert done.stdout.partition("now\n")[2].startswith("a.py:6:12: ")
    said = done.stderr.splitlines()
    assert sum("secret.py: permission denied" in line.lower() for line in said) == 1, said
    assert sum("locked" in line and "permission denied" in line.lower() for line in said) == 1, said
    assert "Traceback" not in done.stderr


def test_other_encodings_and_columns(project) -> None:
    text = BAD.replace("return F", "é = '日本'; return F")
    (project / "utf8.py").write_text(text, encoding="utf-8")
    (project / "bom.py").write_text(text, encoding="utf-8-sig")
    (project / "cp.py").write_bytes(("# -*- coding: cp1252 -*-\n" + BAD.replace("return F", "é = 'ü'; return F")).encode("cp1252"))
    found = {d["culprits"][0]["file"]: d["culprits"][0] for d in report(project, ".")["diagnoses"]}
    assert set(found) == {"utf8.py", "bom.py", "cp.py"}
    assert found["utf8.py"]["column"] == found["bom.py"]["column"] == text.splitlines()[5].index("F.softmax") + 1
    assert all(c["source"] == "F.softmax(x)" for c in found.values())


@pytest.mark.parametrize("encoding", ["ascii", "cp932"])
def test_streams_that_lack_letters_of_the_source(project, encoding) -> None:
    (project / "a.py").write_text(BAD.replace("return F", "é = '日本'; return F"), encoding="utf-8")
    for option in ("full", "concise", "github", "json", "sarif"):
        command = [sys.executable, "-m", "torchsleuth", "lint", "a.py", "--format", option]
        done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding})
        assert done.returncode == 1 and b"Traceback" not in done.stderr, (option, done.stderr)
        if option in ("json", "sarif"):
            assert json.loads(done.stdout.decode(encoding))


def notebook(*cells: str) -> dict:
    made = [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": c.splitlines(keepends=True)} for c in cells]
    return {"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# hi"]}, *made], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_notebooks(project) -> None:
    book = notebook("%matplotlib inline\nimport torch\n!pip list", SLOW.removeprefix("import torch\n\n\n"), "def broken(:\n", "torch.softmax(x, 0)")
    text = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    (project / "book.ipynb").write_text(text)
    (diagnosis,) = report(project, "book.ipynb")["diagnoses"]
    assert (diagnosis["culprits"][0]["file"], diagnosis["culprits"][0]["line"]) == ("book.ipynb:cell 2", 3)
    assert lint("book.ipynb", "--fix", "--quiet") == 0
    after = json.loads((project / "book.ipynb").read_text())
    assert "x.flatten(1).sum(dim=1)" in "".join(after["cells"][2]["source"])
    assert (project / "book.ipynb").read_text().startswith('{\n "cells": [')
    assert after["cells"][1] == book["cells"][1] and after["cells"][3] == book["cells"][3]


def test_standard_input(project) -> None:
    command = [sys.executable, "-m", "torchsleuth", "lint", "-", "--format", "concise", "--stdin-filename", "here.py"]
    done = subprocess.run(command, input=BAD, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("here.py:6:12: ")
    done = subprocess.run([*command, "--fix"], input=SLOW, capture_output=True, text=True)
    assert done.returncode == 0 and "sum(dim=1)" in done.stdout and "for i" not in done.stdout


def test_diff_shows_and_changes_nothing(project, capsys) -> None:
    (project / "a.py").write_text(SLOW)
    assert lint("--diff", "a.py") == 1
    out = capsys.readouterr()
    assert "+    out[:] = x.flatten(1).sum(dim=1)" in out.out and "× faster on" in out.err
    assert (project / "a.py").read_text() == SLOW
    (project / "patch").write_text(out.out)
    assert subprocess.run(["git", "apply", "--check", "patch"], capture_output=True).returncode == 0


def test_a_diff_counts_lines_as_python_does(project, capsys) -> None:
    """A form feed between two parts of a file, or in a string, ends no line."""
    (project / "a.py").write_text(SLOW.replace("\n\n\ndef", "\n\x0c\nODD = 'a\x0cb\x1cc\u2028d'\ndef"))
    assert lint("--diff", "a.py", "--quiet") == 1
    (project / "patch").write_text(capsys.readouterr().out)
    assert subprocess.run(["git", "apply", "--check", "patch"], capture_output=True).returncode == 0


def test_fix_keeps_the_mode_and_is_done_after_one_run(project) -> None:
    path = project / "a.py"
    path.write_text(SLOW)
    path.chmod(0o750)
    assert lint("--fix", "a.py", "--quiet") == 0
    once = path.read_text()
    assert "for i" not in once and path.stat().st_mode & 0o777 == 0o750
    assert lint("--fix", "a.py", "--quiet") == 0
    assert path.read_text() == once


def test_fixes_of_other_rules(project) -> None:
    (project / "a.py").write_text("import torch\n\nw = torch.ones(3, requires_grad=True)\ny = torch.tensor(w)\n")
    assert lint("--fix", "a.py", "--quiet") == 0
    assert "w.detach().clone()" in (project / "a.py").read_text()
    (project / "a.py").write_text("import torch\n\nw = torch.ones(3, requires_grad=True)\ny = torch.tensor(w)\n")
    lint("--fix", "--unsafe-fixes", "a.py", "--quiet")
    assert "y = w.clone()" in (project / "a.py").read_text()


def test_verbose_says_what_was_left_alone(project, capsys) -> None:
    (project / "a.py").write_text(
        "import torch\n\n\ndef f(x, h):\n    out = []\n    for t in range(x.shape[0]):\n        h = torch.tanh(h + x[t])\n"
        "        out.append(h)\n    return torch.stack(out)\n"
    )
    assert lint("a.py", "--verbose") == 0
    assert "a.py:6: left alone, each turn needs the one before: `h`" in capsys.readouterr().out


def test_cache_is_keyed_by_content(project, monkeypatch) -> None:
    from torchsleuth.linter import sweep

    (project / "a.py").write_text(BAD)
    first = report(project, "a.py")
    monkeypatch.setattr(sweep, "linted_text", lambda *a: pytest.fail("linted again"))
    (project / "b.py").write_text(BAD)
    assert report(project, "a.py") == first
    assert report(project, "b.py")["diagnoses"][0]["culprits"][0]["file"] == "b.py"
    monkeypatch.undo()
    monkeypatch.chdir(project)
    (project / "a.py").write_text(FINE)
    assert report(project, "a.py", "--cache-dir", str(project / ".cache" / "torchsleuth"))["outcome"] == "ok"


def test_a_damaged_cache_costs_nothing(project) -> None:
    (project / "a.py").write_text(BAD)
    folder = project / ".cache" / "torchsleuth"
    folder.mkdir(parents=True)
    (folder / "lint.sqlite3").write_bytes(b"garbage" * 100)
    assert lint("a.py", "--quiet") == 1
    assert lint("a.py", "--quiet") == 1
    assert lint("a.py", "--quiet", "--cache-dir", str(project / "a.py" / "no")) == 1


def test_many_files_in_parallel_give_the_same(project) -> None:
    for n in range(40):
        (project / f"m{n:02}.py").write_text(BAD + "\n" * n + "# padding\n" * 600)
    many = report(project, ".", "--no-cache", "--jobs", "2")
    one = report(project, ".", "--no-cache", "--jobs", "1")
    assert many == one and len(many["diagnoses"]) == 40


def test_lint_never_imports_torch_or_the_linted_file(project) -> None:
    (project / "evil.py").write_text(BAD + "\nopen('touched', 'w').close()\n")
    code = (
        "import sys\nfrom torchsleuth.cli import main\nmain(['lint', 'evil.py', '--format', 'concise', '--no-cache'])\n"
        "main(['lint', 'evil.py', '--sarif', 's.json', '--quiet'])\n"
        "assert not [m for m in sys.modules if m == 'torch' or m.startswith('torch.') or m == 'numpy']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (project / "touched").exists()


def test_proving_runs_only_what_was_cut_out(project) -> None:
    (project / "a.py").write_text(SLOW + "\nopen('touched', 'w').close()\n")
    assert lint("--fix", "a.py", "--quiet") == 0
    assert not (project / "touched").exists()


def test_github_annotations(project, capsys) -> None:
    (project / "a,b.py").write_text(BAD)
    lint("--format", "github", "a,b.py")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("::error file=a%2Cb.py,title=torchsleuth (softmax-without-dim),line=6,endLine=6,col=12,endColumn=24::")
    assert "%0AFix: " in line


def test_list_rules(project, capsys) -> None:
    assert lint("--list-rules") == 0
    out = capsys.readouterr().out
    assert "loop-over-tensor" in out and "argument-mutated" in out and "(off by default)" in out


# What SARIF 2.1.0 asks of the parts we write, and what GitHub's code scanning requires on top of it. The whole schema is
# not ours to ship; docs/lint.md says what it found when the outputs were held against it.
REGION = {
    "type": "object", "additionalProperties": False, "required": ["startLine", "startColumn", "endLine", "endColumn"],
    "properties": {k: {"type": "integer", "minimum": 1} for k in ("startLine", "startColumn", "endLine", "endColumn")},
}  # fmt: skip
ARTIFACT = {
    "type": "object", "additionalProperties": False, "required": ["uri"],
    "properties": {"uri": {"type": "string", "format": "uri-reference"}, "uriBaseId": {"type": "string"}},
}  # fmt: skip
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}, "markdown": {"type": "string"}}}
LOCATION = {
    "type": "object", "additionalProperties": False, "required": ["physicalLocation"],
    "properties": {
        "id": {"type": "integer", "minimum": -1}, "message": TEXT, "logicalLocations": {"type": "array"},
        "physicalLocation": {"type": "object", "additionalProperties": False, "required": ["artifactLocation"],
                             "properties": {"artifactLocation": ARTIFACT, "region": {"anyOf": [REGION, {"const": {"startLine": 1}}]}}},
    },
}  # fmt: skip
SARIF = {
    "type": "object", "additionalProperties": False, "required": ["version", "runs", "$schema"],
    "properties": {
        "$schema": {"type": "string"}, "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "items": {
            "type": "object", "additionalProperties": False, "required": ["tool", "results"],
            "properties": {
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"]}},
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object", "required": ["name", "version", "rules"],
                    "properties": {"rules": {"type": "array", "uniqueItems": True, "items": {
                        "type": "object", "required": ["id", "name", "shortDescription", "fullDescription", "help"],
                        "properties": {"id": {"type": "string"}, "shortDescription": TEXT, "fullDescription": TEXT, "help": TEXT}}}}}}},
                "results": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False,
                    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
                    "properties": {
                        "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": 0},
                        "level": {"enum": ["none", "note", "warning", "error"]}, "message": TEXT,
                        "locations": {"type": "array", "minItems": 1, "items": LOCATION},
                        "relatedLocations": {"type": "array", "items": LOCATION},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "properties": {"type": "object"},
                        "fixes": {"type": "array", "items": {
                            "type": "object", "additionalProperties": False, "required": ["artifactChanges"],
                            "properties": {"description": TEXT, "artifactChanges": {"type": "array", "minItems": 1, "items": {
                                "type": "object", "required": ["artifactLocation", "replacements"],
                                "properties": {"artifactLocation": ARTIFACT, "replacements": {"type": "array", "minItems": 1, "items": {
                                    "type": "object", "required": ["deletedRegion"], "properties": {"deletedRegion": REGION}}}}}}}}},
                    }}},
            }}},
    },
}  # fmt: skip


def test_sarif(project) -> None:
    (project / "a b.py").write_text(SLOW + "\n\n" + BAD + "\n\ndef g(x):\n    return F.softmax(x)\n")
    (project / "book.ipynb").write_text(json.dumps(notebook(BAD)))
    (project / "two.py").write_text("import torch\n\nx = torch.ones(3, requires_grad=True)\na = x * 2\nb = a**2\na += 1\nb.sum().backward()\n")
    (project / "syntax.py").write_text("import torch\ndef f(:\n")
    (project / "nowhere.py").symlink_to(project / "missing.py")
    lint("--sarif", "out.sarif", "--quiet", "--format", "concise", "--verbose", ".")
    data = json.loads((project / "out.sarif").read_text(encoding="utf-8"))
    jsonschema.validate(data, SARIF, format_checker=jsonschema.FormatChecker())
    run = data["runs"][0]
    rules = [r["id"] for r in run["tool"]["driver"]["rules"]]
    assert all(rules[r["ruleIndex"]] == r["ruleId"] for r in run["results"])
    prints = [r["partialFingerprints"]["torchsleuth/v1"] for r in run["results"]]
    assert len(prints) == len(set(prints)) == 5
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]}
    assert uris == {"a%20b.py", "book.ipynb", "two.py"}
    assert any(r.get("relatedLocations") for r in run["results"]) and any(r.get("fixes") for r in run["results"])
    (in_cell,) = (r for r in run["results"] if r["locations"][0]["physicalLocation"]["region"] == {"startLine": 1})
    assert in_cell["message"]["text"].startswith("cell 1, line 6: ")
    (invocation,) = run["invocations"]
    said = [(n["level"], n["message"]["text"].partition(": ")[0]) for n in invocation["toolExecutionNotifications"]]
    assert sorted(said) == [("error", "./nowhere.py"), ("error", "syntax.py")] and invocation["executionSuccessful"] is False
