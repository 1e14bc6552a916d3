"""Runs many small programs in one process and tells what each did. Importing torch costs seconds, so they share it.

As a module: `outcomes(sources)` starts the process. As a script: reads a JSON list of programs, writes a JSON list of results.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    source: str
    raised: str  # "Type: message", or empty
    printed: str


def outcomes(sources: list[str], timeout: float = 240) -> dict[str, Outcome]:
    """What each program did, by its source."""
    unique = list(dict.fromkeys(sources))
    if not unique:
        return {}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(unique),
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"a program took the whole process down:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    results = json.loads(done.stdout.splitlines()[-1])
    return {source: Outcome(source, *result) for source, result in zip(unique, results, strict=True)}


def _main() -> None:
    import contextlib
    import io
    import linecache
    import tempfile
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    default = torch.get_default_dtype()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(json.load(sys.stdin)):
            # A real file, so that inspect.getsource (torch.jit, torch.compile) and DataLoader workers find it.
            path = pathlib.Path(folder, f"program_{number}.py")
            path.write_text(source)
            output, raised = io.StringIO(), ""
            torch.manual_seed(0)
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
                try:
                    exec(compile(source, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
                except BaseException as error:  # a page's program may raise anything, SystemExit included
                    raised = f"{type(error).__name__}: {error}"
            torch.set_default_dtype(default)
            torch.set_grad_enabled(True)
            torch.autograd.set_detect_anomaly(False)
            linecache.clearcache()
            results.append((raised, output.getvalue()))
    print(json.dumps(results))


if __name__ == "__main__":
    _main()
