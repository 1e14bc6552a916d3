"""The proving process: runs original and rewritten functions on made-up inputs and compares what they do.

Not imported by lint. Reads one job per line on standard input, answers with one line. Values, gradients, shapes,
dtypes, changed arguments and exceptions are compared, on several sizes, numbers of dimensions, on one row and on
none; then both are timed.
"""

from __future__ import annotations

import json
import sys
import time
import types

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def main() -> None:
    out = sys.stdout
    sys.stdout = sys.stderr
    try:
        import torch
    except ImportError:
        for _ in sys.stdin:
            print(json.dumps({"fatal": "not proven: torch is not installed for this Python"}), file=out, flush=True)
        return
    torch.set_num_threads(1)
    import warnings

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        try:
            answer = Comparison(json.loads(line), torch).verdict()
        except Exception as error:
            answer = {"status": "not-run", "text": f"not proven: {type(error).__name__}: {first_line(error)}"}
        print(json.dumps(answer), file=out, flush=True)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:160]


class Layer:
    """A made-up layer, and how many features it gives."""

    def __init__(self, call, features: int) -> None:
        self.call, self.out_features = call, features

    def __call__(self, x):
        return self.call(x)


class Differs(Exception):
    pass


class EdgeDiffers(Differs):
    """The two differ only where there is nothing to loop over, or where a tensor has another rank."""


class Comparison:
    def __init__(self, job: dict, torch) -> None:
        self.job, self.torch = job, torch
        self.original = self._function("original")
        self.rewritten = self._function("rewritten")
        self.facts: list[str] = []
        self.modules: dict = {}

    def _function(self, which: str):
        space: dict = {}
        for line in self.job["imports"]:
            exec(line, space)
        exec(self.job[which], space)
        return space[which]

    # The trials -----------------------------------------------------------------------------------

    def verdict(self) -> dict:
        try:
            ranks = self._trials()
        except EdgeDiffers as difference:
            text = f"not proven: the same on ordinary inputs, but {difference}"
            return {"status": "not-run", "text": text, "facts": self.facts}
        except Differs as difference:
            return {"status": "new-failure", "text": f"the rewrite is not the same: {difference}", "facts": self.facts}
        if not ranks:
            return {"status": "not-run", "text": f"not proven: the loop itself fails on made-up inputs ({self.failure})"}
        if self.backward_failure:
            return {"status": "not-run", "text": f"not proven: the loop itself fails in backward ({self.backward_failure})"}
        speed = self._speed(ranks[0])
        checked = "same values, gradients, shapes and dtypes" if self.has_gradients else "same values, shapes and dtypes"
        text = f"{checked} on {self.runs} inputs{self._ranks_text(ranks)}, one row and no row included"
        return {"status": "passed", "text": f"{text}; {speed}" if speed else text, "facts": self.facts}

    def _ranks_text(self, ranks: list[int]) -> str:
        open_names = [p["name"] for p in self.job["parameters"] if p.get("rank", 0) is None]
        if not open_names:
            return ""
        first = next(p for p in self.job["parameters"] if p["name"] == open_names[0])
        counts = sorted(first["entries"] + first["extra"] + k for k in ranks)
        return f" (`{open_names[0]}` of {' or '.join(map(str, counts))} dimension{'s' * (counts != [1])})"

    def _trials(self) -> list[int]:
        self.failure = ""
        self.backward_failure = ""
        self.has_gradients = False
        self.runs = 0
        open_rank = any(p.get("rank", 0) is None for p in self.job["parameters"])
        agreeing = []
        for extra in (0, 1, 2) if open_rank else (0,):
            if self._trial({}, extra, seed=0, must_run=False):
                agreeing.append(extra)
        if not agreeing:
            return []
        extra = agreeing[0]
        classes = {c: 7 + n for n, c in enumerate(dict.fromkeys(self.job["axes"]))}
        self._trial(classes, extra, seed=1, must_run=True)
        self._trial({}, extra, seed=2, must_run=True, ties=True)
        self._other_ranks(extra)
        self._trial(dict.fromkeys(self.job["axes"], 1), extra, seed=3, must_run=False, name="one row")
        self._trial(dict.fromkeys(self.job["axes"], 0), extra, seed=4, must_run=False, name="no row")
        if len(set(self.job["axes"])) > 1:
            self._trial({self.job["axes"][-1]: 0}, extra, seed=5, must_run=False, name="no column")
        return agreeing

    def _other_ranks(self, extra: int) -> None:
        """A number of dimensions that was only assumed: does the rewrite still agree where the loop runs with one more?"""
        for spec in self.job["parameters"]:
            if not spec.get("assumed_rank") or spec["kind"] != "float":
                continue
            beside = [p["dims"] for p in self.job["parameters"] if p is not spec and p.get("dims")]
            alike = {c for dims in beside for c in dims} if any(len(dims) > len(spec["dims"]) for dims in beside) and not spec.get("fewer") else set()
            for label in ("one-more", *sorted(alike)):
                spec["dims"].append(label)
                try:
                    self._trial({"one-more": 2}, extra, seed=6, must_run=False)
                except Differs:
                    rank = len(spec["dims"]) - 1
                    raise EdgeDiffers(
                        f"only if `{spec['name']}` has {rank} dimension{'s' * (rank != 1)}, which nothing here says; with {rank + 1} the loop does something else"
                    ) from None
                finally:
                    spec["dims"].pop()
        for spec in self.job["parameters"]:
            if spec.get("zipped") and spec.get("dims"):
                label, spec["dims"][0] = spec["dims"][0], "longer"
                try:
                    self._trial({"longer": 9}, extra, seed=8, must_run=False)
                except Differs:
                    raise EdgeDiffers(f"only if what `zip` runs over is equally long, which nothing here says (`strict=True` would); with a longer `{spec['name']}` the loop does something else") from None
                finally:
                    spec["dims"][0] = label
        for spec in self.job["parameters"]:
            if spec["kind"] != "number":
                continue
            classes = {p["class"] for p in self.job["parameters"] if p["kind"] == "size"}
            for label in sorted({c for p in self.job["parameters"] for c in p.get("dims", [])} | classes | {"tail"}):
                spec["kind"], spec["like"] = "vector", label
                try:
                    self._trial({}, extra, seed=7, must_run=False)
                except Differs:
                    raise EdgeDiffers(f"only if `{spec['name']}` is a number, which nothing here says; with a vector the loop does something else") from None
                finally:
                    spec["kind"] = "number"

    def _trial(self, sizes: dict, extra: int, seed: int, must_run: bool, ties: bool = False, name: str = "") -> bool:
        old = self._outcome(self.original, sizes, extra, seed, ties)
        new = self._outcome(self.rewritten, sizes, extra, seed, ties)
        if old[0] == "raised":
            if name:
                if new[0] != "raised":
                    self.facts.append(f"on {name} the loop raised {old[1]}; the rewrite returns {self._shapes(new[1])}")
                return False
            self.failure = old[1]
            if must_run:
                raise EdgeDiffers(f"the loop raised {old[1]} on one of them")
            return False
        if new[0] == "raised":
            kind = EdgeDiffers if name else Differs
            raise kind(f"on {name or 'an input the loop handles'} the rewrite raised {new[1]}")
        self._compare(old, new, name, ties)
        self.runs += 1
        return True

    def _outcome(self, function, sizes, extra, seed, ties):
        torch = self.torch
        given, leaves = self._inputs(sizes, extra, seed, ties)
        try:
            results = function(**given)
        except Exception as error:
            return "raised", f"{type(error).__name__}: {first_line(error)}", None
        gradients: list = []
        tensors = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        problem = ""
        if tensors and leaves:
            generator = torch.Generator().manual_seed(seed + 100)
            total = sum((t * torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype)).sum() for t in tensors)
            try:
                gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
            except RuntimeError as error:
                problem = first_line(error)
        return "returned", results, (gradients, problem, bool(tensors))

    def _compare(self, old, new, name: str, ties: bool) -> None:
        torch = self.torch
        for label, a, b in zip(self.job["outputs"], old[1], new[1], strict=True):
            label = "the result" if label.startswith("__out") else f"`{label}`"
            where = f" on {name}" if name else ""
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                if a.shape != b.shape:
                    raise Differs(f"{label} has shape {list(b.shape)} instead of {list(a.shape)}{where}")
                if a.dtype != b.dtype:
                    raise Differs(f"{label} has dtype {b.dtype} instead of {a.dtype}{where}")
                self._close(a, b, f"{label}{where}")
            elif isinstance(b, torch.Tensor) and isinstance(a, (int, float)):
                if name not in ("no row", "no column") or bool((b != a).any()):
                    raise Differs(f"{label} is a tensor instead of a number{where}")
                self.facts.append(f"on {name} the loop leaves the number {a}, the rewrite a tensor of that value")
            elif type(a) is not type(b) or a != b:
                raise Differs(f"{label} is {b!r} instead of {a!r}{where}")
        (mine, problem, _), (theirs, other_problem, _) = old[2], new[2]
        if problem:
            self.backward_failure = problem
            return
        if other_problem:
            raise Differs(f"backward raised {other_problem}")
        if ties:
            return
        leaves = max(len(mine), len(theirs))
        mine, theirs = mine or [None] * leaves, theirs or [None] * leaves
        for position, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            self.has_gradients = True
            if a is None and b is None:
                continue
            a = torch.zeros_like(b) if a is None else a
            b = torch.zeros_like(a) if b is None else b
            self._close(a, b, f"the gradient of input {position + 1}")

    def _close(self, a, b, what: str) -> None:
        if not self.torch.allclose(a.double(), b.double(), equal_nan=True, **TOLERANCE):
            raise Differs(f"{what} differs by up to {(a.double() - b.double()).abs().max().item():.3g}")

    def _shapes(self, results) -> str:
        shapes = [f"a tensor of shape {list(r.shape)}" if isinstance(r, self.torch.Tensor) else repr(r) for r in results]
        return " and ".join(shapes)

    # Made-up inputs ---------------------------------------------------------------------------------

    def _inputs(self, sizes: dict, extra: int, seed: int, ties: bool, grad: bool = True):
        torch = self.torch
        generator = torch.Generator().manual_seed(seed)
        known = dict(sizes)

        def size(label, least=0):
            if label.startswith("="):
                return int(label[1:])
            if label == "const":
                return max(least, 5) + 1
            if label not in known:
                known[label] = 3 + (len(known) * 2) % 7
            return known[label]

        leaves: list = []

        def value(spec, label):
            kind = spec["kind"]
            if kind == "number":
                return 0.3 + 0.1 * (len(label) % 3)
            if kind == "vector":
                return torch.rand(4 if spec["like"] == "tail" else size(spec["like"]), generator=generator) + 0.5
            if kind == "size":
                return size(spec["class"])
            if kind == "device":
                return torch.device("cpu")
            if kind == "dtype":
                return torch.float32
            if kind == "module":
                return Layer(self._module(spec["class"], label, size(spec["out"]) if spec.get("out") else 5), size(spec["out"]) if spec.get("out") else 5)
            if kind == "self":
                return types.SimpleNamespace(**{n: value(s, n) for n, s in spec["attributes"].items()})
            least = spec.get("least", 0)
            shape = [max(size(c, least), least) if c not in sizes else size(c, least) for c in spec["dims"]]
            if spec["rank"] is None:
                shape += [4 + n for n in range(spec["extra"] + extra)]
            if kind == "index":
                bound = spec.get("bound")
                top = bound if isinstance(bound, int) else size(bound) if bound else 2
                return torch.randint(0, max(top, 1), shape, generator=generator)
            if kind == "bool":
                return torch.rand(shape, generator=generator) > 0.4
            leaf = torch.randn(shape, generator=generator)
            if ties:
                leaf = leaf.mul(1.5).round()
            if not grad:
                return leaf
            leaf.requires_grad_(True)
            leaves.append(leaf)
            return leaf.clone()

        given = {spec["name"]: value(spec, spec["name"]) for spec in self.job["parameters"] if spec["kind"] not in ("weight", "bias")}
        for spec in self.job["parameters"]:
            if spec["kind"] in ("weight", "bias"):
                shape = [5, given[spec["of"]].shape[-1]] if spec["kind"] == "weight" else [5]
                leaf = torch.randn(shape, generator=generator)
                if grad:
                    leaves.append(leaf.requires_grad_(True))
                given[spec["name"]] = leaf
        return given, leaves

    def _module(self, kind: str, label: str, features: int):
        """A layer of that class whose sizes follow its first input; the same one for both versions."""
        torch = self.torch
        made = self.modules

        def call(x):
            key = (label, kind, x.shape[-1] if x.dim() else 0, features)
            if key not in made:
                torch.manual_seed(11)
                make = getattr(torch.nn, kind)
                made[key] = make(x.shape[-1], features) if kind == "Linear" else make(7, 4) if kind == "Embedding" else make(x.shape[-1]) if kind in ("LayerNorm", "RMSNorm") else make()
            return made[key](x)

        return call

    # Speed ------------------------------------------------------------------------------------------

    def _speed(self, extra: int) -> str:
        torch = self.torch
        turns = {1: 512, 2: 48}.get(len(self.job["axes"]), 14)
        sizes = dict.fromkeys(self.job["axes"], turns)
        for spec in self.job["parameters"]:
            for label in spec.get("dims", []):
                if label not in ("const", "free") and not label.startswith("="):
                    sizes.setdefault(label, 64)
        try:
            with torch.no_grad():
                self.original(**self._inputs({}, extra, 0, False, grad=False)[0])  # warm up
                slow, shape = self._timed(self.original, sizes, extra, 0.12)
                fast, _ = self._timed(self.rewritten, sizes, extra, 0.05)
        except Exception:
            return ""
        ratio = slow / max(fast, 1e-9)
        if ratio < 1.2:
            self.facts.append(f"the rewrite is not faster here ({ratio:.1f}x on {shape})")
            return ""
        return f"{ratio:.0f}× faster on {shape}" if ratio >= 10 else f"{ratio:.1f}× faster on {shape}"

    def _timed(self, function, sizes, extra, budget: float):
        best, spent, runs = float("inf"), 0.0, 0
        while runs < 1 or (spent < budget and runs < 30):
            given, _ = self._inputs(sizes, extra, 0, False, grad=False)
            start = time.process_time()
            function(**given)
            took = time.process_time() - start
            best, spent, runs = min(best, took), spent + took, runs + 1
        shape = next((list(v.shape) for v in given.values() if isinstance(v, self.torch.Tensor) and v.is_floating_point()), [])
        if not shape:
            shape = next((list(v.shape) for v in given.values() if isinstance(v, self.torch.Tensor)), [])
        return best, shape


if __name__ == "__main__":
    main()
