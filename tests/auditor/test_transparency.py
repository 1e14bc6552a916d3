"""The audit leaves no trace: parameters, buffers, gradients, random numbers, modes and attributes are bit for bit as before."""

from __future__ import annotations

import copy
import logging
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import architectures  # noqa: E402
from correct_zoo import CORRECT  # noqa: E402

import torchsleuth  # noqa: E402
from torchsleuth.auditor.program.live import StepWatch  # noqa: E402


def fingerprint(model):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    grads = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    versions = [t._version for t in (*model.parameters(), *model.buffers())]
    identities = [id(t) for t in (*model.parameters(), *model.buffers())]
    flags = [m.training for m in model.modules()]
    attributes = [sorted(m.__dict__) for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    chance = (torch.get_rng_state().clone(), random.getstate(), np.random.get_state()[1].tolist())
    return state, grads, versions, identities, flags, attributes, hooks, chance


def same(a, b):
    for x, y in zip(a[:2], b[:2], strict=True):
        assert x.keys() == y.keys()
        for name in x:
            assert (x[name] is None) == (y[name] is None)
            assert x[name] is None or torch.equal(x[name], y[name]), name
    assert a[2:7] == b[2:7]
    assert torch.equal(a[7][0], b[7][0]) and a[7][1:] == b[7][1:]


class Awkward(nn.Module):
    """Buffers that move, attributes that change, random numbers, prints."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
        self.register_buffer("count", torch.zeros(()))
        self.seen, self.calls, self.last = [], 0, torch.zeros(3)

    def forward(self, x):
        self.count += 1
        self.calls += 1
        self.seen.append(float(x.mean()))
        self.last.add_(1)
        self.extra = x
        print("called")
        return self.net(x + 0.1 * torch.randn_like(x) * random.random() * float(np.random.rand()))


@pytest.mark.parametrize("training", [True, False])
def test_no_trace(training, capsys):
    torch.set_num_threads(1)
    model = Awkward().train(training)
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    F.cross_entropy(model(x), y).backward()
    capsys.readouterr()
    optimizer = torch.optim.Adam(model.parameters())
    before, attributes = fingerprint(model), (list(model.seen), model.calls, model.last.clone(), model.extra)
    inputs = x.clone()
    torchsleuth.audit(model, x, loss_fn=lambda out: F.cross_entropy(out, y), optimizer=optimizer, overfit=True)
    same(before, fingerprint(model))
    assert (model.seen, model.calls, model.extra is attributes[3]) == (attributes[0], attributes[1], True)
    assert torch.equal(model.last, attributes[2]) and torch.equal(x, inputs)
    assert not optimizer.state and capsys.readouterr().out == ""
    assert torch._C._len_torch_function_stack() == 0
    assert not nn.modules.module._global_forward_hooks and not nn.modules.module._global_forward_pre_hooks


def test_hooks_that_a_model_gives_itself_when_it_is_first_called():
    class Noting(nn.Linear):
        def forward(self, x):
            if not hasattr(self, "hooked"):
                self.hooked = self.register_forward_pre_hook(lambda module, inputs: None)
            return super().forward(x)

    model, x = nn.Sequential(Noting(5, 3)), torch.randn(6, 5)
    before = fingerprint(model)
    assert torchsleuth.audit(model, x).notes == ()
    same(before, fingerprint(model))


@pytest.mark.parametrize("name", ["bert-classes", "gpt2", "t5", "resnet"])
def test_no_trace_on_real_models(name):
    torch.set_num_threads(1)
    model, batch = architectures.ARCHITECTURES[name]()
    before = fingerprint(model)
    torchsleuth.audit(model, batch)
    same(before, fingerprint(model))


def test_a_graph_waiting_for_its_backward_is_not_disturbed():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))
    x = torch.randn(5, 4)
    waiting = model(x).sum()
    torchsleuth.audit(model, x, loss_fn=lambda out: out.pow(2).mean())
    waiting.backward()


def test_watched_training_is_bit_identical():
    def train(watch: bool):
        torch.manual_seed(0)
        computed = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3))  # who only asks for its weight moves it
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), computed)
        watcher = StepWatch() if watch else None
        if watcher:
            watcher.start()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(4):
            x = torch.randn(6, 5)
            loss = F.cross_entropy(model(x), torch.arange(6) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        after = copy.deepcopy(model.state_dict()), losses, torch.rand(3)
        if watcher:
            parts = watcher.finish()
            assert not parts.diagnoses and len(parts.observations) == 1
            assert all(torch.equal(v, model.state_dict()[k]) for k, v in after[0].items())
        return after

    torch.set_num_threads(1)
    plain, watched = train(False), train(True)
    assert plain[1] == watched[1] and torch.equal(plain[2], watched[2])
    assert all(torch.equal(plain[0][k], watched[0][k]) for k in plain[0])
    assert torch.optim.Optimizer.__init__.__name__ == "__init__" and torch._C._len_torch_function_stack() == 0


def test_watch_lets_tensors_go_after_the_step():
    import gc
    import weakref

    model = nn.Linear(4, 3)
    watch = StepWatch()
    watch.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.randn(5, 4)).sum()
    kept = weakref.ref(loss)
    loss.backward()
    optimizer.step()
    del loss
    gc.collect()
    assert kept() is None
    watch.finish()


def test_works_under_autocast():
    model, batch = architectures.ARCHITECTURES["bert-classes"]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torchsleuth.audit(model, batch).outcome == "ok"
        batch.pop("attention_mask")
        assert torchsleuth.audit(model, batch).outcome == "findings"


def test_twenty_forward_passes_at_most(monkeypatch):
    from torchsleuth.auditor.laboratory.runner import Runner

    counts = []
    original = Runner.run

    def counted(self, *args, **kwargs):
        counts[-1] += 1
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "run", counted)
    for name in ("bert-classes", "gpt2", "t5", "vit"):
        counts.append(0)
        model, batch = architectures.ARCHITECTURES[name]()
        torchsleuth.audit(model, batch)
    for build in CORRECT.values():
        counts.append(0)
        torchsleuth.audit(**build())
    assert max(counts) <= 20, counts


def test_later_steps_leave_no_hooks():
    torch.set_num_threads(1)
    train, construct = nn.Module.train, torch.optim.Optimizer.__init__
    watch = StepWatch()
    watch.start()
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(6):
        loss = F.cross_entropy(model(torch.randn(6, 5)), torch.arange(6) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        copied = copy.deepcopy(model)  # with hooks on its parameters, in the first steps
        assert all(not p._backward_hooks for p in copied.parameters())
    assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters())
    model.eval()
    watch.finish()
    assert nn.Module.train is train and torch.optim.Optimizer.__init__ is construct
    assert not nn.modules.module._global_forward_hooks and not nn.modules.module._global_forward_pre_hooks
    assert torch._C._len_torch_function_stack() == 0


def test_a_failing_watch_does_not_disturb_the_program(monkeypatch):
    from torchsleuth.auditor.program import live

    monkeypatch.delenv("TORCHSLEUTH_DEBUG", raising=False)
    monkeypatch.setattr(live, "copied", lambda call: 1 / 0)
    watch = StepWatch()
    watch.start()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.randn(5, 4)).sum()
    loss.backward()
    optimizer.step()
    parts = watch.finish()
    assert not parts.diagnoses and any("given up: ZeroDivisionError" in note for note in parts.notes)
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("failing", ["_note_scale", "_about_to_step"])
def test_a_watch_that_fails_in_the_middle_of_a_step_does_not_disturb_it(monkeypatch, failing):
    """torch is walking through its hooks then: none may be taken out."""
    from torch.optim import optimizer as optimizers

    monkeypatch.delenv("TORCHSLEUTH_DEBUG", raising=False)
    monkeypatch.setattr(StepWatch, failing, lambda self, *given: 1 / 0)
    watch, other = StepWatch(), []
    watch.start()
    handle = optimizers.register_optimizer_step_pre_hook(lambda *given: other.append(given))  # one of the program's own
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(2).sum().backward()
        optimizer.step()
    handle.remove()
    parts = watch.finish()
    assert len(other) == 3 and any("given up: ZeroDivisionError" in note for note in parts.notes)
    second = StepWatch()  # and another one leaves nothing behind
    second.start()
    second.finish()
    assert not optimizers._global_optimizer_pre_hooks and not optimizers._global_optimizer_post_hooks


def test_a_step_in_another_thread_is_not_called_none():
    import threading

    def train():
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(5, 4)).pow(2).mean().backward()
            optimizer.step()

    watch = StepWatch()
    watch.start()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert watch.finish().notes == ("no training step was seen: the program trains in another thread than the main one",)


def test_state_in_containers_is_put_back():
    import collections

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.recent, self.cache = nn.Linear(4, 3), collections.deque([1, 2], maxlen=2), {"sum": torch.zeros(4)}

        def forward(self, x):
            self.recent.append(3)
            self.cache["sum"].add_(x.detach().sum(0))
            return self.line(x)

    model = Keeping()
    torchsleuth.audit(model, torch.randn(5, 4), loss_fn=lambda out: out.pow(2).mean())
    assert list(model.recent) == [1, 2] and not model.cache["sum"].any()


class Meter:
    def __init__(self):
        self.count, self.values = 0, []


def test_nested_state_and_inputs_are_put_back():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.meter, self._stats, self.table = nn.Linear(4, 3), Meter(), {"inner": {"count": 0, "seen": []}}, np.zeros(3)
            self.chance = np.random.default_rng(0)

        def forward(self, x):
            x.requires_grad_()
            self.meter.count += 1
            self.meter.values.append(1)
            self._stats["inner"]["count"] += 1
            self._stats["inner"]["seen"].append(x)
            self.table += 1
            if "late" not in self._buffers:
                self.register_buffer("late", torch.zeros(3))
            return self.line(x * float(self.chance.random()))

    def loss(out, y):
        y += 1
        return (out - y).pow(2).mean()

    model, x, y = Keeping(), torch.randn(5, 4), torch.randn(5, 3)
    before = x.clone(), y.clone(), str(model.chance.bit_generator.state)
    report = torchsleuth.audit(model, (x, y), loss_fn=loss, overfit=True)
    assert torch.equal(y, before[1]) and not x.requires_grad and x.grad is None
    assert (model.meter.count, model.meter.values, model._stats) == (0, [], {"inner": {"count": 0, "seen": []}})
    assert not model.table.any() and not hasattr(model, "late") and str(model.chance.bit_generator.state) == before[2]
    assert not any("different results" in note for note in report.notes), report.notes


def test_inputs_that_the_model_writes_to_are_put_back():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(4, 3)

        def forward(self, x):
            x.detach().sub_(x.mean(1, keepdim=True))
            x.mul_(2.0)
            return self.line(x)

    x = torch.randn(5, 4)
    before = x.clone()
    report = torchsleuth.audit(Writing(), x, loss_fn=lambda out: out.pow(2).mean(), overfit=True)
    assert torch.equal(x, before) and report.outcome == "ok" and not report.notes, report


def test_a_scripted_model_is_left_as_it_was():
    model = torch.jit.script(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)))
    before = fingerprint(model)
    report = torchsleuth.audit(model, torch.randn(6, 5), loss_fn=lambda out: out.pow(2).mean())
    after = fingerprint(model)
    assert report.outcome == "ok" and report.exception is None
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0]) and before[4] == after[4]


def test_parameters_that_the_forward_pass_writes_to_are_put_back():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.book, self.scale = nn.Linear(4, 3), nn.Parameter(torch.ones(5, 3)), nn.Parameter(torch.ones(3))

        def forward(self, x):
            with torch.no_grad():
                self.line.weight.clamp_(-0.2, 0.2)
                self.scale *= 0.9
            self.book.data[0] += 1
            return self.line(x) * self.scale + self.book.sum(0)

    model = Writing()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    report = torchsleuth.audit(model, torch.randn(5, 4), loss_fn=lambda out: out.pow(2).mean())
    assert report.outcome == "ok" and not any("different results" in note for note in report.notes), report
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())


def test_generators_of_the_program_are_wound_back():
    elsewhere = torch.Generator().manual_seed(4)

    class Drawing(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.own, self.plain = nn.Linear(4, 3), torch.Generator().manual_seed(3), random.Random(5)

        def forward(self, x):
            noise = torch.randn(x.shape, generator=self.own) + torch.rand(x.shape, generator=elsewhere) * self.plain.random()
            return self.line(x + noise)

    model = Drawing()
    before = model.own.get_state(), elsewhere.get_state(), model.plain.getstate()
    report = torchsleuth.audit(model, torch.randn(5, 4), loss_fn=lambda out: out.pow(2).mean())
    assert torch.equal(before[0], model.own.get_state()) and torch.equal(before[1], elsewhere.get_state()) and before[2] == model.plain.getstate()
    assert not any("different results" in note for note in report.notes), report.notes


def test_watches_of_models_trained_in_turn_leave_nothing_behind():
    from torch.optim.lr_scheduler import LRScheduler

    def patched():
        return (torch.optim.Optimizer.__init__, LRScheduler.__init__, nn.Parameter.__deepcopy__, nn.Module.train, nn.Module.zero_grad,
                torch.optim.Optimizer.zero_grad, nn.Module.load_state_dict, torch._C._len_torch_function_stack(),
                *map(len, (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks)))  # fmt: skip

    before = patched()
    for dies in (False, True):
        watch = StepWatch()
        watch.start()
        for width in (4, 5, 6, 7):
            model = nn.Sequential(nn.Linear(3, width), nn.Dropout(0.1), nn.Linear(width, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(1 if dies and width == 6 else 3):
                model(torch.randn(5, 3)).pow(2).mean().backward()
                if dies and width == 6:
                    break
                optimizer.step()
                optimizer.zero_grad()
        assert len(watch._in_turn.watches) == 2
        watch.abandon() if dies else watch.finish()
        assert patched() == before


def test_a_large_model_trained_after_the_first_is_not_kept(monkeypatch):
    import gc
    import weakref

    from torchsleuth.auditor.program import inturn

    monkeypatch.setattr(inturn, "MOST_BYTES", 1000)
    watch = StepWatch()
    watch.start()
    kept = []
    for width in (4, 40):
        model = nn.Sequential(nn.Linear(9, width), nn.Linear(width, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(5, 9)).pow(2).mean().backward()
        optimizer.step()
        kept.append(weakref.ref(model))
    del model, optimizer
    gc.collect()
    assert kept[1]() is None
    watch.finish()


def test_log_records_of_the_experiments_are_not_heard(caplog):
    class Logging(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(5, 3)

        def forward(self, x):
            logging.getLogger("model").warning("called")
            return self.net(x)

    model = Logging()
    report = torchsleuth.audit(model, (torch.randn(6, 5), torch.randint(3, (6,))), loss_fn=F.cross_entropy)
    assert report.outcome.value == "ok" and not caplog.records
    model(torch.randn(2, 5))
    assert len(caplog.records) == 1


def test_a_mode_of_the_programs_own_sees_its_calls_and_no_others():
    def counted(watched):
        class Count(torch.overrides.TorchFunctionMode):
            calls = 0

            def __torch_function__(self, function, types, args=(), kwargs=None):
                self.calls += 1
                return function(*args, **(kwargs or {}))

        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = StepWatch()
        if watched:
            watch.start()
        try:
            with Count() as count:
                loss = model(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
        finally:
            watch.stop()
        return count.calls

    assert counted(True) == counted(False)


def test_modes_of_the_programs_own_see_no_more_around_whole_steps():
    """A dispatch mode (as a counter of operations is one) and a function mode, over several steps and an evaluation."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def counted(watched):
        class Functions(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                seen.append(getattr(function, "__name__", str(function)))
                return function(*args, **(kwargs or {}))

        class Operations(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(str(function))
                return function(*args, **(kwargs or {}))

        seen: list[str] = []
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        watch = StepWatch()
        if watched:
            watch.start()
        try:
            for _ in range(4):
                with Functions(), Operations():
                    loss = F.cross_entropy(model(torch.randn(6, 4)), torch.arange(6) % 2)
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
            model.eval()
            with Functions(), Operations(), torch.no_grad():
                model(torch.randn(6, 4))
        finally:
            watch.stop()
        return seen

    assert counted(True) == counted(False)


def test_inputs_that_require_gradients_are_read_without_a_warning(recwarn):
    torch.set_warn_always(True)
    try:
        model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = StepWatch()
        watch.start()
        x = torch.rand(6, 1, requires_grad=True)
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.square().mean().backward()
        optimizer.step()
        watch.finish()
    finally:
        torch.set_warn_always(False)
    assert not [str(w.message) for w in recwarn if "requires_grad" in str(w.message)]
