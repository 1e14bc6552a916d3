"""The proving process: runs original and rewritten functions on made-up inputs and compares what they do.

Not imported by lint. Reads one job per line on standard input, answers with one line. Values, gradients, shapes,
dtypes, changed arguments and exceptions are compared, on several sizes, numbers of dimensions, on one row and on
none; then both are timed.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import time

from torchsleuth.linter.prover_inputs import Inputs
from torchsleuth.linter.prover_parts import faster, listed, orders_parts, weighs_parts

SLOWER = 0.6  # the loop's time by the rewrite's: below it is no improvement
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}

# Kinds of values that the source seldom excludes, and what a rewrite takes for granted that differs on them.
DOUBTS = {
    "nan": ("no value is NaN", "NaN"),
    "whole": ("values are floating-point", "whole numbers"),
    "strided": ("tensors are laid out in order", "transposed ones"),
}


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


class Differs(Exception):
    pass


class DtypeDiffers(Differs):
    pass


class GradientDiffers(Differs):
    pass


# What is said, not refused: the `0.0` that a sum started from made whole numbers float, NaN has no gradient worth keeping.
BORNE = {"whole": DtypeDiffers, "nan": GradientDiffers}


class EdgeDiffers(Differs):
    """The two differ only where there is nothing to loop over, or where a tensor has another rank."""


class Comparison:
    def __init__(self, job: dict, torch) -> None:
        self.job, self.torch = job, torch
        self.original = self._function("original")
        self.rewritten = self._function("rewritten")
        self.facts: list[str] = []
        self.slower = ""
        self.inputs = Inputs(job["parameters"], torch)

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
        if self.slower:
            return {"status": "not-run", "text": f"not applied: the same on made-up inputs, and not faster: {self.slower}", "facts": self.facts}
        checked = "same values, gradients, shapes and dtypes" if self.has_gradients else "same values, shapes and dtypes"
        included = f", {', '.join(self.edges[:-2] + [' and '.join(self.edges[-2:])])} included" if self.edges else ""
        text = f"{checked} on {self.runs} inputs{self._ranks_text(ranks)}{included}"
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
        self.edges: list[str] = []  # the sizes at the edge on which both did the same
        open_rank = any(p.get("rank", 0) is None for p in self.job["parameters"])
        agreeing = []
        differing: dict[int, Differs] = {}
        for extra in (0, 1, 2) if open_rank else (0,):
            try:
                if self._trial({}, extra, seed=0, must_run=False):
                    agreeing.append(extra)
            except Differs as difference:
                differing[extra] = difference
        if differing:
            extra, difference = min(differing.items())
            if not agreeing:
                raise difference
            several = [p for p in self.job["parameters"] if p.get("rank", 0) is None]
            ranks = sorted({p["entries"] + p["extra"] + extra for p in several})
            raise EdgeDiffers(f"not where {listed(several)} {'has' if len(several) == 1 else 'have'} {' or '.join(map(str, ranks))} dimensions: there {difference}")
        if not agreeing:
            return self._with_equal_sizes() if not self.inputs.alike else []
        extra = agreeing[0]
        classes = {c: 7 + n for n, c in enumerate(dict.fromkeys(self.job["axes"]))}
        self._trial(classes, extra, seed=1, must_run=True)
        self._trial({}, extra, seed=2, must_run=True, values="ties")
        self._other_ranks(extra)
        if open_rank:
            self._fewer_dimensions()
            self._unequal_dimensions(agreeing)
        for values, (granted, others) in DOUBTS.items():
            for seed in range(20, 23):  # what differs only if a certain one of few values is NaN
                self._trial_in_doubt(classes, extra, seed, values, granted, others)
        self._trial(dict.fromkeys(self.job["axes"], 1), extra, seed=3, must_run=False, name="one row")
        self._trial(dict.fromkeys(self.job["axes"], 0), extra, seed=4, must_run=False, name="no row")
        if len(set(self.job["axes"])) > 1:
            self._trial({self.job["axes"][-1]: 0}, extra, seed=5, must_run=False, name="no column")
        return agreeing

    def _with_equal_sizes(self) -> list[int]:
        """The loop does not run on sizes that are all different: with two of them equal it may."""
        failure = self.failure
        own = [s for s in self.job["parameters"] if s.get("dims") and s["kind"] == "float"]
        for one, other in itertools.combinations(own, 2):
            for dim, (a, b) in enumerate(zip(one["dims"], other["dims"], strict=False)):
                if a == b or not {a, b}.isdisjoint({*self.job["axes"], "const", "free"}) or a.startswith("=") or b.startswith("="):
                    continue
                self.inputs.alike = {b: a}
                if ranks := self._trials():
                    self._say(f"taken for granted: `{one['name']}` and `{other['name']}` are equally long along dimension {dim} (with other sizes the loop raises an error)")
                    return ranks
        self.inputs.alike = {}
        self.failure = failure
        return []

    def _fewer_dimensions(self) -> None:
        """One turn's part taken to be a single number: an error there is said, another value is not accepted."""
        names = [p for p in self.job["parameters"] if p.get("rank", 0) is None]
        ranks = {p["entries"] + p["extra"] for p in names}
        if len(ranks) != 1 or min(p["extra"] for p in names) < 1:
            return
        (least,) = ranks
        self._trial_in_doubt({}, -1, 10, "ordinary", f"{listed(names)} {'has' if len(names) == 1 else 'have'} {least} or more dimensions", "fewer", refuse=not orders_parts(ast.parse(self.job["original"])))

    def _unequal_dimensions(self, agreeing: list[int]) -> None:
        """Several of unknown rank are taken to have the same one; `x[i] * w[i]` also runs with one weight for each row."""
        several = [p for p in self.job["parameters"] if p.get("rank", 0) is None and p["kind"] == "float"]
        for spec in several if len(several) > 1 else []:
            extra = next((e for e in agreeing if spec["extra"] + e >= 1), None)
            if extra is None:
                continue
            own, spec["extra"] = spec["extra"], -extra
            try:
                self._trial({}, extra, seed=11, must_run=False)
            except Differs:
                granted = f"{listed(several)} have equally many dimensions"
                if weighs_parts(ast.parse(self.job["original"])):
                    raise EdgeDiffers(f"only if {granted}, which nothing here says; with fewer of `{spec['name']}` the loop does something else") from None
                self._say(f"taken for granted: {granted} (with fewer of `{spec['name']}` the loop does something else)")
            finally:
                spec["extra"] = own

    def _say(self, fact: str) -> None:
        if not any(said.partition("(")[0] == fact.partition("(")[0] for said in self.facts):
            self.facts.append(fact)

    def _trial_in_doubt(self, sizes: dict, extra: int, seed: int, values: str, granted: str, others: str, refuse: bool = True) -> None:
        """Inputs of a kind that nothing in the source excludes and few programs have."""
        old = self._outcome(self.original, sizes, extra, seed, values)
        if old[0] == "raised" or old[2][1]:
            return
        new = self._outcome(self.rewritten, sizes, extra, seed, values)
        if new[0] == "raised":
            self._say(f"taken for granted: {granted} (with {others} the loop runs, the rewrite raises {new[1]})")
            return
        try:
            self._compare(old, new, "", values)
        except Differs as difference:
            if refuse and not isinstance(difference, BORNE.get(values, ())):
                raise EdgeDiffers(f"only if {granted}, which nothing here says; with {others} {difference}") from None
            self._say(f"taken for granted: {granted} (with {others} {difference})")

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
            if spec["kind"] != "number" or spec.get("annotated"):
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

    def _trial(self, sizes: dict, extra: int, seed: int, must_run: bool, values: str = "ordinary", name: str = "") -> bool:
        old = self._outcome(self.original, sizes, extra, seed, values)
        new = self._outcome(self.rewritten, sizes, extra, seed, values)
        if old[0] == "raised":
            if name:
                if new[0] != "raised":
                    self.facts.append(f"on {name} the loop raised {old[1]}; the rewrite returns {self._shapes(new[1])}")
                return False
            self.failure = old[1]
            if must_run:
                raise EdgeDiffers(f"the loop raised {old[1]} on one of them")
            return False
        if new[0] == "raised" and name and new[1].startswith("IndexError") and any(p.get("picked") for p in self.job["parameters"]):
            return False  # what the turn of a loop around this one picks is not there: that loop has no such turn
        if new[0] == "raised":
            kind = EdgeDiffers if name else Differs
            raise kind(f"on {name or 'an input the loop handles'} the rewrite raised {new[1]}")
        said = len(self.facts)
        self._compare(old, new, name, values)
        self.runs += 1
        if name and len(self.facts) == said:
            self.edges.append(name)
        return True

    def _outcome(self, function, sizes, extra, seed, values):
        torch = self.torch
        given, leaves = self.inputs.made(sizes, extra, seed, values)
        try:
            results = function(**given)
        except Exception as error:
            return "raised", f"{type(error).__name__}: {first_line(error)}", None
        gradients: list = []
        tensors = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        problem = ""
        if tensors and leaves:
            generator = torch.Generator().manual_seed(seed + 100)
            total = sum((t * torch.randn(t.shape, generator=generator, dtype=torch.float64, device="cpu").to(t.dtype)).sum() for t in tensors)
            try:
                gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
            except RuntimeError as error:
                problem = first_line(error)
        return "returned", results, (gradients, problem, bool(tensors))

    def _compare(self, old, new, name: str, values: str) -> None:
        torch = self.torch
        for label, a, b in zip(self.job["outputs"], old[1], new[1], strict=True):
            label = "the result" if label.startswith("__out") else f"`{label}`"
            where = f" on {name}" if name else ""
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                if a.shape != b.shape:
                    raise Differs(f"{label} has shape {list(b.shape)} instead of {list(a.shape)}{where}")
                if a.dtype != b.dtype and name and not a.numel():
                    self.facts.append(f"on {name} the loop leaves an empty tensor of {a.dtype}, the rewrite one of {b.dtype}")
                elif a.dtype != b.dtype:
                    raise DtypeDiffers(f"{label} has dtype {b.dtype} instead of {a.dtype}{where}")
                self._close(a, b, f"{label}{where}")
            elif isinstance(b, torch.Tensor) and isinstance(a, (int, float)):
                if not name or bool((b != a).any()):  # by name: sizes with which some loop has no turn
                    raise Differs(f"{label} is a tensor instead of a number{where}")
                self.facts.append(f"on {name} the loop leaves the number {a}, the rewrite a tensor of that value")
            elif type(a) is type(b) is float:
                self._close(torch.tensor(a, device="cpu"), torch.tensor(b, device="cpu"), f"{label}{where}")  # Python adds up in double precision, a tensor in its own
            elif name and isinstance(a, int) and isinstance(b, float) and a == b:
                self.facts.append(f"on {name} the loop leaves {a}, the rewrite {b}")
            elif type(a) is not type(b) or a != b:
                raise Differs(f"{label} is {b!r} instead of {a!r}{where}")
        (mine, problem, _), (theirs, other_problem, _) = old[2], new[2]
        if problem:
            self.backward_failure = problem
            return
        if other_problem:
            raise Differs(f"backward raised {other_problem}")
        if values == "ties":
            return
        leaves = max(len(mine), len(theirs))
        mine, theirs = mine or [None] * leaves, theirs or [None] * leaves
        for position, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            self.has_gradients = True
            if a is None and b is None:
                continue
            a = torch.zeros_like(b) if a is None else a
            b = torch.zeros_like(a) if b is None else b
            self._close(a, b, f"the gradient of input {position + 1}", GradientDiffers)

    def _close(self, a, b, what: str, kind: type[Differs] = Differs) -> None:
        a, b = a.double(), b.double()
        if not self.torch.allclose(a, b, equal_nan=True, **TOLERANCE):
            if not self.torch.equal(a.isnan(), b.isnan()):
                raise kind(f"{what} is NaN in other places")
            raise kind(f"{what} differs by up to {(a - b).nan_to_num().abs().max().item():.3g}")

    def _shapes(self, results) -> str:
        shapes = [f"a tensor of shape {list(r.shape)}" if isinstance(r, self.torch.Tensor) else repr(r) for r in results]
        return " and ".join(shapes)

    # Speed ------------------------------------------------------------------------------------------

    def _speed(self, extra: int) -> str:
        """How much faster, in words; on smaller tensors where large ones make the rewrite the slower one, as its memory may."""
        turns = {1: 512, 2: 48}.get(len(self.job["axes"]), 14)
        try:
            with self.torch.no_grad():
                self.original(**self.inputs.made({}, extra, 0, "ordinary", grad=False)[0])  # warm up
                ratio, shape = self._ratio(extra, turns, 64)
                small, small_shape = (ratio, shape) if ratio >= SLOWER else self._ratio(extra, min(turns, 32), 16)
        except Exception:
            return ""
        if small < SLOWER:
            self.slower = f"the loop takes {ratio:.1f} times as long as the rewrite on {shape}"
        elif ratio < 1.2:
            self.facts.append(f"the rewrite is not faster here ({ratio:.1f}x on {shape})")
        return faster(small, small_shape) if small >= 1.2 else ""

    def _ratio(self, extra: int, turns: int, others: int):
        sizes = dict.fromkeys(self.job["axes"], turns)
        for spec in self.job["parameters"]:
            for label in spec.get("dims", []):
                if label not in ("const", "free") and not label.startswith("="):
                    sizes.setdefault(label, others)
        slow, shape = self._timed(self.original, sizes, extra, 0.12)
        fast, _ = self._timed(self.rewritten, sizes, extra, 0.05)
        return slow / max(fast, 1e-9), shape

    def _timed(self, function, sizes, extra, budget: float):
        best, spent, runs = float("inf"), 0.0, 0
        while runs < 1 or (spent < budget and runs < 30):
            given, _ = self.inputs.made(sizes, extra, 0, "ordinary", grad=False)
            start = time.process_time()
            function(**given)
            took = time.process_time() - start
            best, spent, runs = min(best, took), spent + took, runs + 1
        shape = next((list(v.shape) for v in given.values() if isinstance(v, self.torch.Tensor) and v.is_floating_point()), [])
        if not shape:
            shape = next((list(v.shape) for v in given.values() if isinstance(v, self.torch.Tensor)), [])
        return best, shape
