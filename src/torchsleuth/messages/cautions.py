"""Warnings of torch that tell of a mistake: the order of steps, a gradient that nobody keeps, a dimension left open, graphs compiled again and again."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, reads, running


@reads(
    r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",
    example="UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
)
def schedule_first(found: Found) -> Reading:
    return Reading(
        "the schedule was stepped before the optimizer",
        "A schedule sets the learning rate for the next step. Called first, it skips the first value of the schedule.",
        (
            "`scheduler.step()` stands above `optimizer.step()`, as it had to before PyTorch 1.1.",
            "With `GradScaler` the first `scaler.step(optimizer)` may be skipped (gradients not finite while the scale is found): then the order is right and the warning harmless.",
            "The schedule belongs to another optimizer than the one that is stepped.",
        ),
        None,
        ("`optimizer.step()`, then `scheduler.step()`.",),
        running(
            "optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)",
            "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)",
            "optimizer.step()",
            "schedule.step()",
            "print(round(optimizer.param_groups[0]['lr'], 4))",
            prints="0.01",
        ),
    )


@reads(
    r"The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed",
    example="UserWarning: The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated during autograd.backward().",
)
def grad_of_a_result(found: Found) -> Reading:
    return Reading(
        "`.grad` of a result stays None",
        "Backward fills `.grad` of leaves only: parameters, and tensors made with `requires_grad=True`. This tensor was computed from others.",
        ("`x = torch.randn(3, requires_grad=True).to(device)`, `... * 0.1` or `.view(...)`: what the name holds then is a result, no leaf.", "The gradient of a hidden value is wanted."),
        None,
        ("Make the leaf where it belongs: `torch.randn(3, device=device, requires_grad=True)`; or `x.retain_grad()` before backward.",),
        running(
            "h = torch.ones(3, requires_grad=True) * 2",
            "h.retain_grad()",
            "h.sum().backward()",
            "print(h.grad.tolist())",
            prints="[1.0, 1.0, 1.0]",
        ),
    )


@reads(
    r"None of the inputs have requires_grad=True\. Gradients will be None",
    example="UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
)
def checkpoint_without_gradient(found: Found) -> Reading:
    return Reading(
        "a checkpointed part gets no input that requires grad",
        "`torch.utils.checkpoint` in its re-entrant form (`use_reentrant=True`) only gives gradients, to the parameters inside as well, where an input requires grad. Here none does.",
        ("The first block of the model is checkpointed, and its input is data; or the embedding before it is frozen (LoRA, fine-tuning of a part).",),
        None,
        ("`checkpoint(f, x, use_reentrant=False)`; in transformers `gradient_checkpointing_kwargs={'use_reentrant': False}` or `model.enable_input_require_grads()`.",),
        running(
            "from torch.utils.checkpoint import checkpoint",
            "layer = torch.nn.Linear(2, 1)",
            "checkpoint(layer, torch.ones(1, 2), use_reentrant=False).sum().backward()",
            "print(layer.weight.grad.tolist())",
            prints="[[1.0, 1.0]]",
        ),
    )


@reads(
    r"Implicit dimension choice for (?P<name>\w+) has been deprecated",
    example="UserWarning: Implicit dimension choice for softmax has been deprecated. Change the call to include dim=X as an argument.",
    rule="softmax-without-dim",
)
def dim_left_open(found: Found) -> Reading:
    name = found["name"]
    return Reading(
        f"`{name}` was not told over which dimension",
        f"Without `dim` an old rule chooses it by the number of dimensions: 0 for one or three, else 1. For [batch, time, classes] that is the batch.",
        ("`F.softmax(x)` or `nn.Softmax()` without `dim`.",),
        None,
        (f"`{name}(x, dim=-1)` for scores in the last dimension.",),
        running("print(torch.zeros(2, 3, 4).softmax(dim=-1).sum(-1)[0].tolist())", prints="[1.0, 1.0, 1.0]"),
    )


@reads(
    r"torch\._dynamo hit config\.(?:recompile_limit|cache_size_limit) \((?P<limit>\d+)\)",
    r"(?:recompile_limit|cache_size_limit) reached with (?:one_graph|fullgraph)=True",
    example="UserWarning: torch._dynamo hit config.recompile_limit (8)",
    fragments=(r"torch\._dynamo hit config\.",),
)
def compiled_too_often(found: Found) -> Reading:
    limit = f"{found['limit']} times" if found.has("limit") else "as often as it may be"
    return Reading(
        f"`torch.compile` compiled one function {limit}, and gives it up",
        "A compiled function is valid for what it was compiled for (shapes, dtypes, Python numbers, attributes, modes). When one of these differs it is compiled again; after the limit it runs "
        "uncompiled (or raises, with `fullgraph=True`). The result is right, only slow.",
        (
            "A Python number that changes in every call is an argument or an attribute: a step counter, a learning rate, a temperature.",
            "Sizes that change in several dimensions; switching between `train()` and `eval()`, or between `no_grad` and not.",
            "Many instances of one module class, each with its own attributes.",
        ),
        None,
        ("`TORCH_LOGS=recompiles python train.py` names the guard that failed each time; pass what changes as a tensor, mark sizes with `torch._dynamo.mark_dynamic(x, dim)` or `dynamic=True`.",),
    )


@reads(
    r"cudnn RNN backward can only be called in training mode",
    example="RuntimeError: cudnn RNN backward can only be called in training mode",
)
def recurrent_in_evaluation(found: Found) -> Reading:
    return Reading(
        "backward through a recurrent layer that ran in evaluation mode on the GPU",
        "cuDNN keeps what backward needs only in training mode. This forward pass ran after `model.eval()`.",
        ("`model.eval()` of an evaluation was not undone by `model.train()`.", "Gradients are wanted in evaluation mode: saliency, an attack on the input, a frozen encoder below a trained part."),
        None,
        ("`model.train()` before training; where the mode must be evaluation, `rnn.train()` of the layer alone (with its dropout at 0), or `with torch.backends.cudnn.flags(enabled=False):`.",),
    )
