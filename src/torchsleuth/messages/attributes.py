"""Messages of Python about an attribute that an object does not have: of wrapped models, state dicts, subsets, modules of your own."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running
from torchsleuth.messages.objects import TENSORS_OWN

_WRAPPERS = {
    "DataParallel": "module", "DistributedDataParallel": "module", "FullyShardedDataParallel": "module", "OptimizedModule": "_orig_mod", "DeepSpeedEngine": "module",
    "AveragedModel": "module",
}  # fmt: skip
_MODELS_OWN = ("eval", "train", "to", "cuda", "cpu", "parameters", "state_dict", "load_state_dict", "forward", "named_parameters", "requires_grad_", "half", "float", "predict", "generate")


@reads(
    rf"'(?P<kind>(?!NoneType|Tensor|Parameter)(?!(?:tuple|list|dict)' object has no attribute '(?:{TENSORS_OWN})')[\w.]+)' object has no attribute '(?P<name>\w+)'",
    example="AttributeError: 'Net' object has no attribute 'conv1'",
)
def no_attribute(found: Found) -> Reading:
    kind, name = found["kind"].rpartition(".")[2], found["name"]
    inner = _WRAPPERS.get(kind)
    if inner:
        return Reading(
            f"`{name}` belongs to the model inside of `{kind}`",
            f"`{kind}` wraps a model and has its own attributes only; the model is its `.{inner}`.",
            ("The model was wrapped, and the code asks for what the bare model has.",),
            raising("torch.nn.DataParallel(torch.nn.Linear(2, 2)).weight", raises="AttributeError: 'DataParallel' object has no attribute 'weight'")
            if (kind, name) == ("DataParallel", "weight")
            else None,
            (f"`model.{inner}.{name}`; or keep the bare model under a name of its own. For a forward pass call the wrapper itself, so that it does its work.",),
            rule=NO_RULE,
        )
    if kind in ("OrderedDict", "dict") and name in _MODELS_OWN:
        return Reading(
            "a dictionary of weights is no model",
            f"`.{name}` belongs to a model. `torch.load` gave what was saved, and that is a dictionary: a `state_dict`, or a checkpoint with one in it.",
            ("`torch.save(model.state_dict(), path)` saved the weights, and `model = torch.load(path)` takes them for the model.",),
            raising("model = torch.nn.Linear(2, 2).state_dict()", "model.eval()", raises="object has no attribute 'eval'") if (kind, name) == ("OrderedDict", "eval") else None,
            ("Build the model, then fill it: `model = Net(); model.load_state_dict(torch.load(path))` (its entry, `['model']` or `['state_dict']`, where it is a checkpoint).",),
            rule=NO_RULE,
        )
    if kind.endswith("DataLoaderIter") and name == "next":
        return Reading(
            "an iterator has no `.next()`",
            "In Python 3 the next element of an iterator is `next(iterator)`.",
            ("The code was written for an early PyTorch, whose loaders still had `.next()`.",),
            raising("iter(torch.utils.data.DataLoader([1])).next()", raises="object has no attribute 'next'"),
            ("`images, labels = next(iter(loader))`.",),
            running("print(next(iter(torch.utils.data.DataLoader([1]))))", prints="tensor([1])"),
            rule=NO_RULE,
        )
    if kind in ("Subset", "ConcatDataset", "ChainDataset"):
        where = "subset.dataset" if kind == "Subset" else "[d for d in data.datasets]"
        return Reading(
            f"`{name}` belongs to the dataset inside of `{kind}`",
            f"A `{kind}` holds other datasets and has none of their attributes.",
            ("`random_split` and `Subset` hand over a part, and the code asks it for `classes`, `targets` or `transform`.",),
            None,
            (f"`{where}`; for labels of a subset take them at `subset.indices`." if kind == "Subset" else f"`{where}`.",),
            rule=NO_RULE,
        )
    if kind == "ndarray" or kind in ("int", "float", "bool", "str", "tuple", "list", "dict"):
        tensors = name in TENSORS_OWN.split("|")
        what = {"ndarray": "a numpy array", "int": "an int", "float": "a float", "bool": "a bool", "str": "a text"}.get(kind, f"a {kind}")
        return Reading(
            f"{what} has no `{name}`",
            f"`.{name}` was asked of {what}" + (", and belongs to tensors." if tensors else "; it belongs to something else."),
            (
                {
                    "ndarray": "The data come from numpy as they are: `torch.from_numpy(x)`, or `torch.as_tensor(x)`.",
                    "str": "A path, a key or a line of text stands where the object that it names was meant: a configuration that was not parsed, a file that was not loaded.",
                }.get(kind, "A number stands where a tensor was meant: `.item()`, `len`, a default of 0." if kind in ("int", "float", "bool") else "The value lies inside of it."),
                "A function returns another kind of value than was thought, on this way through it.",
            ),
            None,
            ("Print the value and its type just before that line, and follow it back.",),
            rule="" if tensors else NO_RULE,
        )  # fmt: skip
    outputs = "The object is of another kind than was thought: a model's output with fields (`out.logits`, `out.last_hidden_state`), a wrapper, a checkpoint of an older version."
    unset = (
        f"`self.{name}` is set in another method than `__init__`, under an `if`, or below the line that uses it; or the name is misspelt.",
        "It is set inside `__init__` of a subclass that does not call `super().__init__()`, or a method is indented into another one.",
    )
    return Reading(
        f"`{kind}` has no `{name}`",
        f"Python looked for `{name}` in the object, in its class and (for a module) among its parameters, buffers and submodules, and found none.",
        (outputs, *unset) if name in TENSORS_OWN.split("|") else (*unset, outputs),
        raising(
            f"class {kind}(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            "",
            "    def forward(self, x):",
            f"        return self.{name}(x)",
            "",
            f"{kind}()(torch.zeros(2))",
            raises=f"AttributeError: '{kind}' object has no attribute '{name}'",
        )
        if kind[:1].isupper() and kind.isidentifier() and name.isidentifier() and kind == "Net"
        else None,
        (f"Look at what the object has: `print(type(x), dir(x))`; set `self.{name}` in `__init__`.",),
        rule=NO_RULE,
    )
