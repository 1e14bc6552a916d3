"""torch's own warnings: what each of them is about, and whether anything is wrong."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, reads, running


@reads(r"To copy construct from a tensor, it is recommended to use sourceTensor", example="UserWarning: To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone()")
def tensor_of_tensor_warned(found: Found) -> Reading:
    return Reading(
        "`torch.tensor(x)` was given a tensor",
        "It makes a copy without history, on the CPU's or the tensor's device. Where `x` is data, only the spelling is odd. Where `x` came out of the model, no gradient flows through it any more.",
        ("A dataset's `__getitem__` wraps what is a tensor already.", "A loss or a result was put into `torch.tensor(...)`, and the training stops there without an error."),
        None,
        ("`x` itself where no copy is needed; `x.detach().clone()` for a copy without history; `torch.stack(list)` for several tensors with their history.",),
        running("x = torch.ones(2, requires_grad=True)", "print(torch.stack([x[0], x[1]]).requires_grad)", prints="True"),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"Creating a tensor from a list of numpy\.ndarrays is extremely slow", example="UserWarning: Creating a tensor from a list of numpy.ndarrays is extremely slow.")
def list_of_arrays_warned(found: Found) -> Reading:
    return Reading(
        "a list of NumPy arrays is read number by number",
        "The result is right. torch goes through the arrays element by element as through lists of Python numbers, which is many times slower than one copy.",
        ("`torch.tensor([array, array, ...])` in a dataset or in a replay buffer's `sample`.",),
        None,
        ("`torch.from_numpy(np.stack(arrays))`.",),
        running("import numpy as np", "print(torch.from_numpy(np.stack([np.zeros(3), np.ones(3)])).shape)", prints="torch.Size([2, 3])"),
        rule=NO_RULE,
    )


@reads(r"The given NumPy array is not writable", example="UserWarning: The given NumPy array is not writable, and PyTorch does not support non-writable tensors.")
def array_not_writable_warned(found: Found) -> Reading:
    return Reading(
        "a tensor shares the memory of an array that must not be written",
        "`torch.from_numpy` copies nothing. The array is read-only, and torch has no read-only tensors. As long as nothing writes into the tensor all is well.",
        ("The array is a view of a picture (`np.asarray(image)`), of bytes (`np.frombuffer`), of a file (`mmap_mode='r'`), or of a pandas column.",),
        None,
        ("Copy it first: `torch.from_numpy(array.copy())`, or `torch.tensor(array)`.",),
        running("import numpy as np", "print(torch.from_numpy(np.frombuffer(bytes(8), dtype=np.float32).copy()))", prints="tensor([0., 0.])"),
        rule=NO_RULE,
    )


@reads(r"Converting a tensor with requires_grad=True to a scalar", example="UserWarning: Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.")
def scalar_with_history_warned(found: Found) -> Reading:
    return Reading(
        "a tensor with history was turned into a plain number",
        "`float(x)`, `math.log(x)` or an assignment into a NumPy array takes the value only: no gradient flows through that number.",
        ("A loss is logged: nothing is wrong, `loss.item()` says the same without the warning.", "A factor or a term of the loss is computed with `math` or `float`: it trains nothing."),
        None,
        ("For logging `x.item()` or `x.detach()`; in a loss torch's own function: `torch.log(x)`.",),
        running("x = torch.ones((), requires_grad=True)", "print(torch.log(x).requires_grad)", prints="True"),
        rule=NO_RULE,
    )


@reads(r"RNN module weights are not part of single contiguous chunk of memory", example="UserWarning: RNN module weights are not part of single contiguous chunk of memory.")
def weights_in_pieces_warned(found: Found) -> Reading:
    return Reading(
        "the weights of a recurrent layer lie in several pieces",
        "The result is right. cuDNN wants all weights of the layer in one block, and copies them together in every call: that costs memory and time.",
        ("The layer was copied, wrapped (DataParallel's replicas) or its weights replaced (weight norm, weight dropout) after it was built.",),
        None,
        ("Call `self.rnn.flatten_parameters()` at the beginning of `forward`.",),
        rule=NO_RULE,
    )


@reads(r"Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients",
       example="UserWarning: Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients.")  # fmt: skip
def hook_without_inputs_warned(found: Found) -> Reading:
    return Reading(
        "a module's backward hook has no gradient of an input to show",
        "No input of the module requires grad (it is the first layer, and the data needs no gradient), so `grad_input` holds None. `grad_output` and the parameters' gradients are right.",
        ("A hook for saliency, Grad-CAM or logging on the first layer, whose input is plain data.",),
        None,
        ("If the gradient of the input is wanted: `x.requires_grad_()` before the call. Otherwise nothing.",),
        rule=NO_RULE,
    )


@reads(r"the use_reentrant parameter should be passed explicitly", example="UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly.")
def reentrant_warned(found: Found) -> Reading:
    return Reading(
        "`checkpoint` wants to be told which of its two ways to use",
        "`use_reentrant=False` works with any input and keyword arguments. The old way (`True`) gives no gradient where no input of the part requires one.",
        ("A call of `torch.utils.checkpoint.checkpoint` of one's own or in a library that names neither.",),
        None,
        ("`checkpoint(function, x, use_reentrant=False)`; in transformers `gradient_checkpointing_kwargs={'use_reentrant': False}`.",),
        rule=NO_RULE,
    )


@reads(r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
       example="UserWarning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass.")  # fmt: skip
def looked_for_unused_warned(found: Found) -> Reading:
    return Reading(
        "DistributedDataParallel looks for unused parameters, and there are none",
        "The result is right. The search goes through the graph in every step, and costs time for nothing if all parameters are used in every step.",
        ("`find_unused_parameters=True` was set on suspicion. (It is right where the model takes another branch in later steps.)",),
        None,
        ("Leave it out, if each step uses all parameters.",),
        rule=NO_RULE,
    )


@reads(r"Grad strides do not match bucket view strides", example="UserWarning: Grad strides do not match bucket view strides.")
def strides_of_buckets_warned(found: Found) -> Reading:
    return Reading(
        "a gradient lies in memory otherwise than its parameter",
        "The result is right. DistributedDataParallel copies that gradient once more in each step.",
        ("A weight with an axis of size 1 (a 1x1 convolution), or a model that was turned to `channels_last` after it was wrapped.", "`.permute()` or `.transpose()` of a parameter's result in front of a convolution."),
        None,
        ("`.contiguous()` after the permute, or the memory format before wrapping; otherwise nothing.",),
        rule=NO_RULE,
    )


@reads(r"(?P<name>std|var|std_mean|var_mean|cov)?\(?\)?:? ?degrees of freedom is <= 0", example="UserWarning: std(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor.")
def too_few_for_a_spread(found: Found) -> Reading:
    name = found["name"] if found.has("name") else "std"
    return Reading(
        f"`{name}` was taken of one value, and is NaN",
        "The unbiased estimate divides by n - 1, which is 0 here. The result is NaN, and everything computed from it.",
        ("A last batch with one sample, or a group, a mask or an episode of one.", "The axis that is reduced has size 1."),
        None,
        (f"`x.{name}(unbiased=False)` divides by n; or leave such a batch out (`drop_last=True`), or test the count first.",),
        running("x = torch.ones(1)", "print(x.std(unbiased=False))", prints="tensor(0.)"),
        rule=NO_RULE,
    )


@reads(r"An output with one or more elements was resized since it had shape", example="UserWarning: An output with one or more elements was resized since it had shape [3], which does not match the required output shape [4].")
def output_resized_warned(found: Found) -> Reading:
    return Reading(
        "`out=` was given a tensor of another shape",
        "torch gave it the shape of the result and goes on. A later release will refuse. What shared memory with it may not do so any more.",
        ("A buffer that was made for another batch size, or for other axes.",),
        None,
        ("Make it of the right shape, or `out.resize_(0)` to allow any; without `out=` torch makes a new one.",),
        rule=NO_RULE,
    )


@reads(r"dropout option adds dropout after all but last recurrent layer", example="UserWarning: dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1")
def dropout_of_one_layer_warned(found: Found) -> Reading:
    return Reading(
        "`dropout=` of a recurrent network with one layer does nothing",
        "It stands between the layers of one `nn.LSTM`, `nn.GRU` or `nn.RNN`; with `num_layers=1` there is no between.",
        ("`num_layers` was left at 1, and dropout on the output was meant.",),
        None,
        ("Put `nn.Dropout(p)` behind it, or take two layers.",),
        rule=NO_RULE,
    )


@reads(r"'pin_memory' argument is set as true but", example="UserWarning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.")
def nothing_to_pin_for(found: Found) -> Reading:
    return Reading(
        "`pin_memory=True` without a GPU that it could serve",
        "Nothing is wrong, and nothing is pinned. Pinned memory makes copies to a GPU faster; torch sees none here.",
        ("The program runs on a machine without a GPU, or on Apple's.", "A GPU was expected: torch does not see it (`torch.cuda.is_available()`)."),
        None,
        ("`pin_memory=torch.cuda.is_available()`.",),
        rule=NO_RULE,
    )


@reads(r"User provided device_type of '(?P<device>\w+)', but CUDA is not available", example="UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling")
def autocast_without_gpu(found: Found) -> Reading:
    return Reading(
        "autocast was asked for a GPU that is not there, and is switched off",
        "The program goes on in the types of its tensors, float32 mostly.",
        ("`torch.autocast('cuda')` or `torch.cuda.amp.autocast()` on a machine without a GPU.", "A GPU was expected: torch does not see it (`torch.cuda.is_available()`)."),
        None,
        ("`torch.autocast(device_type=x.device.type)`.",),
        rule=NO_RULE,
    )


@reads(r"This DataLoader will create (?P<asked>\d+) worker processes in total(?:.*?is (?P<most>\d+))?", example="UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 4")
def many_workers_warned(found: Found) -> Reading:
    most = f", and this process may use {found['most']} processor cores" if found.has("most") else ""
    return Reading(
        f"the loader starts {found['asked']} processes{most}",
        "The result is right. More processes than cores take turns, and may make loading slower; each holds its own copy of what it uses.",
        ("`num_workers` was taken over from a larger machine, or the container or batch job has few cores.",),
        None,
        ("`num_workers=len(os.sched_getaffinity(0))` at most; measure with fewer.",),
        rule=NO_RULE,
    )


@reads(r"`?torch\.cuda\.amp\.(?P<name>GradScaler|autocast|custom_fwd|custom_bwd)\(args\.\.\.\)`? is deprecated", example="FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.")
def old_amp_warned(found: Found) -> Reading:
    name = found["name"]
    return Reading(
        f"`torch.cuda.amp.{name}` has moved to `torch.amp.{name}`",
        "Nothing is wrong. The new one takes the kind of device as its first argument and does the same.",
        ("The code, or a library, was written before torch 2.4.",),
        None,
        (f"`torch.amp.{name}(device_type='cuda')`." if name.startswith("custom") else f"`torch.amp.{name}('cuda')`.",),
        rule=NO_RULE,
    )


@reads(r"You are using `torch\.load` with `weights_only=False`", example="FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value)")
def unsafe_load_warned(found: Found) -> Reading:
    return Reading(
        "`torch.load` may run code that the file holds",
        "A checkpoint is a pickle, and a pickle can call any function while it is read. From torch 2.6 on `weights_only=True` is the default, which reads tensors and plain containers only.",
        ("A torch before 2.6, and a call that does not say which is meant.",),
        None,
        ("`torch.load(path, weights_only=True)` for weights; `False` only for files of one's own.",),
        rule=NO_RULE,
    )
