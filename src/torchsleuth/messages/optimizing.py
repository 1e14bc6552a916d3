"""Messages of optimizers, learning-rate schedules, gradient scalers and gradient clipping."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, count, raising, reads, running


@reads(
    r"'(?P<op><=?|>=?)' not supported between instances of '(?P<a>str|float|int)' and '(?P<b>str|float|int)'",
    example="TypeError: '<=' not supported between instances of 'float' and 'str'",
)
def text_compared(found: Found) -> Reading:
    return Reading(
        "a text where a number is needed",
        f"Python compares {found['a']} and {found['b']} with `{found['op']}`, and one of them is a text that looks like a number. An optimizer asks "
        "`0.0 <= lr` first of all.",
        (
            "`lr: 1e-3` in a YAML file: PyYAML reads it as a text, `1.0e-3` as a number.",
            "A command-line argument without `type=float`, an environment variable, or a cell of a table that was read as text.",
        ),
        raising("torch.optim.Adam(torch.nn.Linear(2, 2).parameters(), lr='1e-3')", raises="TypeError: '<=' not supported between instances of 'float' and 'str'"),
        ("Convert where it is read: `float(config['lr'])`, or write `1.0e-3` in the YAML file.",),
        running("optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters(), lr=float('1e-3'))", "print(optimizer.defaults['lr'])", prints="0.001"),
    )


@reads(
    r"params argument given to the optimizer should be an iterable of Tensors or dicts, but got (?P<got>[\w.]+)",
    example="TypeError: params argument given to the optimizer should be an iterable of Tensors or dicts, but got torch.FloatTensor",
)
def optimizer_of_a_tensor(found: Found) -> Reading:
    return Reading(
        f"an optimizer got one {found['got']}, not a list of parameters",
        "An optimizer takes what it goes over: `model.parameters()`, or a list of tensors or groups.",
        ("A single parameter was passed as it is.",),
        raising("torch.optim.SGD(torch.zeros(3, requires_grad=True), lr=0.1)", raises="params argument given to the optimizer should be an iterable"),
        ("Put it into a list: `torch.optim.SGD([x], lr=0.1)`.",),
    )


@reads(
    r"'(?P<kind>(?!NoneType)(?-i:[A-Z])\w*)' object is not iterable",
    example="TypeError: 'Linear' object is not iterable",
)
def not_iterable(found: Found) -> Reading:
    return Reading(
        f"`{found['kind']}` is one object, and something goes over it",
        f"A `for`, a `list(...)`, an unpacking or a call that wants several things got one `{found['kind']}`.",
        (
            "An optimizer, `clip_grad_norm_` or the like got the model and not `model.parameters()`.",
            "`for layer in model`: only `nn.Sequential` and `nn.ModuleList` can be gone over; others have `model.children()`.",
        ),
        raising("torch.optim.SGD(torch.nn.Linear(2, 2), lr=0.1)", raises="TypeError: 'Linear' object is not iterable"),
        ("`torch.optim.SGD(model.parameters(), lr=0.1)`.",),
    )


@reads(
    r"loaded state dict (?P<what>has a different number of parameter groups|contains a parameter group that doesn't match the size of optimizer's group)",
    example="ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
)
def optimizer_state(found: Found) -> Reading:
    groups = "number" in found["what"]
    return Reading(
        "the saved optimizer had other " + ("parameter groups" if groups else "parameters"),
        "The state of an optimizer is kept by the position of each parameter, so the optimizer that loads it must have been made with the same "
        + ("groups" if groups else "number of parameters in each group") + " in the same order.",
        (
            "The optimizer was made of a part of the model (frozen layers left out, another head), and was not when it was saved.",
            "The groups (weight decay, learning rates per layer) are split in another way." if groups else "The model has layers more or less than the saved one.",
        ),
        raising(
            "def optimizer(layers):",
            "    return torch.optim.SGD([{'params': layer.parameters()} for layer in layers], lr=0.1)" if groups
            else "    return torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)",
            "one, two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)",
            "optimizer([one]).load_state_dict(optimizer([one, two]).state_dict())",
            raises=f"ValueError: loaded state dict {found['what']}",
        ),
        ("Make the optimizer exactly as it was made when it was saved, then load; where the model has changed on purpose, start with a new optimizer.",),
    )  # fmt: skip


@reads(
    r"some parameters appear in more than one parameter group",
    example="ValueError: some parameters appear in more than one parameter group",
)
def parameter_twice(found: Found) -> Reading:
    return Reading(
        "a parameter is in two groups of one optimizer",
        "Each parameter may be in one group only: it would be updated twice in a step.",
        (
            "One group holds `model.parameters()`, and another a part of the same model.",
            "Two modules share a parameter (tied embeddings), and each is in a group of its own.",
        ),
        raising(
            "model = torch.nn.Sequential(torch.nn.Linear(2, 2))",
            "torch.optim.SGD([{'params': model.parameters()}, {'params': model[0].parameters()}], lr=0.1)",
            raises="ValueError: some parameters appear in more than one parameter group",
        ),
        ("Leave out of the rest what has a group of its own: `ids = {id(p) for p in head.parameters()}; rest = [p for p in model.parameters() if id(p) not in ids]`.",),
    )


@reads(
    r"Tried to step (?P<steps>\d+) times\. The (?:specified number of )?total(?: number of)? steps is (?P<total>\d+)",
    example="ValueError: Tried to step 11 times. The specified number of total steps is 10",
)
def too_many_schedule_steps(found: Found) -> Reading:
    total = found.int("total")
    return Reading(
        f"the schedule was made for {count(total, 'step')}",
        f"`OneCycleLR` knows its learning rates for {count(total, 'step')} and was stepped on ({found['steps']}).",
        (
            "It was made with the number of epochs, and is stepped once per batch: `total_steps = epochs * len(loader)`.",
            "Batches are counted differently: gradient accumulation, a last partial batch, training that was resumed and counts on.",
            "The epoch loop was prolonged and the schedule not.",
        ),
        raising(
            "optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)",
            f"schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps={total})",
            f"for step in range({total + 1}):",
            "    optimizer.step()",
            "    schedule.step()",
            raises=f"The specified number of total steps is {total}",
        )
        if 0 < total <= 10_000
        else None,
        ("`OneCycleLR(optimizer, max_lr, epochs=epochs, steps_per_epoch=len(loader))`, and one `schedule.step()` per `optimizer.step()`.",),
    )


@reads(
    r"(?P<kind>ReduceLROnPlateau|LBFGS)\.step\(\) missing 1 required positional argument: '(?P<argument>metrics|closure)'",
    r"(?<![\w.])step\(\) missing 1 required positional argument: '(?P<bare>metrics|closure)'",
    example="TypeError: ReduceLROnPlateau.step() missing 1 required positional argument: 'metrics'",
)
def step_needs_an_argument(found: Found) -> Reading:
    argument = found["argument"] if found.has("argument") else found["bare"]
    optimizer = "optimizer = torch.optim.{}(torch.nn.Linear(2, 2).parameters(), lr=0.1)"
    if argument == "metrics":
        return Reading(
            "`ReduceLROnPlateau` was not told the value it watches",
            "This schedule lowers the learning rate when a value stops getting better, and takes that value at every step.",
            ("A schedule was exchanged for this one, and `schedule.step()` stayed as it was.",),
            raising(optimizer.format("SGD"), "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step()", raises="missing 1 required positional argument: 'metrics'"),
            ("`schedule.step(validation_loss)`, once per epoch, after validation.",),
        )
    return Reading(
        "`LBFGS` was not given the function it evaluates",
        "LBFGS computes the loss several times in one step, so it needs a function that does.",
        ("An optimizer was exchanged for `LBFGS`, and `optimizer.step()` stayed as it was.",),
        raising(optimizer.format("LBFGS"), "optimizer.step()", raises="missing 1 required positional argument: 'closure'"),
        ("`optimizer.step(closure)`, where `closure` clears the gradients, computes the loss, calls `backward()` and returns the loss.",),
    )


@reads(
    r"(?P<name>\w+) does not support sparse gradients",
    example="RuntimeError: Adam does not support sparse gradients, please consider SparseAdam instead",
)
def sparse_gradients(found: Found) -> Reading:
    return Reading(
        f"`{found['name']}` got the sparse gradient of an embedding",
        "`nn.Embedding(..., sparse=True)` gives gradients that hold the rows used only; this optimizer updates whole tensors.",
        ("`sparse=True` at an embedding or `EmbeddingBag`.",),
        raising(
            "table = torch.nn.Embedding(3, 2, sparse=True)",
            "table(torch.tensor([0])).sum().backward()",
            "torch.optim.Adam(table.parameters()).step()",
            raises="Adam does not support sparse gradients",
        ),
        ("`sparse=False`, or an optimizer of its own for the embeddings: `torch.optim.SparseAdam(table.parameters())` (`SGD` takes them, too).",),
    )


_SCALED = ("model = torch.nn.Linear(2, 1){}", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "scaler = torch.amp.GradScaler('cpu')")


def _scaled(*lines: str, raises: str, half: str = ""):
    return raising(*(line.format(half) for line in _SCALED), *lines, raises=raises)


@reads(
    r"No inf checks were recorded for this optimizer",
    example="AssertionError: No inf checks were recorded for this optimizer.",
)
def scaler_without_gradients(found: Found) -> Reading:
    return Reading(
        "`scaler.step` found no gradient in this optimizer's parameters",
        "`scaler.step(optimizer)` looks at the gradients of the optimizer's parameters for inf and NaN first; there was none to look at: every `.grad` is None.",
        (
            "No backward pass reached these parameters: `scaler.scale(loss).backward()` is missing, or stands after `scaler.step`.",
            "The optimizer was made of other parameters than the model that is trained: made before the model was replaced or wrapped, or of a frozen part.",
            "The loss is cut off from them (`detach`, `no_grad`, a branch not taken): with two optimizers, one of them has nothing to do in this step.",
        ),
        _scaled("scaler.scale(torch.ones(1))", "scaler.step(optimizer)", raises="No inf checks were recorded for this optimizer"),
        ("Print which parameters of the optimizer have a `.grad` after backward; step an optimizer only in the turns in which its parameters took part.",),
    )


@reads(
    r"Attempting to unscale FP16 gradients",
    example="ValueError: Attempting to unscale FP16 gradients.",
)
def half_parameters(found: Found) -> Reading:
    return Reading(
        "the parameters themselves are float16",
        "Mixed precision keeps the parameters in float32 and computes in float16 inside `autocast`. Here the parameters, and so their gradients, are float16, for which "
        "`GradScaler` refuses to divide by the scale.",
        ("`model.half()`, `.to(torch.float16)` or `torch_dtype=torch.float16` when the model was loaded, together with `GradScaler` (or `fp16=True` of a trainer).",),
        _scaled(
            "scaler.scale(model(torch.ones(1, 2).half()).sum()).backward()", "scaler.unscale_(optimizer)",
            raises="ValueError: Attempting to unscale FP16 gradients", half=".half()",
        ),
        ("Leave the trained parameters in float32 (`model.float()`) and let `torch.autocast` choose; with adapters (LoRA) those that are trained.",),
    )  # fmt: skip


@reads(
    r"(?P<what>unscale_|step)\(\) (?:has already been called (?:on this optimizer )?since the last update\(\)|is being called after step\(\))",
    example="RuntimeError: unscale_() has already been called on this optimizer since the last update().",
)
def scaler_twice(found: Found) -> Reading:
    twice = "already" in found.match[0]
    what = found["what"]
    call = "scaler.unscale_(optimizer)" if what == "unscale_" else "scaler.step(optimizer)"
    first = call if twice else "scaler.step(optimizer)"
    return Reading(
        f"`scaler.{what}` was called twice between two `scaler.update()`" if twice else "`scaler.unscale_` was called after `scaler.step`",
        "The order of a step is `scaler.scale(loss).backward()`, perhaps `scaler.unscale_(optimizer)` (once, before clipping), `scaler.step(optimizer)` (once), `scaler.update()`.",
        ("`scaler.update()` is missing, or stands in a branch that was not taken.", "With gradient accumulation these calls stand outside of the `if` that steps."),
        _scaled("scaler.scale(model(torch.ones(1, 2)).sum()).backward()", first, call, raises=f"RuntimeError: {found.match[0]}"),
        ("Once per optimizer and step, and `scaler.update()` at the end of each step.",),
    )


@reads(
    r"Attempted (?P<what>\w+) but _scale is None",
    example="AssertionError: Attempted update but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration.",
)
def scaler_unused(found: Found) -> Reading:
    return Reading(
        "the scaler has scaled nothing yet",
        f"`scaler.{found['what']}` was called before any `scaler.scale(loss)`.",
        ("`loss.backward()` was written for `scaler.scale(loss).backward()`.", "Two scalers: one scales, the other updates."),
        raising("torch.amp.GradScaler('cpu').update()", raises="AssertionError: Attempted update but _scale is None"),
        ("`scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`, all of one scaler.",),
    )


@reads(
    r"The total norm of order (?P<order>[\w.]+) for gradients from `parameters` is non-finite, so it cannot be clipped",
    example="RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale the "
    "gradients by the non-finite norm anyway, set `error_if_nonfinite=False`",
)
def norm_not_finite(found: Found) -> Reading:
    return Reading(
        "a gradient is inf or NaN",
        f"The norm (of order {found['order']}) of all gradients together is not a finite number, so at least one gradient holds inf or NaN (or they are so large that the norm overflows).",
        (
            "The loss is NaN or inf already: print it.",
            "A `log`, `sqrt`, `norm` or division at 0 in the forward pass, whose derivative is infinite there.",
            "Mixed precision: gradients are clipped before `scaler.unscale_(optimizer)`, or this is one of the steps that `GradScaler` skips by itself.",
        ),
        raising(
            "p = torch.nn.Parameter(torch.zeros(1))",
            "p.sqrt().sum().backward()",
            "torch.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)",
            raises="is non-finite, so it cannot be clipped",
        ),
        ("Find the first operation that gives it (`torch.autograd.set_detect_anomaly(True)`); with `GradScaler` leave `error_if_nonfinite=False`.",),
    )


@reads(
    r"param '(?P<entry>\w+)' is not specified in param_groups\[(?P<group>\d+)\] when resuming",
    example="KeyError: \"param 'initial_lr' is not specified in param_groups[0] when resuming scheduler with last_epoch >= 0.\"",
)
def schedule_resumed_alone(found: Found) -> Reading:
    return Reading(
        "a schedule was told that it goes on, and the optimizer has not begun",
        f"`last_epoch=n` says that training goes on after epoch n. The schedule then reads the learning rate that training began with from `{found['entry']}` in the optimizer's groups, "
        f"where the first schedule had written it. In group {found['group']} there is none.",
        ("The optimizer is new: its state was not loaded, or it was loaded after the schedule was made.", "`last_epoch` was taken for the number of epochs to train."),
        raising("optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)", "torch.optim.lr_scheduler.StepLR(optimizer, 1, last_epoch=3)",
                raises=f"param '{found['entry']}' is not specified in param_groups[{found['group']}] when resuming") if (found["entry"], found["group"]) == ("initial_lr", "0") else None,
        ("Leave `last_epoch` out, and load both: `optimizer.load_state_dict(...)`, then `schedule.load_state_dict(...)`.",),
        running(
            "optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)",
            "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)",
            "schedule.load_state_dict({'last_epoch': 3, '_step_count': 4})",
            "print(schedule.last_epoch)",
            prints="3",
        ),
        rule=NO_RULE,
    )  # fmt: skip
