"""Messages of recurrent layers: their input, their hidden state, packed sequences."""

from __future__ import annotations

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Reading, call, count, dtype, raising, reads, running, shape


@reads(
    r"Expected hidden(?P<which>\[\d\])? size \((?P<want>[\d, ]*)\), got \[(?P<got>[\d, ]*)\]",
    example="RuntimeError: Expected hidden[0] size (1, 3, 8), got [1, 2, 8]",
    fragments=(r"expected hidden(\[\d\])? size",),
)
def hidden_size(found: Found) -> Reading:
    want, got, which = found.ints("want"), found.ints("got"), found["which"] or ""
    kind = "LSTM" if which else "GRU"
    words = ("layers x directions", "batch", "hidden size") if len(want) == 3 else ("layers x directions", "hidden size")
    wrong = [f"{words[i] if i < len(words) else i}: expected {w}, got {g}" for i, (w, g) in enumerate(zip(want, got, strict=False)) if w != g]
    program = None
    if len(want) == 3 and len(got) == 3:
        state = f"torch.zeros({call(got)})"
        program = raising(
            f"rnn = torch.nn.{kind}(4, {want[2]}, num_layers={want[0]})",
            f"x = torch.zeros(5, {want[1]}, 4)                     # [time, batch, features]",
            f"rnn(x, ({state}, {state}))" if which else f"rnn(x, {state})",
            raises=f"Expected hidden{which} size ({call(want)}), got {shape(got)}",
        )
    return Reading(
        f"the hidden state has shape {shape(got)} and should have {shape(want)}",
        f"A recurrent layer wants its state as [layers x directions, batch, hidden]; here {'; '.join(wrong) or 'the number of dimensions differs'}. "
        "The batch it goes by is that of the input.",
        (
            "The state was kept from a batch of another size: the last partial batch, or evaluation with another batch size.",
            "`batch_first=True` changes the input and the output, never the state, which stays [layers, batch, hidden]; or the layer lacks "
            "`batch_first=True` and takes the sequence length for the batch.",
            "`num_layers` or `bidirectional` is not counted in the state's first size.",
        ),
        program,
        ("Make the state from the input: `torch.zeros(layers * directions, x.size(batch_dim), hidden)`, or pass none for zeros; start anew when the "
         "batch size changes.",),
        falsehoods=(
            Falsehood(
                "With `batch_first=True` the hidden state is [batch, layers, hidden].",
                "Only input and output are batch-first.",
                running(
                    "rnn = torch.nn.GRU(4, 8, batch_first=True)",
                    "out, h = rnn(torch.zeros(3, 5, 4))",
                    "print(tuple(out.shape), tuple(h.shape))",
                    prints="(3, 5, 8) (1, 3, 8)",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"input\.size\(-1\) must be equal to input_size\. Expected (?P<want>\d+), got (?P<got>\d+)",
    r"input has inconsistent input_size: got (?P<got2>\d+),? expected (?P<want2>\d+)",
    example="RuntimeError: input.size(-1) must be equal to input_size. Expected 4, got 6",
)
def recurrent_input(found: Found) -> Reading:
    cell = found.has("got2")
    want, got = (found.int("want2"), found.int("got2")) if cell else (found.int("want"), found.int("got"))
    return Reading(
        f"a recurrent layer made for {want} features got {got}",
        f"`input_size={want}` must be the last size of the input; that is {got}.",
        (
            "The features are not last: [N, C, L] data needs `x.transpose(1, 2)`.",
            "The width of the layer before (embedding, convolution) is not `input_size`; a bidirectional layer gives `2 * hidden_size`.",
        ),
        raising(f"torch.nn.LSTMCell({want}, 8)(torch.zeros(3, {got}))", raises=f"input has inconsistent input_size: got {got} expected {want}")
        if cell
        else raising(f"torch.nn.LSTM({want}, 8)(torch.zeros(5, 3, {got}))", raises=f"input.size(-1) must be equal to input_size. Expected {want}, got {got}"),
        (f"Bring the features to the last dimension, or make the layer with `input_size={got}`.",),
    )  # fmt: skip


@reads(
    r"Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
    r"`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
    r"Expected `len\(lengths\)` to be equal to batch_size, but got (?P<lengths>\d+) \(batch_size=(?P<batch>\d+)\)",
    r"'lengths' argument should be a 1D CPU int64 tensor, but got (?P<had>\d+)D (?P<device>[\w:]+) (?P<dtype>\w+) tensor",
    example="RuntimeError: Expected `len(lengths)` to be equal to batch_size, but got 2 (batch_size=3)",
)
def packing(found: Found) -> Reading:
    said = found.match[0]
    if "sorted" in said:
        return Reading(
            "the lengths of a packed batch are not in decreasing order",
            "`pack_padded_sequence` expects the longest sample first, unless told to sort.",
            ("Samples come in the order of the data set.",),
            raising(
                "from torch.nn.utils.rnn import pack_padded_sequence",
                "pack_padded_sequence(torch.zeros(5, 3, 4), torch.tensor([2, 5, 3]))",
                raises="`lengths` array must be sorted in decreasing order",
            ),
            ("`enforce_sorted=False`: it sorts and puts the results back in the order given.",),
        )
    if found.has("had"):
        return Reading(
            "the lengths of a packed batch are not a vector of int64 on the CPU",
            f"`pack_padded_sequence` reads the lengths on the CPU, whatever device the data is on; these have {count(found.int('had'), 'dimension')}, "
            f"are on {found['device']} and of dtype {dtype(found['dtype'])}.",
            ("The lengths went to the GPU with the batch." if found["device"] != "cpu" else "The lengths have a dimension too many, or another dtype.",),
            raising(
                "from torch.nn.utils.rnn import pack_padded_sequence",
                "pack_padded_sequence(torch.zeros(5, 3, 4), torch.tensor([[5, 3, 2]]))",
                raises="'lengths' argument should be a 1D CPU int64 tensor",
                says="On the CPU lengths of another shape raise the same:",
            ),
            ("`pack_padded_sequence(x, lengths.cpu(), ...)`.",),
        )
    if "greater than 0" in said:
        return Reading(
            "a sequence of length 0 cannot be packed",
            "Some entry of `lengths` is 0 or negative.",
            ("An empty text or record: filtering left nothing.", "Lengths were computed from a mask with the wrong meaning."),
            raising(
                "from torch.nn.utils.rnn import pack_padded_sequence",
                "pack_padded_sequence(torch.zeros(5, 3, 4), torch.tensor([5, 0, 2]), enforce_sorted=False)",
                raises="Length of all samples has to be greater than 0",
            ),
            ("Drop empty samples, or give them one padding step and ignore the result.",),
        )
    lengths, batch = found.int("lengths"), found.int("batch")
    return Reading(
        f"{lengths} lengths for a batch of {batch}",
        f"Each sample needs one length. Without `batch_first=True` dimension 1 of the input is the batch; it has {batch}.",
        ("`batch_first=True` is missing, so the sequence length is taken for the batch.", "Lengths of another batch."),
        raising(
            "from torch.nn.utils.rnn import pack_padded_sequence",
            f"pack_padded_sequence(torch.zeros(5, {batch}, 4), torch.full(({lengths},), 5))",
            raises=f"Expected `len(lengths)` to be equal to batch_size, but got {lengths} (batch_size={batch})",
        ),
        ("Pass `batch_first=True` for [batch, time, features], and one length per sample.",),
    )


@reads(
    r"(?P<kind>LSTM|GRU|RNN)(?:Cell)?: Expected input to be (?P<want>\dD or \dD), got (?P<got>\d)D instead",
    r"For unbatched 2-D input, hx (?:and cx )?should also be (?P<state>2-D) but got (?P<said>[^\n]*?) tensors?",
    r"For batched 3-D input, hx (?:and cx )?should also be (?P<state3>3-D) but got (?P<said3>[^\n]*?) tensors?",
    example="ValueError: LSTM: Expected input to be 2D or 3D, got 4D instead",
)
def recurrent_dims(found: Found) -> Reading:
    if found.has("kind"):
        kind, got = found["kind"], found.int("got")
        return Reading(
            f"`{kind}` got an input with {count(got, 'dimension')}",
            f"A recurrent layer takes [time, batch, features] (with `batch_first=True` [batch, time, features]), or [time, features] for one sequence; "
            f"this input has {got} dimensions.",
            ("Image or audio features still have a channel dimension: flatten it into the features.", "An extra dimension of size 1: `squeeze(dim)`."),
            raising(f"torch.nn.{kind}(4, 8)(torch.zeros({call((4,) * got)}))", raises=found.match[0]) if kind != "RNN" else None,
            ("Bring it to three dimensions, for instance `x.flatten(2)`.",),
        )
    batched = found.has("state3")
    return Reading(
        "input and hidden state of a recurrent layer do not agree about the batch",
        "A batch (3 dimensions) needs states with 3 dimensions, a single sequence (2 dimensions) states with 2.",
        ("The batch dimension of the input is missing or was squeezed (a batch of one)." if not batched else "The state was squeezed, or made for a single sequence.",),
        raising("state = torch.zeros(1, 2, 8)", "torch.nn.LSTM(4, 8)(torch.zeros(5, 4), (state, state))", raises="For unbatched 2-D input")
        if not batched
        else raising("torch.nn.GRU(4, 8)(torch.zeros(5, 2, 4), torch.zeros(1, 8))", raises="For batched 3-D input"),
        ("Keep the batch dimension in both: `x.unsqueeze(1)` for a batch of one.",),
    )


@reads(
    r"Input batch size (?P<input>\d+) doesn't match hidden(?P<i>\d?) batch size (?P<hidden>\d+)",
    example="RuntimeError: Input batch size 3 doesn't match hidden0 batch size 2",
)
def cell_batch(found: Found) -> Reading:
    batch, hidden = found.int("input"), found.int("hidden")
    return Reading(
        f"a recurrent cell got {batch} inputs and {hidden} states",
        f"Each sample has its own state: the input has {batch} rows, the state {hidden}.",
        ("The state is of an earlier batch of another size (the last, partial one).", "The state is [batch, hidden]; something else was passed."),
        raising(f"torch.nn.GRUCell(4, 8)(torch.zeros({batch}, 4), torch.zeros({hidden}, 8))", raises=found.match[0]),
        ("Start a new state when the batch size changes: `x.new_zeros(x.shape[0], hidden)`.",),
    )


@reads(r"input must have (?P<want>[23]) dimensions, got (?P<got>\d)", example="RuntimeError: input must have 3 dimensions, got 2")
def dimensions_of_old(found: Found) -> Reading:
    want, got = found.int("want"), found.int("got")
    packed = want == 2
    return Reading(
        f"a recurrent layer got an input with {got} dimensions",
        "A packed sequence's data is [all steps, features]." if packed
        else "A recurrent layer reads [time, batch, features], or [batch, time, features] with `batch_first=True`. (Since PyTorch 1.11 two dimensions are taken for one sequence without a batch.)",
        ("One sequence, or one step of a batch, was given without the dimension that counts the others." if got < want else "A dimension of size 1 is left over.",),
        raising("torch.nn.LSTM(3, 4)(torch.zeros(3))" if got < 2 else "torch.nn.LSTM(3, 4)(torch.zeros(2, 2, 2, 3))", raises="LSTM: Expected input to be 2D or 3D", says=OLD_WORDS) if got not in (2, 3) else None,
        ("`x.unsqueeze(0)` or `x.unsqueeze(1)`: whichever dimension is missing, the batch or the time.",),
    )  # fmt: skip
