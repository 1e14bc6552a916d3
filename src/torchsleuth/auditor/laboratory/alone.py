"""Without the other processes of a distributed program: they do not make the same experiments, and would be waited for in vain."""

from __future__ import annotations

import contextlib
import sys
import typing
from collections.abc import Iterator

_EXCHANGES = (
    "allreduce", "allreduce_coalesced", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "_allgather_base", "broadcast",
    "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base", "alltoall", "alltoall_base", "gather", "scatter",
    "send", "recv", "recv_anysource", "barrier", "monitored_barrier",
)  # fmt: skip


class Exchange(RuntimeError):
    """The model would have waited for other processes."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A model that asks for the process group is told that there is none, and runs on its own part.

    One that holds a group itself would wait for the others: its exchanges raise instead.
    """
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    group = getattr(world, "default_pg", None)
    if group is None or world is None:
        yield
        return
    world.default_pg = None
    try:
        with _no_exchanges():
            yield
    finally:
        world.default_pg = group


@contextlib.contextmanager
def _no_exchanges() -> Iterator[None]:
    kind = sys.modules["torch.distributed.distributed_c10d"].ProcessGroup
    kept: dict[str, typing.Any] = {name: vars(kind)[name] for name in _EXCHANGES if name in vars(kind)}

    def refusing(name: str) -> typing.Callable:
        def refuse(self: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.NoReturn:
            if self.size() > 1:
                raise Exchange(f"the model exchanges data with other processes (`{name}`), which take no part in the experiments")
            return kept[name](self, *args, **kwargs)

        return refuse

    for name in kept:
        setattr(kind, name, refusing(name))
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(kind, name, method)
