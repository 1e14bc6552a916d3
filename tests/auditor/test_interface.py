"""What users call: `audit`, the assertions, the command; and what happens with awkward or bad input."""

from __future__ import annotations

import collections
import dataclasses
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from forks import in_fork

import torchsleuth
from torchsleuth import cli, testing
from torchsleuth.auditor.observation import Observation
from torchsleuth.errors import UsageError
from torchsleuth.model import Outcome, from_plain, to_plain

IDS = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [2, 9, 4, 0]])
MASK = IDS != 0


class Mean(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.emb, self.masked = nn.Embedding(10, 6), masked

    def forward(self, ids, mask):
        h = self.emb(ids)
        return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True) if self.masked else h.mean(1)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x)


X, Y = torch.randn(6, 4), torch.arange(6) % 3


def test_assertions_pass_and_fail():
    testing.assert_no_padding_leak(Mean(True), (IDS, MASK))
    with pytest.raises(AssertionError, match=r"(?s)padding leaks into the pooled output.*h\.mean\(1\)"):
        testing.assert_no_padding_leak(Mean(False), {"ids": IDS, "mask": MASK})
    with pytest.raises(AssertionError, match="nothing was tested"):
        testing.assert_no_padding_leak(Plain(), X)
    testing.assert_no_batch_mixing(Plain(), X)
    testing.assert_no_findings(Plain(), X, loss_fn=nn.CrossEntropyLoss(), target=Y)
    testing.assert_gradients_flow(Plain(), X, loss_fn=lambda out: F.cross_entropy(out, Y))
    with pytest.raises(AssertionError, match="gradient stops here|no gradient"):
        testing.assert_gradients_flow(Plain(), X, loss_fn=lambda out: out.detach().sum().requires_grad_())


def test_assert_causal():
    class Model(nn.Module):
        def __init__(self, both):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(10, 4), nn.GRU(4, 4, batch_first=True, bidirectional=both)

        def forward(self, ids):
            return self.rnn(self.emb(ids))[0]

    ids = torch.randint(0, 10, (2, 6))
    testing.assert_causal(Model(False), ids)
    with pytest.raises(AssertionError, match="earlier position sees a later token"):
        testing.assert_causal(Model(True), ids)


@pytest.mark.parametrize("channels_first", [True, False])
def test_assert_causal_finds_the_axis_of_time(channels_first):
    class Model(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.pad, self.convolution = nn.ConstantPad1d((before, after), 0.0), nn.Conv1d(4, 4, 3)

        def forward(self, x):
            return self.convolution(self.pad(x)) if channels_first else self.convolution(self.pad(x.mT)).mT

    x = torch.randn(2, 4, 10) if channels_first else torch.randn(2, 10, 4)
    testing.assert_causal(Model(2, 0), x)
    with pytest.raises(AssertionError, match="an earlier position sees a later token"):
        testing.assert_causal(Model(1, 1), x)


@pytest.mark.parametrize(
    "given",
    [
        {"batch": X, "loss_fn": lambda out: F.cross_entropy(out, Y)},
        {"batch": X, "loss_fn": nn.CrossEntropyLoss(), "target": Y},
        {"batch": (X, Y), "loss_fn": F.cross_entropy},
        {"batch": {"x": X, "labels": Y}, "loss_fn": nn.CrossEntropyLoss()},
        {"batch": {"x": X, "labels": Y}, "loss_fn": lambda out, batch: F.cross_entropy(out, batch["labels"])},
        {"batch": (X, Y), "loss_fn": lambda out, batch: F.cross_entropy(out, batch[1])},
        {"batch": {"x": X, "kinds": Y}, "loss_fn": nn.CrossEntropyLoss()},
        {"batch": {"x": X, "kinds": Y, "names": list("abcdef")}, "loss_fn": lambda out, batch: F.cross_entropy(out, batch["kinds"])},
        {"batch": X},
        {"batch": [X]},
    ],
)
def test_ways_to_give_a_batch(given):
    report = torchsleuth.audit(Plain(), **given)
    assert report.outcome is Outcome.OK and report.exception is None, report


def test_loss_of_a_batch_with_softmax_is_found_either_way():
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1))
    for given in (
        {"batch": (X, Y), "loss_fn": F.cross_entropy},
        {"batch": X, "loss_fn": nn.CrossEntropyLoss(), "target": Y},
        {"batch": (X, Y), "loss_fn": lambda out, batch: F.cross_entropy(out, batch[-1])},
        {"batch": {"input": X, "kinds": Y, "weights": X}, "loss_fn": lambda out, b: F.cross_entropy(out, b["kinds"])},
    ):
        assert [d.rule for d in torchsleuth.audit(model, **given).diagnoses] == ["activation-before-loss"]


def test_the_assertions_need_no_import_of_their_own():
    code = "import sys, torchsleuth; assert 'torch' not in sys.modules; print(torchsleuth.testing.assert_no_findings.__name__, 'testing' in dir(torchsleuth))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["assert_no_findings", "True"]


def test_bad_input_is_said_plainly():
    with pytest.raises(UsageError, match="nn.Module"):
        torchsleuth.audit(lambda x: x, X)
    with pytest.raises(UsageError, match="takes no argument 'z'"):
        torchsleuth.audit(Plain(), {"x": X, "z": X})
    for wrong, said in (
        ({"loss_fn": nn.CrossEntropyLoss(reduction="none"), "target": Y}, r"shape \[6\]; the audit needs one number"),
        ({"loss_fn": lambda out, y, weights: out.sum(), "target": Y}, r"takes 3 arguments \(out, y, weights\)"),
        ({"loss_fn": lambda out: out.sum().item()}, "loss_fn gave float"),
        ({"loss_fn": 3}, "loss_fn must be a function"),
        ({"optimizer": "adam"}, "optimizer must be one of torch.optim, not str"),
    ):
        with pytest.raises(UsageError, match=said):
            torchsleuth.audit(Plain(), X, **wrong)
    report = torchsleuth.audit(Plain(), X, loss_fn=lambda out: out.no_such_thing)
    assert report.outcome is Outcome.CRASH and "the loss and its gradients could not be computed: AttributeError" in report.notes[-1]
    report = torchsleuth.audit(Plain(), torch.randn(6, 7))
    assert report.outcome is Outcome.CRASH and report.exception is not None and "could not be run" in report.notes[-1]


def test_model_that_cannot_run_twice():
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x):
            COUNT.append(1)
            if len(COUNT) > 1:
                raise RuntimeError("only once")
            return self.out(x)

    COUNT: list[int] = []
    report = torchsleuth.audit(Once(), X)
    assert report.outcome is Outcome.OK and any("could not be tested: RuntimeError: only once" in note for note in report.notes)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3, dtype=torch.cfloat)

    def forward(self, x):
        return self.out(x).abs()


class Neighbours(Plain):
    def __init__(self, layout):
        super().__init__()
        near = torch.eye(6) + torch.eye(6).roll(1, 0)
        self.register_buffer("near", near.to_sparse() if layout is torch.sparse_coo else near.to_sparse_csr())

    def forward(self, x):
        return self.near @ super().forward(x)


class Recomputed(Plain):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x.clone().requires_grad_(), use_reentrant=True)


@pytest.mark.parametrize(
    "model, batch",
    [
        (Complex(), torch.randn(6, 4, dtype=torch.cfloat)),
        (Neighbours(torch.sparse_coo), X),
        (Neighbours(torch.sparse_csr), X),
        (Recomputed(), X),
    ],
)
def test_tensors_of_other_kinds_are_looked_at_or_left_alone(model, batch):
    report = torchsleuth.audit(model, batch, loss_fn=F.cross_entropy, target=Y)
    assert report.outcome is Outcome.OK and report.exception is None, [(d.rule, d.title) for d in report.diagnoses]
    assert all(p.grad is None for p in model.parameters())


def test_sparse_inputs_are_left_alone():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 3))

        def forward(self, x):
            return x @ self.w

    for given in (X.to_sparse(), X.to_sparse_csr()):
        assert torchsleuth.audit(M(), given, loss_fn=F.cross_entropy, target=Y).outcome is Outcome.OK


def test_a_model_without_numbers_is_said():
    with pytest.raises(UsageError, match="on the meta device"):
        torchsleuth.audit(Plain().to("meta"), X.to("meta"))


def test_the_call_may_stand_under_inference_mode():
    with torch.inference_mode():
        report = torchsleuth.audit(Plain(), X, loss_fn=F.cross_entropy, target=Y)
    assert report.outcome is Outcome.OK, [(d.rule, d.title) for d in report.diagnoses]


def test_model_with_its_own_randomness():
    import os

    class Wild(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x):
            return self.out(x) + int.from_bytes(os.urandom(2), "big")

    report = torchsleuth.audit(Wild(), X)
    assert report.outcome is Outcome.OK and any("different results" in note for note in report.notes)


def test_wrapped_models():
    inner = Mean(False)
    for model in (nn.DataParallel(inner), torch.compile(inner, backend="eager")):
        device = next(inner.parameters()).device  # DataParallel moves the model where there is a GPU
        report = torchsleuth.audit(model, (IDS.to(device), MASK.to(device)))
        assert [d.rule for d in report.diagnoses] == ["padding-leak"]
        assert any("without its wrapper" in note for note in report.notes)


def test_time_budget_is_respected():
    report = torchsleuth.audit(Mean(False), (IDS, MASK), budget_s=0.0)
    assert report.outcome is Outcome.OK and any("time budget" in note for note in report.notes)


def test_overfit():
    learned = torchsleuth.audit(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)), X, loss_fn=nn.CrossEntropyLoss(), target=Y, overfit=True)
    assert learned.outcome is Outcome.OK
    hopeless = torchsleuth.audit(Plain(), torch.randn(6, 4), loss_fn=lambda out: out.softmax(1).sum() / 6 + 0 * out.sum(), overfit=True)
    assert "cannot-overfit" in {d.rule for d in hopeless.diagnoses}


def test_observation_survives_json():
    from torchsleuth.auditor.inputs.batch import Call
    from torchsleuth.auditor.session import Session

    session = Session(Mean(False), Call(Mean(False), (IDS, MASK), {}), None, None, None, 60.0)
    session.audit()
    observation = session.observation()
    assert observation.moves
    assert from_plain(Observation, json.loads(json.dumps(to_plain(observation)))) == observation


FACTORY = """
import torch
from torch import nn

class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)
    def forward(self, ids, mask):
        return self.emb(ids).mean(1)

def make():
    ids = torch.tensor([[3, 4, 5], [7, 0, 0]])
    return Mean(), (ids, ids != 0)

def fine():
    return {"model": nn.Linear(4, 3), "batch": torch.randn(5, 4), "loss_fn": lambda out: out.pow(2).mean()}

def wrong():
    return 3

def column():
    model = nn.Linear(4, 1)
    return model, (torch.randn(5, 4), torch.randn(5)), nn.MSELoss()

def needs(x):
    return x

def raises():
    raise ValueError("no data")
"""


def test_command_on_a_function(tmp_path, monkeypatch, capsys):
    (tmp_path / "factory_for_audit.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["audit", "factory_for_audit:make", "--json", "out.json"]) == 0
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["command"], data["outcome"]) == ("audit", "findings")
    (culprit,) = data["diagnoses"][0]["culprits"]
    assert (culprit["file"], culprit["line"], culprit["source"]) == ("factory_for_audit.py", 10, "self.emb(ids).mean(1)")
    assert cli.main(["audit", "--strict", "--quiet", "factory_for_audit.py:make"]) == 1
    assert cli.main(["audit", "--strict", "factory_for_audit:fine"]) == 0
    assert "no findings" in capsys.readouterr().err
    assert cli.main(["audit", "factory_for_audit:wrong"]) == 2
    assert cli.main(["audit", "factory_for_audit:nothing"]) == 2
    assert cli.main(["audit", "factory_for_audit:needs"]) == 2
    assert cli.main(["audit", "factory_for_audit:raises"]) == 1
    assert "ValueError: no data" in capsys.readouterr().err
    assert in_fork(_status, "audit", "missing.py") == 2


def test_a_loss_of_torchs_own_is_said_of_the_functions_return(tmp_path):
    """The installed command is a file like any other; it is not the program."""
    import os
    import subprocess
    import sysconfig

    (tmp_path / "factory_for_audit.py").write_text(FACTORY)
    command = os.path.join(sysconfig.get_path("scripts"), "torchsleuth")
    here = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torchsleuth.__file__))}
    subprocess.run([sys.executable, command, "audit", "--quiet", "--json", "out.json", "factory_for_audit:column"], cwd=tmp_path, check=True, env=here)
    (found,) = json.loads((tmp_path / "out.json").read_text())["diagnoses"]
    (culprit,) = found["culprits"]
    assert (found["rule"], culprit["file"], culprit["source"]) == (
        "silent-broadcast", "factory_for_audit.py", "model, (torch.randn(5, 4), torch.randn(5)), nn.MSELoss()",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sample:
    x: torch.Tensor
    names: tuple = ()


def test_a_batch_may_be_an_object():
    class Model(Plain):
        def forward(self, sample):
            return self.out(sample.x - sample.x.mean(0))

    class Fields(collections.UserDict):
        @property
        def x(self):
            return self["x"]

    for batch in (Sample(X), types.SimpleNamespace(x=X), Fields(x=X)):
        assert [d.rule for d in torchsleuth.audit(Model(), (batch,)).diagnoses] == ["batch-mixing"]


def test_ids_of_columns_with_a_table_each_stay_in_their_column():
    from correct_zoo import CORRECT

    assert not torchsleuth.audit(**CORRECT["columns_with_a_table_each"]()).notes


def test_quantised_models_are_not_accused():
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), {nn.Linear}, dtype=torch.qint8)
    x = 0.1 * X
    x[0] = 3.0  # the range of the batch is that of its first sample
    report = torchsleuth.audit(model, x)
    assert report.outcome is Outcome.OK and "takes its range over the whole batch" in report.notes[0]


@pytest.mark.parametrize(
    "labels, said",
    [
        (Y.int(), "not of dtype int64"),
        (Y[:, None], "an axis of size 1 too many"),
        (F.one_hot(Y, 3), "integers of the same shape as the scores"),
        (Y.float(), "are not integers"),
    ],
)
def test_labels_that_the_loss_refuses(labels, said):
    (found,) = torchsleuth.audit(Plain(), X, loss_fn=nn.CrossEntropyLoss(), target=labels).diagnoses
    assert said in found.title


def _status(*arguments: str) -> int:
    """The exit status of the command in a process of its own: a script becomes its `__main__`."""
    try:
        return cli.main(list(arguments))
    except SystemExit as leaving:
        return leaving.code or 0


def test_command_on_a_script(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\nfrom torch import nn\nmodel = nn.Linear(3, 1)\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "x, y = torch.randn(8, 3), torch.randn(8)\nloss = ((model(x) - y) ** 2).mean()\nloss.backward()\nopt.step()\n"
        "open('seen.txt', 'w').write(str(sys.argv[1:]))\nsys.exit(int(sys.argv[1]))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert in_fork(_status, "audit", "--json", "r.json", "train.py", "3", "--flag") == 3
    assert (tmp_path / "seen.txt").read_text() == "['3', '--flag']"
    data = json.loads((tmp_path / "r.json").read_text())
    assert (data["command"], data["outcome"]) == ("audit", "findings")
    assert [(d["rule"], d["culprits"][0]["line"]) for d in data["diagnoses"]] == [("silent-broadcast", 6)]
    assert in_fork(_status, "audit", "--strict", "--quiet", "train.py", "0") == 1
    assert in_fork(_status, "audit", "--json", "m.json", "-m", "train", "0") == 0
    assert json.loads((tmp_path / "m.json").read_text())["diagnoses"] == data["diagnoses"]


WRONG_WIDTH = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 12)
        self.b = nn.Linear(16, 3)

    def forward(self, x):
        return self.b(self.a(x))

def pair():
    return Net(), torch.randn(4, 10)

if __name__ == "__main__":
    model, x = pair()
    model(x).sum().backward()
"""


@pytest.mark.parametrize("target", ["wrong_width.py", "wrong_width:pair"])
def test_a_failure_is_explained_and_not_only_said(target, tmp_path, monkeypatch):
    (tmp_path / "wrong_width.py").write_text(WRONG_WIDTH)
    monkeypatch.chdir(tmp_path)
    assert in_fork(_status, "audit", "--json", "r.json", target) == 1
    data = json.loads((tmp_path / "r.json").read_text())
    (found,) = data["diagnoses"]
    assert (data["outcome"], data["exception"]["type"], found["rule"]) == ("crash", "RuntimeError", "matmul-shape")
    assert {8, 11} <= {culprit["line"] for culprit in found["culprits"]}


def test_a_model_that_fails_is_explained():
    model = nn.Sequential(nn.Linear(10, 12), nn.Linear(16, 3))
    report = torchsleuth.audit(model, torch.randn(4, 10))
    assert report.outcome is Outcome.CRASH
    assert [d.rule for d in report.diagnoses] == ["matmul-shape"]
    assert "12 features" in report.diagnoses[0].title


def test_what_the_model_itself_refuses_is_only_said():
    class Picky(Plain):
        def forward(self, x):
            raise ValueError("not today")

    report = torchsleuth.audit(Picky(), X)
    assert report.outcome is Outcome.CRASH and not report.diagnoses
    assert "ValueError: not today" in report.notes[0]


def test_lazy_layers_are_said():
    with pytest.raises(UsageError, match=r"lazy layers that have no weights yet \(0\.weight, 0\.bias\)"):
        torchsleuth.audit(nn.Sequential(nn.LazyLinear(3)), X)


def test_a_pause_puts_the_mode_back_where_it_was():
    from torch.overrides import TorchFunctionMode

    from torchsleuth.auditor.tracing.modestack import paused

    class Counting(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    below, mode, above = Counting(), Counting(), Counting()
    with below, mode, above:
        with paused(mode):
            torch.ones(1)
        assert (below.seen, mode.seen, above.seen) == (1, 0, 1)
        torch.ones(1)
        assert (below.seen, mode.seen, above.seen) == (2, 1, 2)
        with paused(Counting()):  # one that is not there
            torch.ones(1)
        assert (below.seen, mode.seen, above.seen) == (3, 2, 3)
    assert torch._C._len_torch_function_stack() == 0


class _Faint(nn.Module):
    """What comes out is so faint that half precision has no number for its gradient."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.inner, self.flat = nn.Linear(4, 4), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x)
        return ((h.round() if self.flat else h) * 1e-4).float() * 1e-3


@pytest.mark.parametrize(("flat", "found"), [(False, []), (True, ["zero-gradient"])])
def test_a_gradient_too_small_for_half_precision_is_not_zero_by_design(flat: bool, found: list[str]) -> None:
    torch.manual_seed(0)
    model, x = _Faint(flat), torch.randn(8, 4) * 3
    with torch.autocast("cpu", dtype=torch.float16):
        gradient = torch.autograd.grad(model(x).pow(2).mean(), model.inner.weight)[0]
        report = torchsleuth.audit(model, x, loss_fn=lambda output: output.pow(2).mean())
    assert not gradient.any(), "too small for float16"
    assert [diagnosis.rule for diagnosis in report.diagnoses] == found, report


@pytest.mark.parametrize(
    "form, said",
    [(lambda real: real, "`x.masked_fill(~mask, 0)`"), (lambda real: ~real, "`real = ~mask`"), (lambda real: real.long(), "`real = mask != 0`")],
    ids=["flags", "flags of padding", "numbers"],
)  # fmt: skip
def test_advice_about_padding_can_be_written_as_it_stands(form, said) -> None:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.conv = nn.Embedding(10, 6), nn.Conv1d(6, 3, 3, padding=1)

        def forward(self, ids, mask):
            return self.conv(self.emb(ids).transpose(1, 2)).transpose(1, 2)

    (found,) = torchsleuth.audit(Tagger(), {"ids": IDS, "mask": form(MASK)}).diagnoses
    assert found.rule == "padding-leak" and said in found.fixes[0].title, found


class TestGradientsOfOneStep:
    """What `audit(model, batch, …)` says of gradients without a later step to look at."""

    X, Y = torch.linspace(-2, 2, 48).view(8, 6).sin(), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])

    @staticmethod
    def net() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    def test_zeros_in_all_layers_never_wake(self):
        model = self.net()
        for p in model.parameters():
            nn.init.zeros_(p)
        (found,) = torchsleuth.audit(model, self.X, loss_fn=F.cross_entropy, target=self.Y).diagnoses
        assert found.rule == "zero-gradient" and "`4.weight` is zero, and stays so" in found.title, found
        assert not any(p.any() or p.grad is not None for p in model.parameters())

    def test_zeros_in_the_last_layer_do(self):
        model = self.net()
        nn.init.zeros_(model[4].weight)
        assert not torchsleuth.audit(model, self.X, loss_fn=F.cross_entropy, target=self.Y).diagnoses

    def test_learning_rate_of_zero(self):
        model = self.net()
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        (found,) = torchsleuth.audit(model, self.X, loss_fn=F.cross_entropy, target=self.Y, optimizer=optimizer).diagnoses
        assert found.rule == "no-update" and "learning rate of this SGD is 0" in found.facts[0].text, found

    def test_learning_rate_that_a_schedule_will_raise(self):
        model = self.net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
        assert not torchsleuth.audit(model, self.X, loss_fn=F.cross_entropy, target=self.Y, optimizer=optimizer).diagnoses

    @pytest.mark.parametrize("as_number", [True, False])
    def test_term_that_is_a_plain_number(self, as_number):
        def loss(out, labels):
            spread = out.pow(2).mean()
            return F.cross_entropy(out, labels) + 0.01 * (spread.item() if as_number else spread)

        report = torchsleuth.audit(self.net(), self.X, loss_fn=loss, target=self.Y)
        assert [(d.rule, d.culprits[0].source) for d in report.diagnoses] == ([("gradient-cut", "spread.item()")] if as_number else []), report.diagnoses
