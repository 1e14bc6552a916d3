"""What Python was to unpack where a call returned it and nothing holds it any more: read from the operation log.

`out, (h, c) = gru(x)`: to go through a tensor Python calls `unbind` on it, and the log has seen that.
"""

from __future__ import annotations

import ast
import re
import typing

from torchsleuth import source
from torchsleuth.record.oplog import Mark

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash
    from torchsleuth.capture.failure import Entry


def unpacked(crash: Crash, entry: Entry) -> tuple[Mark, ast.Call] | None:
    """The tensor that was unpacked, and the call whose result it was (or a part of it)."""
    statement, operations = entry.statement, crash.timeline.operations
    counted = re.search(r"values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?\)", str(crash.error))
    if counted is None or not operations or not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    last = operations[-1]
    where = source.instruction_range(last.code, last.lasti)
    if last.name not in ("unbind", "__iter__") or last.code is not entry.code or where != entry.where or len(last.operands) != 1:
        return None
    mark, got = last.operands[0], counted[2]
    fits = bool(mark.shape) and (mark.shape[0] == int(got) if got else mark.shape[0] > int(counted[1]))
    return (mark, statement.value) if fits else None
