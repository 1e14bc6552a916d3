"""Reads what the GPU printed about a failed assertion, and says which operations could have printed it."""

from __future__ import annotations

import os
import re

from torchsleuth.evidence_device import AssertText
from torchsleuth.record.blackbox.transcript import transcript

_LINE = re.compile(
    r"(?P<file>[^\s:][^:\n]*):(?P<line>\d+): (?P<kernel>[^\n]*?): block: \[[\d, ]+\], thread: \[[\d, ]+\] Assertion `(?P<assertion>.*)` failed\."
)

# Which operators have which kernels, by the kernel's source file and its name or assertion. A file that is not
# here names nobody and excludes nobody.
_FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Indexing.cu", "indexSelect|srcIndex", ("index_select", "embedding")),
    ("Indexing.cu", "indexFunc|dstIndex", ("index_add", "index_reduce")),
    ("IndexKernelUtils.cu", "", ("index", "gather", "index_select", "embedding", "take")),
    ("IndexKernel.cu", "index_copy", ("index_copy",)),
    ("IndexKernel.cu", "take_put", ("take", "put")),
    ("IndexKernel.cu", "masked_scatter", ("masked_scatter",)),
    ("IndexKernel.cu", "", ("index", "_index_put_impl", "index_fill", "index_copy")),
    ("ScatterGatherKernel.cu", "", ("gather", "scatter", "scatter_add", "scatter_reduce")),
    ("EmbeddingBag.cu", "", ("_embedding_bag", "_embedding_bag_forward_only")),
    ("Loss.cu", "input_val|target_val", ("binary_cross_entropy",)),
    ("Loss.cu", "", ("nll_loss_forward",)),
    ("NLLLoss2d.cu", "", ("nll_loss2d_forward",)),
    ("MultiMarginLoss.cu", "", ("multi_margin_loss",)),
    ("MultinomialKernel.cu", "", ("multinomial",)),
    ("DistributionTemplates.h", "", ("bernoulli",)),
    ("MaxUnpooling.cu", "", ("max_unpool2d", "max_unpool3d")),
    ("TensorCompare.cu", "probab|multinomial", ("multinomial",)),
    ("TensorCompare.cu", "", ("_assert_async", "_index_put_impl", "multinomial")),
)  # fmt: skip


def parsed(text: str) -> AssertText | None:
    """The last failed assertion that the text tells of."""
    found = list(_LINE.finditer(text))
    if not found:
        return None
    last = found[-1]
    same = sum(one["file"] == last["file"] and one["line"] == last["line"] for one in found)
    return AssertText(os.path.basename(last["file"]), int(last["line"]), last["kernel"], last["assertion"], same)


def is_generated(text: AssertText) -> bool:
    """The check is in code that torch.compile wrote."""
    return text.file.endswith(".py")


def may_be(text: AssertText | None, operator: str) -> bool:
    """Whether this operator's kernels could have failed this assertion."""
    if text is None:
        return True
    if is_generated(text):
        return False
    for file, pattern, operators in _FAMILIES:
        if text.file == file and re.search(pattern, f"{text.kernel} {text.assertion}"):
            return operator.partition(".")[0].rstrip("_") in operators
    return True


def of_this_process() -> AssertText | None:
    """From what was printed since the black box began to listen."""
    return parsed(transcript.text(until=parsed))
