"""The audit on a CUDA device: planted bugs, twins and right models again, under autocast, in half precision, whole programs, no trace.

Nothing here runs without a GPU. What differs on one: sums by atomics that differ from run to run, TensorFloat-32, kernels
chosen by size, generators of their own, indices that kill the device instead of raising, tensors on two devices.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

AUDITOR = Path(__file__).parents[1] / "auditor"
sys.path.insert(0, str(AUDITOR))
import architectures  # noqa: E402
import correct_zoo  # noqa: E402
import planted  # noqa: E402
import scripts  # noqa: E402
import sequences_zoo  # noqa: E402
import steps_zoo  # noqa: E402

import torchsleuth  # noqa: E402
from torchsleuth.model import Outcome  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; `python -m bench.gpu` runs these on a machine that has one")
HALVES = (torch.float16, torch.bfloat16)
PROGRAMS = sorted((Path(__file__).parent / "audit_programs").glob("*.py"))
DEADLY = {"id_beyond_vocabulary"}  # the program itself kills the device, and with it all tests after it
CPU_PROGRAMS = sorted(path for path in (AUDITOR / "programs").glob("*.py") if path.stem not in DEADLY)


@pytest.fixture(autouse=True, scope="module")
def tensors_of_the_zoos():
    """Moved to the GPU while these tests run: losses close over them."""
    moved = []
    for zoo in (sequences_zoo, steps_zoo, correct_zoo):
        for name, value in list(vars(zoo).items()):
            if isinstance(value, torch.Tensor):
                moved.append((zoo, name, value))
                if torch.cuda.is_available():
                    setattr(zoo, name, value.cuda())
    yield
    for zoo, name, value in moved:
        setattr(zoo, name, value)


def told(report) -> list:
    return [(d.rule, d.title, [c.span.line for c in d.culprits], [f.text for f in d.facts]) for d in report.diagnoses]


def built(case, bug):
    torch.manual_seed(3)
    with torch.device("cuda"):
        return case.build(bug)


def judge(case: planted.Planted, bug: bool, report) -> None:
    if report.exception is not None and not case.rule.startswith("input"):
        pytest.skip(f"the model itself does not run so: {report.exception.message[:80]}")
    if not bug:
        assert report.outcome is Outcome.OK, told(report)
        return
    assert {d.rule for d in report.diagnoses} == {case.rule}, (told(report), report.notes)
    if case.lines:
        assert case.lines & {c.span.line for d in report.diagnoses for c in d.culprits}, told(report)


@pytest.mark.parametrize("bug", [True, False], ids=["bug", "twin"])
@pytest.mark.parametrize("case", planted.ALL, ids=str)
def test_planted(case, bug):
    made = built(case, bug)
    report = torchsleuth.audit(**made)
    if report.exception is not None and "device" in report.exception.message:  # the model makes tensors without saying where
        with torch.device("cuda"):
            report = torchsleuth.audit(**made)
    judge(case, bug, report)


@pytest.mark.parametrize("bug", [True, False], ids=["bug", "twin"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("case", planted.ALL, ids=str)
def test_planted_under_autocast(case, dtype, bug):
    made = built(case, bug)
    with torch.device("cuda"), torch.autocast("cuda", dtype=dtype):
        report = torchsleuth.audit(**made)
    judge(case, bug, report)


@pytest.mark.parametrize("way", ["plain", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", correct_zoo.CORRECT)
def test_correct_model_is_not_accused(name, way):
    torch.manual_seed(5)
    with torch.device("cuda"), _in(way):
        report = torchsleuth.audit(**correct_zoo.CORRECT[name]())
    if report.exception is not None:
        pytest.skip(f"the model itself does not run so: {report.exception.message[:80]}")
    assert report.outcome is Outcome.OK, told(report)


@contextlib.contextmanager
def _in(way: str):
    if way in ("float16", "bfloat16"):
        with torch.autocast("cuda", dtype=getattr(torch, way)):
            yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if way == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        after = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]
        assert way != "tf32" or after == ("high", True), "the audit left a setting behind"


def real(name: str, dtype: torch.dtype | None = None):
    torch.manual_seed(5)
    model, batch = architectures.ARCHITECTURES[name]()
    model = model.cuda()
    batch = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
    if dtype is not None:
        model = model.to(dtype)
        batch = {k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in batch.items()}
    return model, batch


@pytest.mark.parametrize("way", ["plain", "tf32", "float16", "bfloat16", "native"])
@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_architecture(name, way):
    model, batch = real(name, torch.bfloat16 if way == "native" else None)
    with _in(way):
        report = torchsleuth.audit(model, batch)
    assert report.outcome is Outcome.OK and report.exception is None, (told(report), report.exception)
    assert not any("could not" in note or "not made" in note for note in report.notes), report.notes


@pytest.mark.parametrize("way", ["plain", "tf32", "float16", "bfloat16", "native"])
@pytest.mark.parametrize("name", ["bert-classes", "roberta", "deberta", "t5", "bart"])
def test_architecture_without_its_mask(name, way):
    model, batch = real(name, torch.bfloat16 if way == "native" else None)
    batch.pop("attention_mask")
    with _in(way):
        report = torchsleuth.audit(model, batch)
    assert [d.rule for d in report.diagnoses] == ["padding-leak"], (told(report), report.notes)


@pytest.mark.parametrize("way", ["plain", "float16"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2"])
def test_architecture_with_shifted_labels(name, way):
    model, batch = real(name)
    batch["labels"] = torch.cat([batch["labels"][:, 1:], batch["labels"].new_full((architectures.B, 1), -100)], 1)
    with _in(way):
        assert [d.rule for d in torchsleuth.audit(model, batch).diagnoses] == ["label-shift"]


def test_id_beyond_the_vocabulary_does_not_kill_the_device():
    model, batch = real("bert-classes")
    batch["input_ids"] = batch["input_ids"].clone()
    batch["input_ids"][0, 1] = 77
    report = torchsleuth.audit(model, batch)
    assert [d.rule for d in report.diagnoses] == ["input-out-of-range"]
    torch.cuda.synchronize()
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_experiments_do_not_kill_the_device():
    """Padding up to the last position that the model knows: more of it cannot be tried."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.positions = nn.Embedding(30, 8), nn.Embedding(7, 8)
            self.register_buffer("table", torch.randn(7, 8))

        def forward(self, ids, mask):
            where = torch.arange(ids.shape[1], device=ids.device)
            h = self.emb(ids) + self.positions(where) + self.table[where]
            return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    lengths = torch.tensor([7, 4, 3, 7], device="cuda")
    mask = torch.arange(7, device="cuda")[None] < lengths[:, None]
    ids = torch.randint(1, 30, (4, 7), device="cuda") * mask
    assert torchsleuth.audit(Model().cuda(), (ids, mask)).outcome is Outcome.OK
    torch.cuda.synchronize()
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_lengths_on_the_cpu():
    class Model(nn.Module):
        def __init__(self, packed):
            super().__init__()
            self.emb, self.rnn, self.packed = nn.Embedding(30, 8), nn.GRU(8, 8, batch_first=True), packed

        def forward(self, ids, lengths):
            h = self.emb(ids)
            if self.packed:
                h = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
            return self.rnn(h)[1][-1]

    lengths = torch.tensor([7, 4, 3, 7])
    ids = (torch.randint(1, 30, (4, 7)) * (torch.arange(7)[None] < lengths[:, None])).cuda()
    assert torchsleuth.audit(Model(True).cuda(), (ids, lengths)).outcome is Outcome.OK
    assert [d.rule for d in torchsleuth.audit(Model(False).cuda(), (ids, lengths)).diagnoses] == ["padding-leak"]


# -- no trace ---------------------------------------------------------------------------------------


class Awkward(nn.Module):
    """Buffers that move, random numbers of the device and of a generator of its own, dropout, batch statistics."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 3))
        self.register_buffer("count", torch.zeros(()))
        self.generator = torch.Generator("cuda").manual_seed(3)
        self.last = torch.zeros(3, device="cuda")

    def forward(self, x):
        self.count += 1
        self.last.add_(1)
        return self.net(x + 0.1 * torch.randn_like(x) + torch.randn(x.shape, device=x.device, generator=self.generator))


def fingerprint(model) -> tuple:
    grads = [None if p.grad is None else (id(p.grad), p.grad.clone()) for p in model.parameters()]
    state = [(id(t), t._version, t.clone()) for t in (*model.parameters(), *model.buffers())]
    flags = [m.training for m in model.modules()], [sorted(vars(m)) for m in model.modules()]
    settings = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    return grads, state, flags, settings, torch.get_rng_state(), [s.clone() for s in torch.cuda.get_rng_state_all()]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [None, *HALVES], ids=str)
def test_no_trace(training, dtype):
    torch.manual_seed(0)
    model = Awkward().cuda().train(training)
    x, y = torch.randn(8, 4, 6, device="cuda"), torch.arange(8, device="cuda") % 3
    F.cross_entropy(model(x), y).backward()
    optimizer = torch.optim.Adam(model.parameters())
    before, inputs, own, last = fingerprint(model), x.clone(), model.generator.get_state(), model.last.clone()
    with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None):
        report = torchsleuth.audit(model, x, loss_fn=lambda out: F.cross_entropy(out, y), optimizer=optimizer)
    for one, two in zip(before, fingerprint(model), strict=True):
        assert same(one, two)
    assert torch.equal(x, inputs) and torch.equal(model.last, last) and torch.equal(model.generator.get_state(), own)
    assert not optimizer.state and report.outcome is Outcome.OK and not any("different results" in note for note in report.notes), report.notes


@pytest.mark.parametrize("name", ["bert-classes", "gpt2", "t5", "resnet"])
def test_no_trace_on_real_models(name):
    model, batch = real(name)
    with torch.no_grad():
        state = torch.cuda.get_rng_state()
        expected = model(**batch).logits
        torch.cuda.set_rng_state(state)
    before = fingerprint(model)
    torchsleuth.audit(model, batch)
    for one, two in zip(before, fingerprint(model), strict=True):
        assert same(one, two)
    with torch.no_grad():
        assert name == "resnet" or torch.equal(model(**batch).logits, expected)  # the resnet's own statistics have moved


# -- programs -----------------------------------------------------------------------------------------


def culprits(text: str) -> set[int]:
    return {n for n, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith("# culprit")}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
@pytest.mark.parametrize("bug", [True, False], ids=["bug", "fine"])
def test_program(path, bug, tmp_path):
    """`torchsleuth run --audit`, with the same output as without it."""
    text = path.read_text()
    if bug and "BUG = True" not in text:
        pytest.skip("has no bug")
    script, out = tmp_path / path.name, tmp_path / "report.json"
    script.write_text(text if bug else text.replace("BUG = True", "BUG = False"))
    environment = {**os.environ, "TORCHSLEUTH_DEBUG": "1"}
    run = [[sys.executable, "-m", "torchsleuth", "run", "--audit", "--json", str(out), str(script)], [sys.executable, str(script)]]
    watched, plain = (subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment) for command in run)
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert watched.returncode == 0 and watched.stdout == plain.stdout, watched.stderr[-3000:]
    report = json.loads(out.read_text()) if out.exists() else {"diagnoses": []}
    found = {d["rule"] for d in report["diagnoses"]}
    assert "could not be" not in watched.stderr and "given up" not in watched.stderr and "no experiment" not in watched.stderr, watched.stderr[-3000:]
    if not bug:
        assert not found, watched.stderr[-4000:]
        return
    assert found == {text.splitlines()[0].removeprefix("# rule:").partition(",")[0].strip()}, watched.stderr[-4000:]
    assert culprits(text) & {c["line"] for d in report["diagnoses"] for c in d["culprits"]}


def on_gpu(text: str) -> str:
    """The program with the GPU as its default device, and the same moves to where a tensor is already; lines stay where they are."""
    return text.replace("import torch\n", 'import torch; torch.set_default_device("cuda")\n', 1).replace('"cpu"', '"cuda"').replace(".cpu()", ".cuda()")


@pytest.mark.parametrize("path", CPU_PROGRAMS, ids=lambda p: p.stem)
@pytest.mark.parametrize("bug", [True, False], ids=["bug", "fine"])
def test_cpu_program_on_the_gpu(path, bug, tmp_path):
    text = path.read_text()
    if bug and not text.startswith("# rule:"):
        pytest.skip("has no bug")
    script = tmp_path / path.name
    script.write_text(on_gpu(text if bug else text.replace("BUG = True", "BUG = False")))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            report, status = scripts.audit_script(str(script))
    except (RuntimeError, TypeError) as error:
        if not re.search("CPU|cpu|numpy|FloatTensor", str(error)):
            raise
        pytest.skip(f"does not run on a GPU as it is: {str(error)[:80]}")
    finally:
        torch.set_default_device(None)
    rule = text.splitlines()[0].removeprefix("# rule:").partition(",")[0].strip()
    if not bug:
        assert report.outcome is Outcome.OK and status == 0, told(report)
        return
    assert {d.rule for d in report.diagnoses} == {rule}, (told(report), report.notes, errors.getvalue()[-500:])
    assert culprits(text) & {c.span.line for d in report.diagnoses for c in d.culprits}, told(report)
