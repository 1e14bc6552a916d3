"""The sizes that the configuration of a library's model states: `model.config` of transformers."""

from __future__ import annotations

import typing

from torchsleuth.capture.evaluate import UNKNOWN, plain_attribute
from torchsleuth.capture.failure import Failure, is_module_call
from torchsleuth.probe.names import locals_of

_CONFIGURED = (
    "vocab_size", "max_position_embeddings", "n_positions", "type_vocab_size", "num_labels", "hidden_size", "num_attention_heads",
    "num_channels", "image_size", "pad_token_id", "d_model",
)  # fmt: skip


def sizes_configured(failure: Failure) -> tuple[tuple[str, int], ...]:
    """The sizes that the configuration of a library's model states."""
    for entry in failure.entries:
        if is_module_call(entry):
            found = configured(locals_of(entry.frame).get("self"))
            if found:
                return found
    return ()


def configured(module: typing.Any) -> tuple[tuple[str, int], ...]:
    """transformers keeps them in `model.config`."""
    config = plain_attribute(module, "config")
    if config is UNKNOWN or not hasattr(config, "__dict__"):
        return ()
    values = {name: plain_attribute(config, name) for name in _CONFIGURED}
    labels = plain_attribute(config, "id2label")
    if isinstance(labels, dict):
        values["num_labels"] = len(labels)  # a property of these
    return tuple((name, value) for name, value in values.items() if type(value) is int)
