"""Messages of convolutions, pooling and normalisation."""

from __future__ import annotations

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Reading, call, count, raising, reads, running, shape


@reads(
    r"Given (?:groups|transposed)=(?P<groups>\d+), weight of size \[(?P<weight>[\d, ]*)\], expected input\[(?P<input>[\d, ]*)\] to have "
    r"(?P<want>\d+) channels, but got (?P<got>\d+) channels instead",
    example="RuntimeError: Given groups=1, weight of size [8, 3, 3, 3], expected input[2, 28, 28, 3] to have 3 channels, but got 28 "
    "channels instead",
    fragments=(r"expected input\s*\[.{0,60}to have \d+ channels", r"channels, but got \d+ channels"),
)
def conv_channels(found: Found) -> Reading:
    weight, size, want, got = found.ints("weight"), found.ints("input"), found.int("want"), found.int("got")
    transposed, groups = "transposed=" in found.match[0], found.int("groups")
    last = size[-1] == want and len(size) == len(weight)
    dims = len(weight) - 2
    story = [
        f"The image is channels-last: the input {shape(size)} has {want} at the end. Convolutions read dimension 1 as channels: "
        "`x.permute(0, 3, 1, 2)`." if dims == 2 else
        f"The channels are in the last dimension of {shape(size)}: swap them with `x.transpose(1, -1)`."
    ] if last else []  # fmt: skip
    if not last and got == 1 and want == 3:
        story.append("Grey images (1 channel) go into a layer made for colour (3): convert them or make the layer for 1.")
    if not last and got == 4 and want == 3:
        story.append("The images have an alpha channel (RGBA): `image.convert('RGB')`.")
    if transposed:
        layer = f"torch.nn.ConvTranspose{dims}d({weight[0]}, {weight[1]}, {weight[2] if dims else 1})"
    else:
        extra = f", groups={groups}" if groups != 1 else ""
        layer = f"torch.nn.Conv{dims}d({weight[1] * groups}, {weight[0]}, {weight[2] if dims else 1}{extra})"
    kernel = weight[2:]
    square = len(set(kernel)) <= 1
    layer = layer if square else layer.replace(f", {weight[2]}", f", {tuple(kernel)}", 1)
    return Reading(
        f"a convolution made for {want} channels got {got}",
        f"The weight {shape(weight)} expects {want} input channels. Channels are dimension 1 of a batch (dimension 0 of a single sample); "
        f"there the input {shape(size)} has {got}.",
        (
            *story,
            "The layer before gives another number of channels than this one takes.",
            "Batch and channel dimension are swapped, or the batch dimension is missing.",
        ),
        raising(
            f"layer = {layer}",
            f"layer(torch.zeros({call(size)}))",
            raises=f"weight of size {shape(weight)}, expected input{shape(size)} to have {want} channels, but got {got} channels instead",
        )
        if 1 <= dims <= 3 and len(size) == dims + 2
        else None,
        (f"Bring the channels to dimension 1, or make the layer for {got} channels if that is what the data has.",),
        falsehoods=(
            Falsehood(
                "`x.view(n, c, h, w)` turns channels-last into channels-first.",
                "`view` keeps the order in memory and mixes the pixels up; `permute` moves the dimension.",
                running(
                    "x = torch.arange(24).view(1, 2, 4, 3)                 # [N, H, W, C]",
                    "print(torch.equal(x.view(1, 3, 2, 4), x.permute(0, 3, 1, 2)))",
                    prints="False",
                ),
            ),
        ),
    )


@reads(
    r"Expected (?P<single>\d)D \(unbatched\) or (?P<batch>\d)D \(batched\) input to (?P<op>\w+), but got input of size: \[(?P<size>[\d, ]*)\]",
    r"Expected (?P<dims>\d)-dimensional input for \d-dimensional weight \[?[\d, ]+\]?, but got \d-dimensional input of size \[(?P<size>[\d, ]*)\] instead",
    example="RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [28, 28]",
    fragments=(r"\(unbatched\) or \dD \(batched\)",),
)
def conv_dims(found: Found) -> Reading:
    size = found.ints("size")
    old = found.has("dims")
    batch = found.int("dims") if old else found.int("batch")
    single, op = batch - 1, f"conv{batch - 2}d" if old else found["op"]
    names = {2: "[C, L] or [N, C, L]", 3: "[C, H, W] or [N, C, H, W]", 4: "[C, D, H, W] or [N, C, D, H, W]"}.get(single, "")
    return Reading(
        f"`{op}` got an input with {count(len(size), 'dimension')}",
        (f"`{op}` takes {batch} dimensions, {names.partition(' or ')[2]}; " if old else f"`{op}` takes {single} or {batch} dimensions, {names}; ") + f"this input is {shape(size)}, which has {len(size)}.",
        (
            "The batch dimension is missing (this release takes batches only): `x.unsqueeze(0)`." if old and len(size) == single else
            "The channel dimension is missing (a grey image [H, W], a batch of them [N, H, W]): `x.unsqueeze(1)`." if len(size) < batch else
            "A dimension too many: `squeeze` it, or the layer is of the wrong kind (Conv1d for sequences, Conv2d for images).",
            "The input was flattened before the convolution.",
        ),
        raising(
            f"torch.nn.Conv{op[-2]}d(3, 8, 1)(torch.zeros({call(size)}))",
            raises=f"Expected {single}D (unbatched) or {batch}D (batched) input to {op}, but got input of size: {shape(size)}",
            says=OLD_WORDS if old else "",
        )
        if not (old and len(size) == single) and op in ("conv1d", "conv2d", "conv3d")
        else None,
        ("Bring it to [N, C, ...] with `unsqueeze`/`reshape`.",),
    )  # fmt: skip


@reads(
    r"Calculated padded input size per channel: \((?P<size>[\dx ]+)\)\. Kernel size: \((?P<kernel>[\dx ]+)\)\. Kernel size can't be greater than "
    r"actual input size",
    example="RuntimeError: Calculated padded input size per channel: (4 x 4). Kernel size: (5 x 5). Kernel size can't be greater than actual "
    "input size",
    fragments=(r"kernel size can't be greater than actual input size",),
)
def kernel_too_large(found: Found) -> Reading:
    size, kernel = found.ints("size"), found.ints("kernel")
    dims = len(size)
    return Reading(
        f"a kernel of {found['kernel']} on an input of {found['size']}",
        f"With its padding the input is {found['size']} here, smaller than the kernel ({found['kernel']}, with dilation counted).",
        (
            "Earlier strides and poolings have shrunk the image further than it is large: too many of them, or a smaller image than planned.",
            "The dimensions are in another order: a channel or batch dimension is read as height or width.",
        ),
        raising(
            f"torch.nn.Conv{dims}d(1, 1, {kernel[0] if len(set(kernel)) == 1 else tuple(kernel)})(torch.zeros({call((1, 1, *size))}))",
            raises=f"Kernel size: ({found['kernel']}). Kernel size can't be greater than actual input size",
        )
        if 1 <= dims <= 3
        else None,
        ("Use larger inputs, fewer poolings, padding, or smaller kernels; print the shape after each layer.",),
    )


@reads(
    r"Given input size: \((?P<input>[\dx]+)\)\. Calculated output size: \((?P<output>[-\dx]+)\)\. Output size is too small",
    example="RuntimeError: Given input size: (3x2x2). Calculated output size: (3x0x0). Output size is too small",
    fragments=(r"output size is too small",),
)
def pool_too_small(found: Found) -> Reading:
    size = tuple(int(n) for n in found["input"].split("x"))
    return Reading(
        f"pooling would make {found['output']} of {found['input']}",
        f"The input (channels x height x width = {found['input']}) is smaller than the pooling window: nothing would be left.",
        (
            "Each stride or pooling halves the image: too many of them for this image size. A network made for 224x224 does not take 32x32.",
            "Height and width are not where the layer looks for them (channels-last data).",
        ),
        raising(
            f"torch.nn.MaxPool2d({2 * max(size[1:])})(torch.zeros({call((1, *size))}))",
            raises=f"Given input size: ({found['input']}). Calculated output size: ",
        )
        if len(size) == 3
        else None,
        ("Use larger images, remove a pooling, or end with `nn.AdaptiveAvgPool2d(1)`, which takes any size.",),
        running("print(tuple(torch.nn.AdaptiveAvgPool2d(1)(torch.zeros(2, 3, 2, 2)).shape))", prints="(2, 3, 1, 1)"),
    )


@reads(
    r"running_mean should contain (?P<got>\d+) elements not (?P<want>\d+)",
    example="RuntimeError: running_mean should contain 4 elements not 8",
)
def batchnorm_channels(found: Found) -> Reading:
    got, want = found.int("got"), found.int("want")
    return Reading(
        f"a batch norm made for {want} channels got {got}",
        f"`num_features={want}` must be the size of dimension 1 of the input; that is {got}.",
        (
            "The layer before gives another number of channels.",
            "The features are last ([N, L, C]): batch norm reads dimension 1; transpose, or use `LayerNorm`.",
        ),
        raising(f"torch.nn.BatchNorm1d({want})(torch.zeros(2, {got}))", raises=f"RuntimeError: running_mean should contain {got} elements not {want}"),
        (f"`BatchNorm(..., num_features={got})` if {got} is the number of channels, else move the channels to dimension 1.",),
    )  # fmt: skip


@reads(
    r"expected (?P<want>\dD(?: or \dD)?) input \(got (?P<got>\d)D input\)",
    example="ValueError: expected 4D input (got 2D input)",
)
def norm_dims(found: Found) -> Reading:
    got, want = found.int("got"), found["want"]
    kind = {"2": "1", "3": "1", "4": "2", "5": "3"}[want[0]]
    return Reading(
        f"a normalisation layer for {want} inputs got {got} dimensions",
        f"`BatchNorm1d` takes [N, C] or [N, C, L], `BatchNorm2d` [N, C, H, W], `BatchNorm3d` [N, C, D, H, W]; the input has {got} dimensions.",
        ("The layer is of the wrong kind for this place (after a flatten, before one).", "The batch or channel dimension is missing."),
        raising(f"torch.nn.BatchNorm{kind}d(8)(torch.zeros({call((2, 8, 5, 5, 5, 5)[:got])}))", raises=f"ValueError: expected {want} input (got {got}D input)"),
        ("Use the kind that fits the shape, or bring the input to [N, C, ...].",),
    )  # fmt: skip


@reads(
    r"Expected more than 1 (?:value per channel|spatial element) when training, got input size torch\.Size\(\[(?P<size>[\d, ]*)\]\)",
    example="ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
    fragments=(r"expected more than 1 value per channel",),
)
def batchnorm_one(found: Found) -> Reading:
    size = found.ints("size")
    spatial = "spatial" in found.match[0]
    layer = (f"InstanceNorm{len(size) - 2}d" if spatial else f"BatchNorm{max(len(size) - 2, 1)}d") if len(size) > 1 else ""
    if spatial:
        return Reading(
            "an instance norm over a single value",
            f"The layer computes mean and variance of each channel of each sample, over positions alone; in {shape(size)} there is one position, whose variance is 0 by definition. "
            "The batch has no part in it.",
            ("The image or sequence has shrunk to one position: too many poolings or strides, or a smaller input than planned.", "It stands after a global pooling."),
            raising(f"torch.nn.{layer}({size[1]})(torch.zeros({call(size)}))", raises=found.match[0]) if 3 <= len(size) <= 5 else None,
            ("Normalise before the size is gone, use larger inputs, or another norm there (`LayerNorm`, `GroupNorm` with several channels in a group).",),
        )
    return Reading(
        "batch statistics of a single value",
        f"In training mode the layer computes mean and variance per channel over everything else; for {shape(size)} that is one value, whose "
        "variance is 0 by definition.",
        (
            "The last batch holds a single sample: the size of the data set leaves a remainder of 1.",
            "Prediction for one sample while the model is still in training mode: `model.eval()` was not called.",
            "The image has shrunk to 1x1 with a batch of one.",
        ),
        raising(f"torch.nn.{layer}({size[1]})(torch.zeros({call(size)}))", raises=found.match[0]) if layer else None,
        ("`drop_last=True` in the training loader, `model.eval()` for prediction, or a layer that does not use the batch (`LayerNorm`, `GroupNorm`).",),
        running("layer = torch.nn.BatchNorm1d(8).eval()", "print(tuple(layer(torch.zeros(1, 8)).shape))", prints="(1, 8)"),
        falsehoods=(
            Falsehood(
                "`torch.no_grad()` switches to evaluation.",
                "It only stops recording gradients; the layer stays in training mode until `eval()`.",
                raising(
                    "layer = torch.nn.BatchNorm1d(8)",
                    "with torch.no_grad():",
                    "    layer(torch.zeros(1, 8))",
                    raises="ValueError: Expected more than 1 value per channel",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"Given normalized_shape=\[(?P<norm>[\d, ]*)\], expected input with shape \[\*, (?P=norm)\], but got input of size\s?\[(?P<size>[\d, ]*)\]",
    example="RuntimeError: Given normalized_shape=[8], expected input with shape [*, 8], but got input of size[2, 4]",
    fragments=(r"given normalized_shape=",),
)
def layernorm_shape(found: Found) -> Reading:
    norm, size = found.ints("norm"), found.ints("size")
    return Reading(
        f"a layer norm over {shape(norm)} got {shape(size)}",
        f"`LayerNorm({list(norm)})` normalises the last {count(len(norm), 'dimension')}, which must be {shape(norm)}; the input ends in "
        f"{shape(size[-len(norm):])}.",
        ("The features are not last (channels-first images): permute, or use `GroupNorm(1, C)`.", "Another width than the layer was made for."),
        raising(
            f"torch.nn.LayerNorm({list(norm)})(torch.zeros({call(size)}))",
            raises=f"Given normalized_shape={shape(norm)}, expected input with shape [*, {call(norm)}], but got input of size{shape(size)}",
        ),
        ("Make the layer for the last dimension(s) of what arrives, or move the features there.",),
    )


@reads(
    r"Expected number of channels in input to be divisible by num_groups, but got input of shape \[(?P<size>[\d, ]*)\] and num_groups=(?P<groups>\d+)",
    r"num_channels \((?P<channels>\d+)\) must be divisible by num_groups \((?P<groups2>\d+)\)",
    example="ValueError: num_channels (8) must be divisible by num_groups (3)",
    fragments=(r"divisible by num_groups",),
)
def groupnorm_groups(found: Found) -> Reading:
    if found.has("channels"):
        channels, groups = found.int("channels"), found.int("groups2")
        program = raising(f"torch.nn.GroupNorm({groups}, {channels})", raises=f"num_channels ({channels}) must be divisible by num_groups ({groups})")
    else:
        size, groups = found.ints("size"), found.int("groups")
        channels = size[1]
        program = raising(f"torch.nn.functional.group_norm(torch.zeros({call(size)}), {groups})", raises=found.match[0])
    return Reading(
        f"{channels} channels cannot be divided into {groups} groups",
        f"Group norm splits the channels (dimension 1) into {groups} equal groups; {channels} / {groups} is not whole.",
        ("The number of channels was changed, the groups not (32 is a common fixed number).", "The channels are not in dimension 1."),
        program,
        (f"Choose a number of groups that divides {channels}.",),
    )


@reads(
    r"non-empty (?P<want>\dD or \dD) \(batch mode\) tensor expected for input",
    r"Only 3D, 4D and 5D input Tensors supported \(got (?P<got>\d)D\)",
    example="RuntimeError: non-empty 3D or 4D (batch mode) tensor expected for input",
)
def pool_dims(found: Found) -> Reading:
    resize = found.has("got")
    return Reading(
        "a pooling or resizing layer got a tensor with too few dimensions",
        "`interpolate` takes [N, C, L], [N, C, H, W] or [N, C, D, H, W]." if resize else
        "2D pooling takes [C, H, W] or [N, C, H, W], with something in every dimension.",
        ("A single image [H, W] or [C, H, W] without batch or channels." if resize else "A flattened input, or an image without channels.", "The batch is empty."),
        raising("torch.nn.functional.interpolate(torch.zeros(3, 3), scale_factor=2)", raises="Only 3D, 4D and 5D input Tensors supported (got 2D)") if resize
        else raising("torch.nn.MaxPool2d(2)(torch.zeros(4, 4))", raises="non-empty 3D or 4D (batch mode) tensor expected for input"),
        ("Add the missing dimensions: `x[None, None]` for one grey image.",),
    )  # fmt: skip


@reads(
    r"(?P<which>in_channels|out_channels) must be divisible by groups",
    example="ValueError: in_channels must be divisible by groups",
)
def conv_groups(found: Found) -> Reading:
    which = found["which"]
    given = "6, 8" if which == "in_channels" else "8, 6"
    return Reading(
        f"`groups` does not divide `{which}`",
        "A convolution with `groups=g` cuts its input and its output channels into g equal parts and joins part with part, so g must divide both numbers.",
        (
            "`groups=in_channels` (depthwise) with an `out_channels` that is no multiple of it." if which == "out_channels" else
            "`groups` was kept while the channels changed (another width, a width multiplier, 3 image channels).",
            "The arguments lie in another order: `Conv2d(in, out, kernel, stride, padding, dilation, groups)`.",
        ),
        raising(f"torch.nn.Conv2d({given}, 3, groups=4)", raises=f"ValueError: {which} must be divisible by groups"),
        ("Take a `groups` that divides both, or round the channels to a multiple of it; a depthwise convolution is `Conv2d(c, c, k, groups=c)`, followed by `Conv2d(c, out, 1)`.",),
        running("print(tuple(torch.nn.Conv2d(8, 8, 3, groups=4).weight.shape))", prints="(8, 2, 3, 3)"),
    )  # fmt: skip
