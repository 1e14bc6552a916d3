"""`install()`, `watch()`, `--caught`, notebooks, wrapped exceptions, threads: every way in gives the same report."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from programs import run_program

FAILING = """
x = torch.ones(3, requires_grad=True)
h = x * 2
y = h ** 2
h += 1
y.sum().backward()
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def _python(path: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, path.name, *arguments], cwd=path.parent, capture_output=True, text=True)


def test_install_chains_to_the_hook_that_was_there(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import sys, torch, torchsleuth
        sys.excepthook = lambda kind, error, tb: print("first hook:", kind.__name__, file=sys.stderr)
        torchsleuth.install()
        """
        + FAILING.replace("\n", "\n        "),
    )
    run = _python(path)
    assert run.returncode == 1
    assert run.stderr.startswith("first hook: RuntimeError")
    assert "inplace-saved-tensor" in run.stderr
    assert "h += 1" in run.stderr


def test_watch_reports_and_lets_the_exception_through(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import torch, torchsleuth
        try:
            with torchsleuth.watch(json="report.json", quiet=True):
                x = torch.ones(3, requires_grad=True)
                x += 1
        except RuntimeError as error:
            frames = []
            traceback = error.__traceback__
            while traceback:
                frames.append(traceback.tb_frame.f_code.co_name)
                traceback = traceback.tb_next
            print("through", frames, torch._C._len_torch_function_stack())
        """,
    )
    run = _python(path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "through ['<module>'] 0\n"
    (diagnosis,) = json.loads((tmp_path / "report.json").read_text())["diagnoses"]
    assert diagnosis["rule"] == "inplace-on-leaf"
    assert {(c["role"], c["line"]) for c in diagnosis["culprits"]} == {("mutate", 5), ("create", 4)}


def test_caught_errors_are_reported_once_each(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import torch


        def attempt(x):
            try:
                x.add_(1)
            except RuntimeError as error:
                return str(error)


        x = torch.ones(3, requires_grad=True)
        for _ in range(5):
            attempt(x)
        try:
            {}["missing"]
        except KeyError:
            pass
        """,
    )
    silent = run_program(path)
    assert silent.diagnoses == []
    assert silent.stderr == ""
    run = run_program(path, caught=True)
    assert run.status == 0
    assert run.report["outcome"] == "findings"
    assert [d["rule"] for d in run.diagnoses] == ["inplace-on-leaf"]
    assert ("mutate", 6) in run.culprits()


def test_attributes_that_the_program_does_without_are_no_errors(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import torch

        def centre(batch):
            try:
                return batch - batch.mean(0)
            except AttributeError:
                return [centre(part) for part in batch]

        centre((torch.ones(2, 3), torch.zeros(4)))
        LAST
        """,
    )
    text = path.read_text()
    path.write_text(text.replace("LAST", ""))
    assert run_program(path, caught=True).diagnoses == []
    path.write_text(text.replace("LAST", "(torch.ones(2), torch.ones(3)).mean(0)"))
    assert [diagnosis["rule"] for diagnosis in run_program(path, caught=True).diagnoses] == ["not-a-tensor"]


def test_caught_errors_in_a_loop_hide_no_other(tmp_path: Path) -> None:
    """The same error with other values is one; a dead exception's id, which comes again, is not the exception."""
    path = _write(
        tmp_path,
        """
        import torch

        table = torch.nn.Embedding(4, 2)
        for i in range(30):
            try:
                table(torch.tensor([1, 4 + i]))
            except IndexError:
                pass
        w = torch.ones(3, requires_grad=True)
        try:
            w += 1
        except RuntimeError:
            pass
        try:
            torch.ones(2, 3) @ torch.ones(4, 5)
        except RuntimeError:
            pass
        """,
    )
    run = run_program(path, caught=True)
    assert [d["rule"] for d in run.diagnoses] == ["index-out-of-range", "inplace-on-leaf", "matmul-shape"]


def test_a_wrapped_exception_is_explained_by_its_cause(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import torch


        def train():
            try:
                x = torch.ones(3, requires_grad=True)
                h = x.exp()
                h += 1
                h.sum().backward()
            except RuntimeError as error:
                raise ValueError("training failed") from error


        train()
        """,
    )
    run = run_program(path)
    assert run.report["exception"]["type"] == "ValueError"
    assert run.culprits() == {("mutate", 8), ("save", 7)}


@pytest.mark.parametrize(
    ("leaving", "status"),
    [("sys.exit(3)", 3), ("raise SystemExit(4) from error", 4), ("raise SystemExit(5) from None", 5)],
)
def test_an_error_that_the_program_answers_by_leaving_is_explained(tmp_path: Path, leaving: str, status: int) -> None:
    run = run_program(_write(tmp_path, _LEAVING.replace("LEAVE", leaving)))
    assert run.status == status
    assert run.report["outcome"] == "crash"
    assert run.report["exception"]["type"] == "RuntimeError"
    assert run.culprits() == {("mutate", 7), ("save", 6)}
    assert run.stderr.startswith("gave up: one of the variables")  # and no traceback that python would not print
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("leaving", ["sys.exit(0)", "sys.exit()", "pass"])
def test_an_error_that_the_program_lives_with_is_not(tmp_path: Path, leaving: str) -> None:
    run = run_program(_write(tmp_path, _LEAVING.replace("LEAVE", leaving)))
    assert (run.status, run.report["outcome"], run.diagnoses) == (0, "ok", [])


_LEAVING = """
import sys
import torch

def train():
    x = torch.ones(3, requires_grad=True)
    h = x.exp()
    h += 1
    h.sum().backward()

try:
    train()
except RuntimeError as error:
    print("gave up:", error, file=sys.stderr)
    LEAVE
"""


@pytest.mark.parametrize(("shape", "found"), [("6", ["silent-broadcast"]), ("6, 1", [])])
def test_a_training_that_is_interrupted_is_audited_as_far_as_it_came(tmp_path: Path, shape: str, found: list[str]) -> None:
    path = _write(
        tmp_path,
        f"""
        import os, signal
        import torch
        from torch import nn
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started without one
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1000):
            loss = nn.functional.mse_loss(model(torch.randn(6, 4)), torch.randn({shape}))
            if step == 3:
                os.kill(os.getpid(), signal.SIGINT)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    run = run_program(path, audit=True)
    assert run.report["exception"]["type"] == "KeyboardInterrupt"
    assert [diagnosis["rule"] for diagnosis in run.diagnoses] == found


def test_a_thread_that_dies_is_reported_and_the_program_goes_on(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import threading
        import torch


        def work():
            x = torch.ones(3, requires_grad=True)
            h = x.exp()
            h += 1
            h.sum().backward()


        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print("on")
        """,
    )
    run = run_program(path)
    assert (run.status, run.stdout) == (0, "on\n")
    assert run.culprits() == {("mutate", 8), ("save", 7)}


def test_another_file_of_the_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("")
    (tmp_path / "layers" / "scale.py").write_text("def shrink_(t):\n    return t.mul_(0.5)\n")
    path = _write(
        tmp_path,
        """
        import torch
        from layers.scale import shrink_

        x = torch.ones(3, requires_grad=True)
        h = x.tanh()
        shrink_(h)
        h.sum().backward()
        """,
    )
    run = run_program(path)
    files = {(c["role"], c["file"], c["line"]) for d in run.diagnoses for c in d["culprits"]}
    assert files == {("mutate", "layers/scale.py", 2), ("save", "program.py", 5)}


def test_a_failure_of_our_own_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(
        tmp_path,
        """
        import torch
        import torchsleuth.diagnose
        from torchsleuth.cli import main

        def broken(*arguments):
            raise ZeroDivisionError("ours")

        torchsleuth.diagnose.diagnose = broken
        open("fails.py", "w").write("import torch\\ntorch.ones(2, requires_grad=True).add_(1)\\n")
        raise SystemExit(main(["run", "fails.py"]))
        """,
    )
    run = _python(path)
    assert run.returncode == 1
    ours = [line for line in run.stderr.splitlines() if line.startswith("torchsleuth")]
    assert ours == ["torchsleuth: could not finish its report (ZeroDivisionError: ours); the traceback above stands"]
    assert "a leaf Variable that requires grad" in run.stderr


def test_a_notebook_cell_is_reported_after_its_traceback(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    path = _write(
        tmp_path,
        """
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance(colors="NoColor")
        shell.run_cell("import torch, torchsleuth\\ntorchsleuth.install()")
        for _ in range(2):
            shell.run_cell("x = torch.ones(3, requires_grad=True)\\nh = x.exp()")
            shell.run_cell("h += 1\\nh.sum().backward()")
        """,
    )
    run = _python(path)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("inplace-saved-tensor") == 2, run.stderr
    assert "h += 1" in run.stderr
    assert "h = x.exp()" in run.stderr


def test_a_script_that_a_cell_runs_is_reported_once(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "script.py").write_text("import torch\nx = torch.ones(3, 4)\nx[3]\n")
    path = _write(
        tmp_path,
        """
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance(colors="NoColor")
        for cell in ("import torch, torchsleuth\\ntorchsleuth.install()", "%run script.py", "1 + 1", "def f():\\n    torch.ones(3) @ torch.ones(4)", "f()", "1 + 1"):
            shell.run_cell(cell, store_history=True)
        """,
    )
    run = _python(path)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("━━ torchsleuth ━━") == 2, run.stderr
    assert "bad index      script.py:3" in run.stderr
    assert "<cell 4>:2" in run.stderr  # the number that the notebook shows


def test_verbose_says_which_recorder_and_why(tmp_path: Path) -> None:
    path = _write(tmp_path, "import torch\n")
    command = [sys.executable, "-m", "torchsleuth", "run", "--verbose", path.name]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.stderr.startswith("torchsleuth: recording with ")
    assert "since" in run.stderr


def test_a_debugger_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        import sys
        import torch, torchsleuth
        tracer = lambda frame, event, argument: None
        sys.settrace(tracer)
        torchsleuth.install()
        print(sys.gettrace() is tracer)
        sys.settrace(None)
        """
        + FAILING.replace("\n", "\n        "),
    )
    run = _python(path)
    assert run.stdout == "True\n"
    assert "inplace-saved-tensor" in run.stderr
    if sys.version_info < (3, 12):
        assert "a debugger or coverage tool holds the trace hook" in run.stderr


@pytest.mark.parametrize("name", ["gan", "normalise", "hidden_state", "lost", "leaf", "custom_function"])
def test_every_demo_is_explained(name: str) -> None:
    from torchsleuth.cli import demo

    run = run_program(demo._FOLDER / f"{name}.py")
    assert run.diagnoses and run.diagnoses[0]["confidence"] == "certain"
