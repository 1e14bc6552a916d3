"""Messages of operations that resize, sample or pad: interpolate, grid_sample, pad, pooling's padding, glu."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, call, raising, reads, running, shape


@reads(
    r"(?P<many>only one|either) (?:of )?size or scale_factor should be defined",
    example="ValueError: only one of size or scale_factor should be defined",
)
def size_or_factor(found: Found) -> Reading:
    both = found["many"].lower() == "only one"
    given = "size=(4, 4), scale_factor=2" if both else ""
    return Reading(
        "`interpolate` got both a size and a factor" if both else "`interpolate` was not told how large",
        "The size of the result is either given (`size`) or the input's times a factor (`scale_factor`): one of the two.",
        ("Both come from a configuration." if both else "The argument is None: an option that was not set, or a name that was mistyped.",),
        raising(f"F.interpolate(torch.zeros(1, 3, 8, 8){', ' + given if given else ''})", raises=f"ValueError: {found.match[0]}"),
        ("Pass exactly one of them.",),
    )


@reads(
    r"Got (?P<given>\d)D input, but (?P<mode>\w+) mode needs (?P<takes>[345])D input",
    example="NotImplementedError: Got 3D input, but bilinear mode needs 4D input",
)
def interpolation_mode(found: Found) -> Reading:
    given, mode, takes = found.int("given"), found["mode"], found.int("takes")
    own = {3: "linear", 4: "bilinear", 5: "trilinear"}
    sizes = tuple(range(2, 2 + given))
    return Reading(
        f"mode '{mode}' for an input of {given} dimensions",
        f"Batch and channels count: '{mode}' resizes {takes - 2} dimensions and takes {takes}; for {given} dimensions it would be '{own.get(given, 'nearest')}'.",
        (
            "The batch or the channel dimension is missing: `x[None]` or `x[:, None]`." if given < takes else "There is a dimension too many: time or depth, or a batch of batches.",
            f"The data are of another kind: '{own.get(given, 'nearest')}' is the mode for them.",
        ),
        raising(f"F.interpolate(torch.zeros({call(sizes)}), scale_factor=2, mode={mode!r})", raises=f"NotImplementedError: {found.match[0]}") if 3 <= given <= 5 else None,
        (f"Bring the input to {takes} dimensions, or use the mode for {given}.",),
    )  # fmt: skip


@reads(
    r"grid_sampler\(\): expected grid and input to have same batch size, but got input with sizes \[(?P<input>[\d, ]+)\] and grid with sizes \[(?P<grid>[\d, ]+)\]",
    r"grid_sampler\(\): expected grid to have size (?P<want>\d+) in last dimension, but got grid with sizes \[(?P<sizes>[\d, ]+)\]",
    example="RuntimeError: grid_sampler(): expected grid to have size 2 in last dimension, but got grid with sizes [1, 4, 4, 3]",
    fragments=(r"grid_sampler\(\): expected",),
)
def grid_shape(found: Found) -> Reading:
    if found.has("input"):
        image, grid = found.ints("input"), found.ints("grid")
        return Reading(
            f"{grid[0]} grids for {image[0]} images",
            f"`grid_sample` takes a grid for each image: the input is {shape(image)} and the grid {shape(grid)}; their first sizes must be equal.",
            ("One grid is meant for all images (or one image for all grids).",),
            raising(f"F.grid_sample(torch.zeros({call(image)}), torch.zeros({call(grid)}))", raises=found.match[0]),
            ("`grid.expand(x.shape[0], -1, -1, -1)` (or the images, with `x.expand`).",),
        )
    want, grid = found.int("want"), found.ints("sizes")
    image = (grid[0], 3, *[8] * want)
    return Reading(
        f"the grid's last size is {grid[-1]}, not {want}",
        f"A grid for {want}D sampling is [N, {'H, W' if want == 2 else 'D, H, W'}, {want}]: in its last dimension the position of each pixel, from -1 to 1, x first. This one is {shape(grid)}.",
        ("The coordinates are in another dimension, as in [N, 2, H, W] of a flow field: `flow.permute(0, 2, 3, 1)`.", "Homogeneous or 3D coordinates were passed for an image."),
        raising(f"F.grid_sample(torch.zeros({call(image)}), torch.zeros({call(grid)}))", raises=found.match[0]) if len(grid) == want + 2 else None,
        ("Bring the coordinates to the last dimension.",),
    )  # fmt: skip


@reads(
    r"pad should be at most half of (?:effective )?kernel size, but got pad=(?P<pad>\d+)(?:,| and) kernel_size=(?P<kernel>\d+)",
    example="RuntimeError: pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and dilation=1",
)
def pooling_padding(found: Found) -> Reading:
    pad, kernel = found.int("pad"), found.int("kernel")
    return Reading(
        f"pooling with a kernel of {kernel} and a padding of {pad}",
        f"With more padding than half of the kernel a window could lie in the padding alone; with kernel {kernel} and no dilation {kernel // 2} is the most.",
        ("The arguments are in another order: `MaxPool2d(kernel_size, stride, padding)`.", "The padding was taken over from a convolution with a larger kernel."),
        raising(f"F.max_pool2d(torch.zeros(1, 1, 32, 32), {kernel}, padding={pad})", raises=f"got pad={pad}, kernel_size={kernel}") if pad > kernel // 2 and kernel > 0 else None,
        (f"`padding={kernel // 2}` at most, or pad the input first (`F.pad`).",),
        running(f"print(F.max_pool2d(torch.zeros(1, 1, 32, 32), {kernel}, padding={kernel // 2}).ndim)", prints="4") if 0 < kernel < 32 else None,
    )


@reads(
    r"Padding length must be divisible by 2",
    example="RuntimeError: Padding length must be divisible by 2",
)
def padding_pairs(found: Found) -> Reading:
    return Reading(
        "`F.pad` got an odd number of sizes",
        "`F.pad` takes a pair per dimension, before and after, from the last dimension backwards.",
        ("One number per dimension was given, or one is missing.",),
        raising("F.pad(torch.zeros(3, 4), (1, 2, 3))", raises="RuntimeError: Padding length must be divisible by 2"),
        ("`F.pad(x, (left, right))`, `F.pad(x, (left, right, top, bottom))`.",),
    )


@reads(
    r"Halving dimension must be even, but dimension (?P<dim>\d+) is size (?P<size>\d+)",
    example="RuntimeError: Halving dimension must be even, but dimension 1 is size 5",
)
def glu_odd(found: Found) -> Reading:
    dim, size = found.int("dim"), found.int("size")
    return Reading(
        f"`glu` cannot halve {size}",
        f"A gated linear unit splits a dimension into two halves, values and gates; dimension {dim} has {size} elements.",
        ("The layer before has to give twice the width: `nn.Linear(d, 2 * d)`.", "`glu` halves the last dimension unless told (`dim=1` for channels)."),
        raising(f"F.glu(torch.zeros({call((*[2] * dim, size))}), dim={dim})", raises=found.match[0]) if dim < 8 else None,
        ("Make the dimension twice as wide as the result is to be, and name it.",),
    )


@reads(
    r"requested an output size of (?P<asked>[(\[][\d, ]+[)\]]), but valid sizes range from \[(?P<low>[\d, ]+)\] to \[(?P<high>[\d, ]+)\]",
    example="ValueError: requested an output size of (20, 20), but valid sizes range from [8, 8] to [9, 9] (for an input of torch.Size([4, 4]))",
)
def transposed_size(found: Found) -> Reading:
    low, high = found.ints("low"), found.ints("high")
    return Reading(
        f"a transposed convolution cannot give {found['asked']} here",
        f"`output_size` only chooses among the sizes that the stride leaves open: {shape(low)} to {shape(high)} for this input.",
        ("The size of another input or level is asked for (of the skip connection, say), and the levels do not fit.", "Stride, kernel or padding are not those of the convolution that it undoes."),
        raising("torch.nn.ConvTranspose2d(8, 4, 2, stride=2)(torch.zeros(1, 8, 4, 4), output_size=(20, 20))", raises="requested an output size of"),
        ("Ask for a size in that range; for any other, resize afterwards with `F.interpolate`.",),
    )


@reads(
    r"Input and output must have the same number of spatial dimensions, but got input with (?:spatial dimensions of |)\[(?P<input>[\d, ]*)\] and output size of [\[(](?P<size>[\d, ]+?),?[\])]",
    example="ValueError: Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of [28] and output size of (56, 56).",
)
def spatial_dimensions(found: Found) -> Reading:
    spatial, size = found.ints("input"), found.ints("size")
    fewer = len(spatial) < len(size)
    return Reading(
        f"an input with {len(spatial)} spatial dimension{'s' * (len(spatial) != 1)} is to get the size {size}",
        f"`interpolate` reads [batch, channels, ...]: what comes after the first two dimensions, {list(spatial)} here, is resized, and needs one size each. {len(size)} were given.",
        (("The batch dimension is missing: a picture [channels, height, width] is read as a batch of rows.",) if fewer else ("A size is missing, or the input has a dimension too many.",)),
        raising(f"F.interpolate(torch.zeros(1, 3, {call(spatial)}), size={size})", raises="Input and output must have the same number of spatial dimensions") if spatial else None,
        ("`F.interpolate(x.unsqueeze(0), size=...).squeeze(0)` for one picture." if fewer else "Give one size for each dimension after the channels, or one number for all of them.",),
        running("print(tuple(F.interpolate(torch.zeros(3, 28, 28).unsqueeze(0), size=(56, 56)).squeeze(0).shape))", prints="(3, 56, 56)") if fewer else None,
        rule=NO_RULE,
    )
