"""A right program cannot tell that the black box is there: same output, same tracebacks, same modes, nothing kept alive."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pretend import run_on_pretend_device

PROGRAMS = {
    "transforms, modes and compilers": """
        import torch, torch.nn.functional as F
        from torch import nn
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.overrides import TorchFunctionMode
        torch.manual_seed(0)
        table, x = nn.Embedding(10, 4), torch.randn(6, 5)
        ids = torch.randint(0, 6, (3, 2))
        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                print(func.name())
                return func(*args, **(kwargs or {}))
        with Count():
            table(ids), x[ids], x.gather(0, ids), F.cross_entropy(x, torch.arange(6) % 5), F.one_hot(ids, 8)
        class Names(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(func.__name__)
                return func(*args, **(kwargs or {}))
        with Names():
            table(ids), x[ids]
        print(torch.vmap(lambda row, i: row[i])(x[:3], ids[:, 0] % 5))
        print(torch.func.grad(lambda w: F.embedding(ids, w).sum())(table.weight.detach()).sum())
        print(torch.func.jacrev(lambda w: w[ids].sum(0))(x).shape)
        look = torch.jit.script(nn.Embedding(4, 2))
        print(look(ids % 4).shape, torch.jit.trace(lambda a, i: a[i], (x, ids))(x, ids).shape)
        compiled = torch.compile(lambda a, i: a[i].sum() + F.embedding(i, a).mean(), backend="aot_eager")
        print(compiled(x, ids))
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            print(F.embedding(torch.zeros(2, dtype=torch.long), torch.zeros(3, 3)).shape)
        print(table(ids.to("cpu")).to("meta").shape, F.embedding(ids.to("meta"), table.weight.to("meta")).shape)
        class Mine(torch.Tensor):
            pass
        print(type(x.as_subclass(Mine)[ids]).__name__)
        with torch.inference_mode():
            print(table(ids).sum(), x.index_select(0, ids[0]).shape)
        """,
    "handled exceptions": """
        import traceback, torch
        x = torch.randn(4, 3)
        for attempt in (lambda: x.gather(0, torch.zeros(5, 5, 5, dtype=torch.long)), lambda: x[torch.zeros(2, 2, dtype=torch.bool)],
                        lambda: torch.index_select(x, 7, torch.tensor([0])), lambda: torch.nn.functional.embedding(torch.ones(2), x)):
            try:
                attempt()
            except Exception:
                print(traceback.format_exc())
        """,
    "tensors die when they should": """
        import gc, weakref, torch
        gc.disable()
        table, batch = torch.nn.Embedding(10, 4), torch.randint(0, 10, (4, 3))
        died = []
        for step in range(5):
            rows = batch.clone()
            weakref.finalize(rows, died.append, step)
            column = rows[:, 1]
            found = table(column) + table(rows[:, 2])
            del rows, column, found
            print(died)
        """,
    "gradients and random numbers": """
        import torch, torch.nn.functional as F
        torch.manual_seed(3)
        w = torch.randn(7, 3, requires_grad=True)
        i = torch.randint(0, 7, (5,))
        (w[i].sum() + w.gather(0, i[:, None] % 7).sum() + F.embedding(i, w).pow(2).sum()).backward()
        print(w.grad, torch.multinomial(torch.ones(5), 3), torch.bernoulli(torch.full((4,), 0.5)), torch.rand(2))
        y = torch.zeros(7, 3)
        y[i] += 1
        y.scatter_add_(0, i[:, None], torch.ones(5, 1))
        print(y, y._version)
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_programs_cannot_tell(name: str, tmp_path) -> None:
    import textwrap

    script = tmp_path / "main.py"
    script.write_text(textwrap.dedent(PROGRAMS[name]))
    plain = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    for exact_seconds in (0.0, 2.0):  # with and without the operation log
        watched = run_on_pretend_device(script, stops=False, exact_seconds=exact_seconds)
        assert plain.returncode == watched.status == 0, (plain.stderr, watched.stderr)
        assert watched.stdout == plain.stdout
        assert watched.report["diagnoses"] == []
