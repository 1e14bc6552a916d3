"""The two things every section of `Evidence` is made of: a source expression that ran, and a tensor."""

from __future__ import annotations

from torchsleuth.frozen import frozen
from torchsleuth.model import Culprit, Excerpt, Known, Role, Span


@frozen
class Place:
    """A source expression that ran."""

    span: Span
    source: str
    function: str
    excerpt: Excerpt | None
    in_library: bool  # the user cannot be expected to change it
    known: Known
    via: Place | None = None  # the user's own expression that led there, where `in_library`

    def culprit(self, role: Role, label: str) -> Culprit:
        return Culprit(role, self.span, self.source, self.known, label, self.excerpt, self.function)


@frozen
class TensorFact:
    """A tensor as the user knows it."""

    name: str  # "" where no variable, parameter or buffer in sight holds it
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool
    kind: str = ""  # "parameter", "buffer" or "variable", where it has a name
    view_of: str = ""  # the name of the tensor whose memory it shares, where only that has one

    @property
    def called(self) -> str:
        """The name in backticks, or a description by shape."""
        if self.name:
            return f"`{self.name}`"
        if self.view_of:
            return f"a view of `{self.view_of}`"
        return f"a tensor of shape {list(self.shape)}"

    @property
    def size(self) -> str:
        return f"{list(self.shape)}"
