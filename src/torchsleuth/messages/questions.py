"""Questions that quote no message: what is behind them, and what is often said that is not true."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Reading, answers, raising, running

MASK_NOT_INDEX = Falsehood(
    "A padding mask of the wrong shape, or of integers, causes the IndexError.",
    "A mask is multiplied or added, not used as an index: a wrong shape is a RuntimeError about sizes, and an int64 mask gives the same values as a float one.",
    running(
        "embedded = torch.randn(2, 5, 4)",
        "mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])          # int64",
        "print(torch.equal(embedded * mask.unsqueeze(-1), embedded * mask.unsqueeze(-1).float()))",
        prints="True",
    ),
)


@answers(r"\b(\w*bert\w*|gpt-?\d?|t5|transformers?|hugging ?face|token(izer|s)?|vocab\w*)\b", r"index ?error|index out of (range|bounds)|out of range", rule="index-out-of-range")
def index_error_in_a_language_model(text: str) -> Reading:
    return Reading(
        "an IndexError in a BERT-like model is an embedding that got an id its table does not have",
        "Such a model looks three kinds of number up in tables: token ids (`vocab_size` rows, 30522 for bert-base-uncased), positions "
        "(`max_position_embeddings`, 512), and token types (`type_vocab_size`, 2; 1 for RoBERTa). A number outside its table raises `IndexError: index out of "
        "range in self` deep inside the model; on a GPU it is a device-side assert, reported at some later, unrelated line.",
        (
            "A token id at or past the vocabulary size: tokens were added and the model not resized (`model.resize_token_embeddings(len(tokenizer))`), or tokenizer and "
            "model do not belong together.",
            "More positions than the model has: the text was not truncated to 512 (`truncation=True, max_length=512`). RoBERTa counts positions from `padding_idx + 1`.",
            "A token type the model does not know (1 for RoBERTa).",
            "-100 or another label value in the ids.",
        ),
        raising(
            "word_embeddings = torch.nn.Embedding(30522, 8)          # what a BERT does first",
            "input_ids = torch.tensor([[101, 30524, 102]])",
            "word_embeddings(input_ids)",
            raises="IndexError: index out of range in self",
        ),
        ("Check before the model: `input_ids.max() < model.config.vocab_size`, `input_ids.shape[1] <= model.config.max_position_embeddings`. "
         "`torchsleuth run your_script.py` names the module, the value and its position.",),
        falsehoods=(
            MASK_NOT_INDEX,
            Falsehood(
                "Targets that are longer than the inputs cause it.",
                "They fail in the loss, as a ValueError about batch sizes, and do nothing before.",
                raising(
                    "scores = torch.zeros(5, 3)",
                    "torch.nn.functional.cross_entropy(scores, torch.zeros(6, dtype=torch.long))",
                    raises="ValueError: Expected input batch_size (5) to match target batch_size (6).",
                ),
            ),
            Falsehood(
                "Looping over positions can run past the padding.",
                "A loop over `x.shape[1]` stays inside; it is only slow, and agrees with the tensor operation.",
                running(
                    "x, mask = torch.randn(2, 5, 4), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])",
                    "loop = torch.stack([x[:, t] * mask[:, t, None] for t in range(x.shape[1])], dim=1)",
                    "print(torch.equal(loop, x * mask.unsqueeze(-1)))",
                    prints="True",
                ),
            ),
        ),
    )  # fmt: skip


@answers(r"reduc\w*|sum\w*|collaps\w*|mean|1-?d\b|flatten\w*", r"for[- ]?loop|\bloops?\b", r"tensor|torch|gradient|train\w*", rule="loop-over-tensor")
def reduce_in_a_loop(text: str) -> Reading:
    return Reading(
        "reduce with `x.sum(dim=1)` or `x.mean(dim=1)`; a loop that writes row sums is slow, not wrong",
        "From [rows, columns] to [rows]: `x.sum(dim=1)`, `x.mean(dim=1)`, `x.amax(dim=1)`; to one long vector: `x.flatten()`. A Python loop that writes each row's "
        "sum into a tensor of zeros gives the same values and the same gradient: the write is recorded (a CopySlices node per row). It is only slow, one node per row.",
        (
            "A loop that truly fails in training writes into a tensor that an earlier operation saved: \"modified by an inplace operation\".",
            "Or it writes into a tensor that itself requires grad: \"a leaf Variable that requires grad is being used in an in-place operation\".",
            "Or it takes values out with `.item()`, `float()` or `.data`, and the gradient is lost: \"does not require grad and does not have a grad_fn\".",
            "Or it carries a result over from the iteration before: \"Trying to backward through the graph a second time\".",
        ),
        running(
            "x = torch.randn(4, 3, requires_grad=True)",
            "sums = torch.zeros(4)",
            "for i in range(4):",
            "    sums[i] = x[i].sum()                    # recorded; only slow",
            "sums.sum().backward()",
            "print(torch.equal(x.grad, torch.ones(4, 3)))",
            prints="True",
            says="The loop runs and its gradient is right; this prints True:",
        ),
        ("Replace the loop by `x.sum(dim=1)`.",),
        running("x = torch.randn(4, 3, requires_grad=True)", "x.sum(dim=1).sum().backward()", "print(tuple(x.sum(dim=1).shape))", prints="(4,)"),
        falsehoods=(
            Falsehood(
                "Assigning into a tensor in a loop disconnects it from the graph, so gradients are missing.",
                "It does not; see the program above. What disconnects is taking plain numbers out.",
                running(
                    "x = torch.randn(4, 3, requires_grad=True)",
                    "sums = torch.tensor([row.sum().item() for row in x])    # numbers: history lost",
                    "print(sums.requires_grad)",
                    prints="False",
                ),
            ),
        ),
    )


@answers(r"modif\w*|chang\w*|writ\w*|assign\w*|in-?place|overwrit\w*", r"unpack\w*|unbind|split|chunk|slic\w*|element\w*|channel\w*|row\w*", r"tensor|torch|gradient|grad\b",
         r"error|fail|rais|gradient|grad\b|backward|autograd|break|in-?place|wrong", rule="inplace-saved-tensor")
def modifying_pieces(text: str) -> Reading:
    return Reading(
        "writing into pieces of a tensor is recorded; it fails in three exact cases",
        "A piece (`x[i]`, a row, a channel, one of `a, b = x`) is a view: writing into it writes into `x`. Autograd records that and the gradient is right, except where "
        "the old values are needed or the write cannot be recorded.",
        (
            "An operation has saved the piece, or the tensor it belongs to, for backward (`channel.min()`, `x ** 2`, `exp`), and then it is overwritten: \"modified by an "
            "inplace operation\", raised by backward.",
            "The piece is one of several views made at once (`a, b = x`, `unbind`, `split`, `chunk`, `for row in x`): \"Output 0 of Unbind is a view and is being "
            "modified inplace\", raised at the write.",
            "The tensor is a leaf that requires grad (an input or a parameter): \"a view of a leaf Variable that requires grad ...\", raised at the write.",
        ),
        raising(
            "image = torch.rand(3, 4, 4, requires_grad=True).clone()",
            "channel = image[0]",
            "low, high = channel.min(), channel.max()          # both save `channel`",
            "channel[0, 0] = (channel[0, 0] - low) / (high - low)",
            "image.sum().backward()",
            raises="modified by an inplace operation",
        ),
        (
            "Build a new tensor: `(x - x.amin((1, 2), keepdim=True)) / (x.amax((1, 2), keepdim=True) - x.amin((1, 2), keepdim=True))`, `torch.where`, `masked_fill`, "
            "`torch.stack` of new pieces.",
            "Or write into a copy that nothing has saved: `out = torch.empty_like(x)` and `out[c] = ...`.",
        ),
        running(
            "image = torch.rand(3, 4, 4, requires_grad=True)",
            "low, high = image.amin((1, 2), keepdim=True), image.amax((1, 2), keepdim=True)",
            "((image - low) / (high - low)).sum().backward()",
            "print(tuple(image.grad.shape))",
            prints="(3, 4, 4)",
        ),
        falsehoods=(
            Falsehood(
                "Writing into single elements bypasses the graph, so it fails (or loses the gradient) even on a clone.",
                "On a clone that nothing has saved it runs, and the gradient is right: 0 where a constant was written, unchanged elsewhere. It is only slow.",
                running(
                    "x = torch.tensor([0.2, 0.9], requires_grad=True)",
                    "y = x.clone()",
                    "for i in range(2):",
                    "    if y[i] < 0.5:",
                    "        y[i] = 0",
                    "y.sum().backward()",
                    "print(x.grad.tolist())",
                    prints="[0.0, 1.0]",
                ),
            ),
        ),
    )


@answers(r"\.?grad\b|gradients?", r"\bnone\b|missing|not flow\w*|no gradients?|vanish\w*|zero", r"argmax|argsort|round|compar\w*|long\(\)|index|ind(ex|ic)es|threshold|discrete", rule="lost-gradient")
def gradient_through_a_choice(text: str) -> Reading:
    return Reading(
        "`argmax`, comparisons and rounding pass no gradient to what they chose from",
        "They return whole numbers or booleans, which change in jumps: the derivative is zero or does not exist, so torch records nothing. Nothing raises as long as the "
        "loss has another path to a parameter; the gradient of the scores is then None.",
        ("An index or mask computed from scores that should be learned.",),
        running(
            "scores = torch.randn(5, requires_grad=True)",
            "table = torch.randn(5, requires_grad=True)",
            "table[scores.argmax()].backward()",
            "print(scores.grad, table.grad is not None)",
            prints="None True",
            says="This runs, and prints None for the scores:",
        ),
        ("Choose softly: `(torch.softmax(scores, -1) * table).sum()`; or straight-through: `hard + soft - soft.detach()`; `F.gumbel_softmax`.",),
        running(
            "scores = torch.randn(5, requires_grad=True)",
            "(torch.softmax(scores, -1) * torch.randn(5)).sum().backward()",
            "print(scores.grad is not None)",
            prints="True",
        ),
        falsehoods=(
            Falsehood(
                "`indices.float().requires_grad_()` lets the gradient through.",
                "It makes a new leaf: the gradient ends there.",
                running(
                    "scores = torch.randn(5, requires_grad=True)",
                    "chosen = scores.argmax().float().requires_grad_()",
                    "(chosen * 2).backward()",
                    "print(scores.grad)",
                    prints="None",
                ),
            ),
        ),
    )


@answers(r"\bgrads?\b|gradients?", r"\bnone\b|\bmissing\b|no gradients?", rule="gradient-cut")
def grad_is_none(text: str) -> Reading:
    return Reading(
        "`.grad` is None: backward has not reached that tensor, or does not keep its gradient",
        "After `loss.backward()` only leaves (parameters, inputs created with `requires_grad=True`) that the loss was computed from hold a gradient.",
        (
            "The tensor is not a leaf: `x = torch.randn(3, requires_grad=True).to(device)`, `x = x * 2`. Ask the leaf, or call `x.retain_grad()` before backward.",
            "The history is cut between it and the loss: `.detach()`, `.data`, `.item()`, numpy, `torch.tensor(...)`, `argmax`, `no_grad()`.",
            "It was not used in this forward pass, or is frozen (`requires_grad=False`).",
            "`zero_grad()` has run since: it sets gradients to None.",
        ),
        running(
            "x = torch.ones(3, requires_grad=True)",
            "h = x * 2                                # computed: its gradient is not kept",
            "h.sum().backward()",
            "print(x.grad.tolist(), h.is_leaf)",
            prints="[2.0, 2.0, 2.0] False",
            says="A computed tensor keeps no gradient, the leaf does; this prints [2.0, 2.0, 2.0] False:",
        ),
        ("Print `x.is_leaf`, `x.requires_grad` and `x.grad_fn` along the way from the parameter to the loss; the first that surprises is the place.",),
        running("x = torch.ones(3, requires_grad=True)", "h = x * 2", "h.retain_grad()", "h.sum().backward()", "print(h.grad.tolist())", prints="[1.0, 1.0, 1.0]"),
        falsehoods=(
            Falsehood(
                "A gradient of None is a gradient of zero.",
                "Zero means that the loss was computed from it and does not change with it; None that nothing was recorded.",
                running(
                    "used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)",
                    "(used * 0).backward()",
                    "print(used.grad.item(), unused.grad)",
                    prints="0.0 None",
                ),
            ),
        ),
    )


@answers(r"\bnans?\b", r"\bloss\b|\bgradients?\b|\btrain\w*|\bweights?\b|\boutputs?\b", rule="nan-gradient")
def loss_is_nan(text: str) -> Reading:
    return Reading(
        "NaN comes from one operation, and spreads from there",
        "A NaN is made by 0/0, inf - inf, 0 * inf, the log of a negative number or the softmax of a row that is masked entirely; every later result it touches is NaN, and one "
        "optimizer step with a NaN gradient makes all weights NaN.",
        (
            "The loss diverged: the learning rate is too high, inputs are not scaled, gradients are not clipped.",
            "The input holds NaN or infinity already: `x.isfinite().all()`.",
            "`log(0)`, `sqrt` at 0 in backward, a division by a norm or a count of zero, `0 * inf` behind `torch.where`.",
            "Half precision overflows beyond 65504: `GradScaler`, or bfloat16.",
            "A row of attention in which every key is masked; a loss over zero valid targets.",
        ),
        running(
            "scores = torch.zeros(2).masked_fill(torch.tensor([True, True]), float('-inf'))",
            "print(torch.softmax(scores, -1).tolist())",
            prints="[nan, nan]",
            says="A row masked entirely; this prints [nan, nan]:",
        ),
        ("Find the first one: `torch.autograd.set_detect_anomaly(True)` names the backward node, `isfinite()` after each layer the forward one.",),
        falsehoods=(
            Falsehood(
                "`torch.nan_to_num` on the loss repairs it.",
                "It hides the NaN in the loss; the gradient behind it is still NaN.",
                running(
                    "x = torch.zeros(1, requires_grad=True)",
                    "loss = torch.nan_to_num(torch.sqrt(x) * (0.0 / x))",
                    "loss.sum().backward()",
                    "print(x.grad.item())",
                    prints="nan",
                ),
            ),
        ),
    )
