"""Deaths that no recorded index explains, the guarded re-run, full memory: what is said, and what is not."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import textwrap

import pytest
import torch
from pretend import run_on_pretend_device
from programs import run_program
from test_blackbox import gpu, report_on_gpu

from torchsleuth import env
from torchsleuth.capture import assert_text
from torchsleuth.diagnose import diagnose
from torchsleuth.evidence import Evidence
from torchsleuth.evidence_device import DeviceDeath, DeviceState
from torchsleuth.model import RaisedException
from torchsleuth.record.blackbox.box import BlackBox
from torchsleuth.record.blackbox.memory import HostCopier, Ring

EMBEDDING_LINE = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: indexSelectSmallIndex: block: [0,0,0], thread: [3,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
GATHER_LINE = (
    "/pytorch/aten/src/ATen/native/cuda/ScatterGatherKernel.cu:163: operator(): block: [0,0,0], thread: [1,0,0] "
    'Assertion `idx_dim >= 0 && idx_dim < index_size && "scatter gather kernel index out of bounds"` failed.\n'
)
COMPILED_LINE = (
    "/tmp/torchinductor_user/w2/cw2kekgp.py:31: unknown: block: [0,0,0], thread: [4,0,0] "
    "Assertion `index out of bounds: 0 <= tmp4 < 10` failed.\n"
)

TWO_SUSPECTS = """
    import torch
    from torch import nn
    table = nn.Embedding(10, 4)
    scores = torch.randn(2, 5)
    ids = torch.tensor([3, 10])
    first = table(ids)
    best = torch.tensor([[4], [5]])
    second = scores.gather(1, best)
    print(first.sum().item())
"""
ALL_FINE = """
    import torch
    from torch import nn
    table = nn.Embedding(10, 4)
    ids = torch.tensor([3, 9])
    found = table(ids)
    exec(compile("def fail(error): raise error", "<torch device>", "exec"))
    fail(RuntimeError("CUDA error: device-side assert triggered"))
"""


def test_reads_the_assertion() -> None:
    text = assert_text.parsed("loss 0.3\n" + EMBEDDING_LINE * 4 + "Traceback (most recent call last):\n")
    assert (text.file, text.line, text.kernel, text.assertion, text.threads) == (
        "Indexing.cu", 1515, "indexSelectSmallIndex", "srcIndex < srcSelectDimSize", 4,
    )  # fmt: skip
    assert assert_text.may_be(text, "embedding") and assert_text.may_be(text, "index_select")
    assert not assert_text.may_be(text, "nll_loss_forward") and not assert_text.may_be(text, "scatter_.value")
    assert assert_text.parsed("nothing of the kind") is None
    unknown = assert_text.parsed(EMBEDDING_LINE.replace("Indexing.cu", "MyKernel.cu"))
    assert assert_text.may_be(unknown, "embedding"), "a file nobody knows excludes nobody"


def test_assertion_text_chooses_among_calls() -> None:
    """On a GPU both copies may have arrived; what was printed says whose kernel it was."""
    for line, said in ((EMBEDDING_LINE, "`ids[1]` = 10"), (GATHER_LINE, "`best[1, 0]` = 5")):
        run = run_on_pretend_device(TWO_SUSPECTS, stderr=line, both_copies=True)
        (diagnosis,) = run.diagnoses
        assert diagnosis["rule"] == "index-out-of-range" and said in run.words(), run.words()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("torch.index_select(x, 0, rows, out=torch.empty(2, 3))", "`rows[1]` = 4"),
        ("torch.gather(x, 0, cells, out=torch.empty(1, 3))", "`cells[0, 2]` = 4"),
        ("torch.scatter(x, 0, cells, x, out=torch.empty(4, 3))", "`cells[0, 2]` = 4"),
        ("torch.take(x, 9 * rows, out=torch.empty(2))", "beyond the 12 elements of `x`"),
    ],
)
def test_calls_with_out_are_watched(call: str, said: str) -> None:
    run = run_on_pretend_device(f"""
        import torch
        x, rows, cells = torch.randn(4, 3), torch.tensor([1, 4]), torch.tensor([[1, 2, 4]])
        {call}
        print(x.sum().item())
    """)
    assert run.diagnoses[0]["rule"] == "index-out-of-range" and run.diagnoses[0]["culprits"][0]["line"] == 4
    assert said in run.words(), run.words()


def test_an_index_on_another_device_is_copied_on_that_device() -> None:
    class Devices(HostCopier):
        devices, device = 2, 1  # the program's current one
        copied_on: list[int] = []

        def copy(self, target, source, size, stream):
            self.copied_on.append(self.device)
            super().copy(target, source, size, stream)

    memory = ctypes.create_string_buffer(1 << 12)
    box, devices = BlackBox("cpu"), Devices()
    box.arm(Ring(ctypes.addressof(memory), 1 << 12, memory), devices)
    try:
        torch.randn(4, 3).gather(0, torch.tensor([[2, 1]]))
    finally:
        box.disarm()
    assert devices.copied_on == [torch.tensor(0).get_device()] and devices.device == 1, "the program's own is current again"
    ((_, part),) = [(entry, entry.parts[0]) for entry in box.newest_first()]
    assert list(memoryview(box.bytes_of(part)).cast("q")) == [2, 1]


PRINTS = """
    import ctypes, os, sys
    from torchsleuth.record.blackbox.transcript import transcript
    libc = ctypes.CDLL(None)
    def say(words):
        libc.fputs(words, ctypes.c_void_p(ctypes.c_void_p.in_dll(libc, "stderr").value))
    say(b"before\\n")
    transcript.begin()
    say(b"during\\n")
    print(repr(transcript.text(until=lambda text: "during" in text)))
    try:
        os.wait()
    except ChildProcessError:
        print("no child to wait for")
    transcript.end()
    say(b"after\\n")
    transcript.begin()
    say(b"last words\\n")
    os.abort()
"""


def test_what_c_prints_is_copied_and_still_printed() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PRINTS)], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["'during\\n'", "no child to wait for"]
    assert sorted(done.stderr.splitlines()) == ["after", "before", "during", "last words"], "and an abort loses nothing"


def test_nobody_is_accused_whose_values_are_in_range() -> None:
    run = run_on_pretend_device(ALL_FINE)
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "device-side-assert" and diagnosis["confidence"] == "possible"
    assert diagnosis["culprits"] == []
    words = run.words()
    assert "its values were in range" in words and "table(ids)" in words and "--guard" in words


def test_a_compiled_check_is_told_apart() -> None:
    run = run_on_pretend_device(ALL_FINE, stderr=COMPILED_LINE)
    words = run.words()
    assert "0 <= tmp4 < 10" in words and "torch.compile" in words and not run.diagnoses[0]["culprits"]


COMPILED = """
    import torch
    from torch import nn
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
        def forward(self, ids, lengths):
            return self.embed(ids.clamp(max=9)).sum()
    exec(compile("def fail(error): raise error", "<torch device>", "exec"))
    BODY
    fail(RuntimeError("CUDA error: device-side assert triggered"))
"""
COMPILED_CALLS = {
    "a module": ("`ids`", """
    model = torch.compile(Tagger(), backend="eager")
    for step in range(3):
        ids = torch.randint(0, 10, (4, 6))
        ids[2, 3] = 57 if step == 2 else 0
        model(ids, lengths=torch.tensor([100]))  # here"""),
    "a batch": ("`batch['ids']`", """
    model = Tagger()
    model.compile(backend="eager")
    for step in range(2):
        batch = {"ids": torch.randint(0, 10, (4, 6)), "lengths": torch.tensor([100 + step])}
        batch["ids"][2, 3] = 57 if step else 0
        model(**batch)  # here"""),
    "a method": ("`batch['ids']`", """
    class Trainer:
        model = Tagger()
        @torch.compile(backend="eager")
        def step(self, batch):
            return self.model(batch["ids"], None)
    trainer = Trainer()
    for step in range(2):
        batch = {"ids": torch.zeros(4, 6, dtype=torch.long)}
        batch["ids"][2, 3] = 57 * step
        trainer.step(batch)  # here"""),
}  # fmt: skip


@pytest.mark.skipif(not env.HAS_MONITORING, reason="compiled calls are seen by sys.monitoring")
@pytest.mark.parametrize("kind", COMPILED_CALLS)
def test_the_argument_that_breaks_a_compiled_check(kind: str) -> None:
    name, body = COMPILED_CALLS[kind]
    program = COMPILED.replace("    BODY", body.strip("\n"))
    run = run_on_pretend_device(program, stderr=COMPILED_LINE)
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "device-side-assert" and diagnosis["confidence"] == "likely"
    here = next(number for number, line in enumerate(program.splitlines(), 1) if line.endswith("# here"))
    assert diagnosis["culprits"][0]["line"] == here
    assert diagnosis["title"].startswith(f"{name} holds 57") and f"{name[:-1]}[2, 3]` = 57" in run.words(), run.words()


@pytest.mark.parametrize(
    "calls",
    [
        "f(torch.tensor([99]), torch.tensor([77]))",  # two that could be
        "f(torch.tensor([1]), torch.tensor([2]))",  # none that could be
        "[f(torch.tensor([99]), torch.tensor([2])) for _ in range(2)]",  # one, and the GPU has survived it before
    ],
)
def test_no_argument_of_a_compiled_call_is_accused_in_doubt(calls: str) -> None:
    body = f'    f = torch.compile(lambda a, b: a.float().mean() + b.float().mean(), backend="eager")\n    {calls}'
    run = run_on_pretend_device(COMPILED.replace("    BODY", body), stderr=COMPILED_LINE)
    (diagnosis,) = run.diagnoses
    assert diagnosis["confidence"] == "possible" and not diagnosis["culprits"]
    assert "--guard" in run.words()


def test_guard_sees_what_would_have_been_compiled() -> None:
    run = run_on_pretend_device("""
        import torch
        def look(table, rows):
            return table[rows].sum()
        torch.compile(look, backend="eager")(torch.randn(10, 4), torch.tensor([3, 10]))
    """, guard=True)  # fmt: skip
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "index-out-of-range" and diagnosis["culprits"][0]["line"] == 4
    assert "`rows[1]` = 10" in run.words(), run.words()


def test_guard_stops_at_the_line() -> None:
    run = run_on_pretend_device(TWO_SUSPECTS, guard=True)
    (diagnosis,) = run.diagnoses
    assert run.report["exception"]["type"] == "IndexError"
    assert diagnosis["rule"] == "index-out-of-range" and diagnosis["culprits"][0]["line"] == 7
    assert "`ids[1]` = 10" in run.words()
    assert "guard.py" not in run.stderr, "our frame must not show"


@pytest.mark.parametrize(
    ("call", "rule", "said"),
    [
        ("torch.nn.functional.cross_entropy(torch.randn(2, 3), torch.tensor([0, 3]))", "class-out-of-range", "3"),
        ("torch.randn(4, 2)[torch.tensor([4])]", "index-out-of-range", "4"),
        ("torch.randn(4, 2).gather(1, torch.tensor([[2]]))", "index-out-of-range", "2"),
        ("torch.randn(4, 2).take(torch.tensor([8]))", "index-out-of-range", "8"),
    ],
)
def test_guard_raises_what_the_cpu_raises(call: str, rule: str, said: str) -> None:
    guarded = run_on_pretend_device(f"import torch\nx = {call}\n", guard=True)
    assert guarded.diagnoses[0]["rule"] == rule and said in guarded.words(), guarded.words()


OUT_OF_MEMORY = """
import torch
from torch import nn
model = nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
{total} = 0
for step in range(5):
    x = torch.randn(400, 64)
    scores = model(x) @ x.T
    loss = nn.functional.mse_loss(torch.softmax(scores, -1), torch.zeros(400, 400))
    loss.backward(retain_graph=True)
    optimizer.step()
    {total} += {added}
exec(compile("def fail(error): raise error", "<torch device>", "exec"))
fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of "
    "which 1.00 GiB is free. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."))
"""


def test_full_memory_names_who_keeps_it(tmp_path) -> None:
    script = tmp_path / "main.py"
    script.write_text(OUT_OF_MEMORY.format(total="history", added="loss"))
    run = run_program(script)
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "cuda-out-of-memory"
    assert diagnosis["culprits"][0]["line"] == 13, "the sum that keeps the graphs"
    words = run.words()
    assert "`history` keeps the graphs of 5 steps" in words
    assert "softmax" in words and "the optimizer's state" in words and "2.0 GiB" in words


def test_full_memory_without_kept_graphs_accuses_no_sum(tmp_path) -> None:
    script = tmp_path / "main.py"
    script.write_text(OUT_OF_MEMORY.format(total="history", added="loss.item()"))
    run = run_program(script)
    words = run.words()
    assert "steps" not in words and "Kept for backward" in words
    assert all(culprit["line"] != 13 for culprit in run.diagnoses[0]["culprits"])


GATHERED = """
import torch
from torch import nn
class Trainer:
    def __init__(self):
        self.model = nn.Linear(64, 64)
        self.seen = []
    def score(self, x):
        return (self.model(x) ** 2).mean()
    def validate(self):
        for step in range(5):
            value = self.score(torch.randn(400, 64))
            self.seen.append({kept})
            {then}
trainer = Trainer()
trainer.validate()
exec(compile("def fail(error): raise error", "<torch device>", "exec"))
fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB."))
"""


@pytest.mark.parametrize("kept", ["value", "{'score': value, 'n': 400}", "(step, value)", "[value]"])
def test_full_memory_names_the_list_that_keeps_results(tmp_path, kept: str) -> None:
    script = tmp_path / "main.py"
    script.write_text(GATHERED.format(kept=kept, then="pass"))
    run = run_program(script)
    (diagnosis,) = run.diagnoses
    assert [culprit["line"] for culprit in diagnosis["culprits"][:2]] == [13, 9], run.words()
    assert "`trainer.seen` keeps 5 results with their graphs alive" in run.words()


@pytest.mark.parametrize(("kept", "then"), [("value.detach()", "pass"), ("value", "value.backward()"), ("value if step < 1 else self.seen[-1] + value", "pass")])
def test_full_memory_accuses_no_list_of_numbers_freed_graphs_or_one_graph(tmp_path, kept: str, then: str) -> None:
    script = tmp_path / "main.py"
    script.write_text(GATHERED.format(kept=kept, then=then))
    assert "results with their graphs" not in run_program(script).words()


def death(kind: str, state: DeviceState | None, message: str) -> dict:
    evidence = Evidence(
        RaisedException("RuntimeError", message), (), device=DeviceDeath(kind, None, False, None, ()), device_state=state
    )
    diagnoses, _ = diagnose("RuntimeError", message, lambda needs: evidence)
    return {"rule": diagnoses[0].rule, "text": " ".join([*(fact.text for fact in diagnoses[0].facts), diagnoses[0].explanation])}


def test_library_errors_say_what_was_ruled_out() -> None:
    message = "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"
    dead = death("cublas", DeviceState(False), message)
    assert dead["rule"] == "cuda-library-error" and "no longer answers" in dead["text"]
    full = death("cublas", DeviceState(True, 10 << 20, 8 << 30), message)
    assert "10 MiB of 8192 MiB free" in full["text"]
    alive = death("cublas", DeviceState(True, 4 << 30, 8 << 30), message)
    assert "neither an earlier kernel nor full memory" in alive["text"]


def test_illegal_access_is_not_explained_away() -> None:
    told = death("illegal access", None, "CUDA error: an illegal memory access was encountered")
    assert told["rule"] == "illegal-memory-access" and "not known here" in told["text"]


# -- on a real GPU ----------------------------------------------------------------------------------------


@gpu
def test_gpu_guard(tmp_path) -> None:
    program = textwrap.dedent(TWO_SUSPECTS).replace("nn.Embedding(10, 4)", "nn.Embedding(10, 4).cuda()").replace("([3, 10])", "([3, 10]).cuda()")
    report = report_on_gpu(program, tmp_path, "--guard", same=False)
    (diagnosis,) = report["diagnoses"]
    assert report["exception"]["type"] == "IndexError" and diagnosis["culprits"][0]["line"] == 7
    assert "`ids[1]` = 10" in json.dumps(diagnosis, ensure_ascii=False)


@gpu
def test_gpu_compiled(tmp_path) -> None:
    report = report_on_gpu(
        "import torch\n"
        "look = torch.compile(lambda table, rows: table[rows] * 2)\n"
        "found = look(torch.randn(10, 4, device='cuda'), torch.tensor([1, 99], device='cuda'))\n"
        "print(found.sum().item())\n",
        tmp_path,
    )
    (diagnosis,) = report["diagnoses"]
    told = json.dumps(diagnosis, ensure_ascii=False)
    assert diagnosis["rule"] == "device-side-assert" and "torch.compile" in told and "index out of bounds" in told
    if env.HAS_MONITORING:
        assert diagnosis["culprits"][0]["line"] == 3 and "holds 99" in told
    else:
        assert diagnosis["culprits"] == []
    guarded = report_on_gpu((tmp_path / "main.py").read_text(), tmp_path, "--guard", same=False)["diagnoses"][0]
    assert guarded["rule"] == "index-out-of-range" and guarded["culprits"][0]["line"] == 2


@gpu
def test_gpu_graphs_are_said_not_to_be_watched(tmp_path) -> None:
    report = report_on_gpu(
        "import torch\n"
        "table = torch.nn.Embedding(10, 4).cuda()\n"
        "ids = torch.tensor([1, 2], device='cuda')\n"
        "table(ids)\n"
        "torch.cuda.synchronize()\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    found = table(ids)\n"
        "graph.replay()\n"
        "ids.fill_(11)\n"
        "graph.replay()\n"
        "print(found.sum().item())\n",
        tmp_path,
    )
    (diagnosis,) = report["diagnoses"]
    assert diagnosis["rule"] == "device-side-assert" and "CUDA graph are not watched" in json.dumps(diagnosis)


@gpu
def test_gpu_full_memory(tmp_path) -> None:
    report = report_on_gpu(
        "import torch\n"
        "from torch import nn\n"
        "torch.cuda.set_per_process_memory_fraction(0.02)\n"
        "model = nn.Linear(1024, 1024).cuda()\n"
        "total = 0\n"
        "for step in range(10000):\n"
        "    hidden = model(torch.randn(4096, 1024, device='cuda'))\n"
        "    loss = nn.functional.mse_loss(torch.tanh(hidden), torch.zeros_like(hidden))\n"
        "    total += loss\n",
        tmp_path,
    )
    (diagnosis,) = report["diagnoses"]
    told = json.dumps(diagnosis, ensure_ascii=False)
    assert diagnosis["rule"] == "cuda-out-of-memory" and "`total` keeps the graphs of" in told
    assert diagnosis["culprits"][0]["line"] == 9


@gpu
def test_gpu_right_programs_are_left_alone(tmp_path) -> None:
    script = tmp_path / "main.py"
    script.write_text(RIGHT)
    import subprocess
    import sys

    runs = [
        subprocess.run([sys.executable, *command, str(script)], cwd=tmp_path, capture_output=True, text=True)
        for command in ([], ["-m", "torchsleuth", "run"])
    ]
    assert runs[0].returncode == runs[1].returncode == 0, runs[1].stderr
    assert runs[0].stdout == runs[1].stdout and runs[0].stderr == runs[1].stderr


RIGHT = """
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
torch.use_deterministic_algorithms(False)
d = "cuda"
table = nn.Embedding(50, 8).to(d)
out = nn.Linear(8, 5).to(d)
optimizer = torch.optim.SGD([*table.parameters(), *out.parameters()], lr=0.1)
side = torch.cuda.Stream()
script = torch.jit.script(lambda_ := torch.nn.Embedding(5, 2).to(d))
compiled = torch.compile(lambda x, i: x[i].sum())
for step in range(30):
    ids = torch.randint(0, 50, (4, 6)).to(d)
    labels = torch.randint(0, 5, (4, 6)).to(d)
    with torch.autocast(d, torch.bfloat16):
        scores = out(table(ids))
    loss = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten())
    loss = loss + F.one_hot(labels, 5).float().mean() + scores.float().gather(-1, labels[..., None]).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    picked = torch.zeros(4, 4, device=d); picked[ids[:, 0] % 4] = 1.0
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        extra = table(ids % 7)
    torch.cuda.current_stream().wait_stream(side)
    vmapped = torch.vmap(lambda row, i: row[i])(picked, ids[:, 0] % 4)
    scripted = script(ids[0] % 5)
    c = compiled(picked, ids[:, 0] % 4)
    try:
        picked[torch.zeros(3, 3, 3, dtype=torch.bool, device=d)]
    except IndexError as error:
        print(type(error).__name__)
    print(f"{loss.item():.3f} {picked.sum().item():.1f} {vmapped.shape} {c.item():.3f}")
print(torch.randn(1).item(), torch.randn(1, device=d).item())
"""
