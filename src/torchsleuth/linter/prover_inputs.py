"""Makes up inputs for the proving process: tensors of given sizes and numbers of dimensions, layers, numbers.

The same call makes the same values again, so that both versions of a loop get equal ones of their own.
"""

from __future__ import annotations

import types


class Layer:
    """A made-up layer, and how many features it gives."""

    def __init__(self, call, features: int) -> None:
        self.call, self.out_features = call, features

    def __call__(self, x):
        return self.call(x)


class Inputs:
    def __init__(self, parameters: list[dict], torch) -> None:
        self.parameters, self.torch = parameters, torch
        self.modules: dict = {}
        self.alike: dict[str, str] = {}  # a size -> the one that it is equal to

    def made(self, sizes: dict, extra: int, seed: int, values: str, grad: bool = True):
        """One set of arguments, and the leaves whose gradients are to be compared."""
        torch = self.torch
        generator = torch.Generator().manual_seed(seed)
        known = dict(sizes)

        def size(label, least=0):
            label = self.alike.get(label, label)
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
                return torch.rand(4 if spec["like"] == "tail" else size(spec["like"]), generator=generator, device="cpu") + 0.5
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
            shape = [n + more for n, more in zip(shape, spec.get("ahead", [0] * len(shape)) + [0], strict=False)]
            for dim, length in spec.get("windows", []):
                shape[dim] += length if isinstance(length, int) else size(length)  # room for a window, however long
            if spec["rank"] is None:
                shape += [4 + n for n in range(spec["extra"] + extra)]
            if kind == "index":
                bound = spec.get("bound")
                top = bound if isinstance(bound, int) else size(bound) if bound else 2
                return torch.randint(0, max(top, 1), shape, generator=generator, device="cpu")
            if kind == "bool":
                return torch.rand(shape, generator=generator, device="cpu") > 0.4
            leaf = torch.randn(shape, generator=generator, device="cpu")
            if values == "whole":
                return leaf.mul(3).round().long()
            if values == "ties":
                leaf = leaf.mul(1.5).round()
            if values == "nan":
                leaf = leaf.where(torch.rand(shape, generator=generator, device="cpu") > 0.25, torch.nan)
            if values == "strided" and leaf.dim() > 1:
                leaf = leaf.transpose(0, -1).contiguous().transpose(0, -1)
            if not grad:
                return leaf
            leaf.requires_grad_(True)
            leaves.append(leaf)
            return leaf.clone()

        given = {spec["name"]: value(spec, spec["name"]) for spec in self.parameters if spec["kind"] not in ("weight", "bias")}
        for spec in self.parameters:
            if spec["kind"] in ("weight", "bias"):
                shape = [5, given[spec["of"]].shape[-1]] if spec["kind"] == "weight" else [5]
                leaf = torch.randn(shape, generator=generator, device="cpu")
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
