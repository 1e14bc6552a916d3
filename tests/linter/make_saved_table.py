"""Regenerates `linter/saved_table.py`: which operators keep which of their tensors for backward.

Run by a developer, never by lint: every operator of torch's own test database is called on its sample
inputs with one tensor at a time requiring a gradient, and the saved tensors of the graph it builds are
compared with the operator's inputs and result by storage address.

    python tests/linter/make_saved_table.py > src/torchsleuth/linter/saved_table.py
"""

from __future__ import annotations

import collections
import os
import sys
import warnings

import torch

HEADER = '''"""Which operators keep which of their tensors for backward; generated, do not edit.

Made by `tests/linter/make_saved_table.py` from torch {version}. `SAVED[operator][k]` lists what is kept when
the k-th tensor argument requires a gradient: numbers are tensor arguments, "r" is the result. A key ending in
`/dim` is the form with a `dim`, `/number` the form whose other operand is a Python number.
"""

TORCH_VERSION = "{version}"

# fmt: off
SAVED: dict[str, dict[int, tuple[int | str, ...]]] = {{
'''


def short(name: str) -> str:
    return name.split(".")[-1].strip("_") if name.startswith("__") else name.split(".")[-1]


def nodes_behind(results):
    seen, pending = set(), [r.grad_fn for r in results if r.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(following for following, _ in node.next_functions if following is not None)


def saved_of(node):
    for attribute in dir(node):
        if not attribute.startswith("_saved_"):
            continue
        try:
            value = getattr(node, attribute)
        except RuntimeError:
            continue
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


def address(tensor):
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def kept(function, tensors, rebuild, k):
    """What the graph of one call keeps when only tensor `k` requires a gradient; None: it has no gradient."""
    fresh = [t.detach().clone() for t in tensors]
    fresh[k].requires_grad_(True)
    out = function(*rebuild(fresh))
    results = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, torch.Tensor)]
    if not any(r.requires_grad for r in results):
        return None
    inputs = {address(t): position for position, t in enumerate(fresh)}
    names = set()
    for node in nodes_behind(results):
        for tensor in saved_of(node):
            where = address(tensor)
            if where in inputs:
                names.add(inputs[where])
            elif where is not None and where in {address(r) for r in results if r.is_floating_point()}:
                names.add("r")
    if any(address(r) in inputs for r in results):
        names.discard("r")
    return names


# What is kept in some modes only, and not in the usual one (constant padding, nearest neighbour, whole length).
NOT_AS_USUALLY_CALLED = ("pad", "interpolate", "fft", "ifft", "ihfft", "ihfft2", "ihfftn", "rfft", "rfft2", "rfftn",
                         "adaptive_avg_pool1d", "adaptive_avg_pool3d")  # fmt: skip


def table():
    found: dict[str, dict[int, set]] = collections.defaultdict(lambda: collections.defaultdict(set))
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if not op.supports_autograd or torch.float32 not in op.dtypes or op.name.startswith(("_", "torch.ops")):
            if not op.name.startswith("__") or not op.supports_autograd:
                continue
        try:
            samples = list(op.sample_inputs("cpu", torch.float32))[:12]
        except Exception:
            continue
        for sample in samples:
            everything = [sample.input, *sample.args]
            places = [n for n, a in enumerate(everything) if isinstance(a, torch.Tensor)]
            if not places or places[0] != 0 or any(t.numel() == 0 for t in (everything[p] for p in places)):
                continue
            key = short(op.name)
            has_dim = "dim" in sample.kwargs or (
                key in REDUCTIONS and len(everything) > 1 and isinstance(everything[1], (int, tuple, list))
                and not isinstance(everything[1], bool)
            )  # fmt: skip
            if has_dim and key in REDUCTIONS:
                key += "/dim"
            elif len(everything) > 1 and isinstance(everything[1], (int, float)) and key in BINARY:
                key += "/number"
            elif len(everything) > 1 and places == [0] and key in BINARY:
                continue
            tensors = [everything[p] for p in places]

            def rebuild(fresh, everything=everything, places=places):
                out = list(everything)
                for place, tensor in zip(places, fresh, strict=True):
                    out[place] = tensor
                return out

            for k, tensor in enumerate(tensors):
                if not tensor.is_floating_point():
                    continue
                try:
                    names = kept(lambda *a, op=op, kw=sample.kwargs: op.op(*a, **kw), tensors, rebuild, k)
                except Exception:
                    continue
                if names is not None:
                    found[key][k] |= names
    for key, function in NUMBER_FORMS.items():
        names = kept(function, [torch.rand(3) + 1], lambda fresh: fresh, 0)
        if names is not None:
            found[key][0] = names
    for key in NOT_AS_USUALLY_CALLED:
        found[key][0].discard(0)
    found["ctc_loss"][0].discard("r")  # kept only with reduction="none" and without zero_infinity
    found["where"] = {1: {0}, 2: {0}}  # the database calls it with the condition in second place
    return found


REDUCTIONS = {"min", "max", "sum", "mean", "prod", "std", "var", "norm", "median", "amin", "amax", "cumsum", "cumprod",
              "argmax", "argmin", "any", "all", "logsumexp"}  # fmt: skip
BINARY = {"add", "sub", "mul", "div", "true_divide", "pow", "maximum", "minimum", "fmod", "remainder", "rsub", "atan2",
          "floor_divide", "radd", "rmul", "rdiv", "rpow", "rmod"}  # fmt: skip
NUMBER_FORMS = {
    "add/number": lambda x: x + 2.5,
    "sub/number": lambda x: x - 2.5,
    "rsub/number": lambda x: 2.5 - x,
    "mul/number": lambda x: x * 2.5,
    "div/number": lambda x: x / 2.5,
    "rdiv/number": lambda x: 2.5 / x,
    "pow/number": lambda x: x**2,
    "rpow/number": lambda x: 2.5**x,
    "remainder/number": lambda x: x % 2.5,
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "vector_norm": torch.linalg.vector_norm,
    "median": lambda x: x.median(),
    "prod": lambda x: x.prod(),
}


def main() -> None:
    warnings.simplefilter("ignore")
    version = torch.__version__.split("+")[0]
    with open(os.devnull, "w") as quiet:
        stdout, sys.stdout = sys.stdout, quiet
        try:
            found = table()
        finally:
            sys.stdout = stdout
    print(HEADER.format(version=version), end="")
    for key in sorted(found):
        rows = {k: tuple(sorted(names, key=str)) for k, names in sorted(found[key].items())}
        print(f"    {key!r}: {rows!r},")
    print("}\n# fmt: on")


if __name__ == "__main__":
    main()
