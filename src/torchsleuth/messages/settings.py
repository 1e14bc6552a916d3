"""Messages about settings that torch refuses: numbers out of range, words it does not know, options that need another one."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running

# What a setting may be, and a call that refuses another value of it.
HYPERPARAMETERS = {
    "learning rate": ("0 or more", "torch.optim.Adam(parameters, lr={value})"),
    "epsilon value": ("0 or more", "torch.optim.Adam(parameters, eps={value})"),
    "weight_decay value": ("0 or more", "torch.optim.Adam(parameters, weight_decay={value})"),
    "momentum value": ("0 or more", "torch.optim.SGD(parameters, lr=0.1, momentum={value})"),
    "beta parameter at index 0": ("at least 0 and below 1", "torch.optim.Adam(parameters, betas=({value}, 0.9))"),
    "beta parameter at index 1": ("at least 0 and below 1", "torch.optim.Adam(parameters, betas=(0.9, {value}))"),
}


@reads(
    r"Invalid (?P<what>learning rate|epsilon value|weight_decay value|momentum value|beta parameter at index [01]): (?P<value>-?[\d.]+(?:e[-+]?\d+)?)",
    example="ValueError: Invalid learning rate: -0.1",
)
def hyperparameter(found: Found) -> Reading:
    what, value = found["what"].lower(), found["value"].rstrip(".")
    allowed, made = HYPERPARAMETERS[what]
    return Reading(
        f"the optimizer's {what} is {value}",
        f"It has to be {allowed}.",
        ("A schedule, a search over settings or a division gave a number out of range.", "Arguments without names are in another order than the optimizer takes them."),
        raising("parameters = torch.nn.Linear(2, 2).parameters()", made.format(value=value), raises=f"Invalid {what}: {value}"),
        ("Name the arguments (`lr=..., betas=(0.9, 0.999), weight_decay=...`) and print what the configuration holds.",),
        rule=NO_RULE,
    )


@reads(r"(?P<word>\S+) is not a valid value for reduction", example="ValueError: average is not a valid value for reduction")
def reduction_word(found: Found) -> Reading:
    word = found["word"]
    return Reading(
        f"a loss knows no reduction '{word}'",
        "A loss's `reduction` is 'mean', 'sum' or 'none', and nothing else.",
        ("The word is misspelt, or comes from another library ('average', 'elementwise_mean', 'batch').", "`None` was meant to say 'none': it is a word, in quotes.",
         "'batchmean' exists for `kl_div` alone."),
        raising(f"F.mse_loss(torch.zeros(3), torch.zeros(3), reduction={word!r})", raises=f"{word} is not a valid value for reduction"),
        ("`reduction='mean'`, `'sum'` or `'none'`.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(
    r"(?P<option>prefetch_factor|timeout|persistent_workers|multiprocessing_context) option (?:could only be specified in multiprocessing|can only be used with multi-process|needs num_workers > 0)",
    r"(?P<bare>persistent_workers) option needs num_workers > 0",
    example="ValueError: persistent_workers option needs num_workers > 0",
)
def option_of_workers(found: Found) -> Reading:
    option = found["option"] if found.has("option") else found["bare"]
    values = {"prefetch_factor": "prefetch_factor=2", "persistent_workers": "persistent_workers=True"}
    return Reading(
        f"`{option}` without worker processes",
        f"`{option}` is about the processes that load data, and with `num_workers=0`, the default, there are none: the program loads its data itself.",
        ("`num_workers` was set to 0 to debug, and the options for workers stayed.", "`num_workers` comes from a configuration, where it is 0."),
        raising(f"torch.utils.data.DataLoader([1, 2], {values[option]})", raises=option) if option in values else None,
        ("Give the options together: `num_workers=n, persistent_workers=n > 0, prefetch_factor=2 if n else None`.",),
        running("n = 0", "loader = torch.utils.data.DataLoader([1, 2], num_workers=n, persistent_workers=n > 0, prefetch_factor=2 if n else None)", "print(len(loader))", prints="2"),
        rule=NO_RULE,
    )


@reads(r"upper bound and (?:larger|lower) bound inconsistent with step sign", example="RuntimeError: upper bound and lower bound inconsistent with step sign")
def range_backwards(found: Found) -> Reading:
    return Reading(
        "a range whose end lies before its start",
        "`torch.arange(start, end, step)` goes from start to end by step, and with this step it would never get there. Python's `range` is empty then; torch refuses.",
        ("A number of elements came out negative: a length minus a window, or minus an offset, that is larger than it.", "The bounds are in the wrong order, or a negative step is missing."),
        raising("torch.arange(5, 0)", raises="upper bound and"),
        ("`torch.arange(max(n, 0))`; `torch.arange(5, 0, -1)` to count down.",),
        running("print(torch.arange(5, 0, -1).tolist())", prints="[5, 4, 3, 2, 1]"),
        rule=NO_RULE,
    )


@reads(
    r"random_ expects 'from' to be less than 'to', but got from=(?P<low>-?\d+) >= to=(?P<high>-?\d+)",
    example="RuntimeError: random_ expects 'from' to be less than 'to', but got from=0 >= to=0",
)
def nothing_to_draw_from(found: Found) -> Reading:
    low, high = found.int("low"), found.int("high")
    return Reading(
        f"there is no whole number from {low} up to, and without, {high}",
        "`torch.randint(low, high, size)` draws from low to high - 1.",
        ("What is drawn from is empty: a dataset, a replay buffer, a sequence that is no longer than the window cut from it.", "The bounds are in the wrong order; or the last number was meant to be included."),
        raising(f"torch.randint({low}, {high}, (2,))", raises=f"but got from={low} >= to={high}"),
        ("Look at the length that the upper bound is computed from; for a window of k in n there are `n - k + 1` starts.",),
        rule=NO_RULE,
    )
