"""Reads a recording: which expression made a node, what ran between two moments, who wrote into a storage."""

from __future__ import annotations

import ast
import bisect
import functools
import os
import threading
import types
import typing
from collections.abc import Iterator

from torchsleuth import source
from torchsleuth.capture.alignment import expression_of_node, kinds_of, normal_kind, operations_of
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.graph import LEAF_SEQUENCE, sequence_of
from torchsleuth.record.oplog import Operation
from torchsleuth.record.ring import Event, Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash
    from torchsleuth.record.recorder import Recording

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
# Calls during which the program's own code may make nodes that the log does not see: a checkpoint computes again in backward.
_RUN_THE_PROGRAM = frozenset({"backward", "grad"})
# Frames in a traceback that say that it began in a worker thread.
_POOLS = (os.path.join("concurrent", "futures", "thread.py"), os.path.join("multiprocessing", "pool.py"))


class Timeline:
    def __init__(self, recording: Recording | None, crash: Crash) -> None:
        self.recording = recording
        self._crash = crash
        self._here = threading.get_ident()

    @functools.cached_property
    def _thread(self) -> int:
        """The thread that the crash happened in: this one, unless a worker's exception was handed over and raised again
        (`future.result()`). Then it is one of those that ran the failing line; 0, which no thread has, where that is not known."""
        entry = self._crash.program_entry()
        if self.recording is None or entry is None:
            return self._here
        frame, lasti = entry
        where = source.instruction_range(frame.f_code, lasti)
        if where is None:
            return self._here
        handed_over = any(f.f_code.co_filename.endswith(_POOLS) for f, _ in self._crash.entries)
        ring, mask, code = self.recording.ring, self.recording.ring.mask, id(frame.f_code)
        reached: dict[int, set[int]] = {}  # thread -> its counts of nodes when it came to the failing line
        for index in reversed(range(ring.oldest, ring.written)):
            if ring.codes[index & mask] == code:
                event = ring.event(index)
                if event is not None and event.kind is Kind.LINE and event.where == where[0]:
                    if event.thread == self._here and not handed_over:
                        return self._here
                    reached.setdefault(event.thread, set()).add(event.sequence)
        reached.pop(self._here, None)
        if not reached:
            return self._here
        # Each thread counts its own nodes: the graph's newest was made just before the line that failed.
        newest = max((sequence_of(node) for node in self._crash.nodes if sequence_of(node) < LEAF_SEQUENCE), default=-1)
        fitting = [thread for thread, numbers in reached.items() if newest + 1 in numbers] if len(reached) > 1 else list(reached)
        if len(fitting) > 1 and len({self._course(thread, newest + 1) for thread in fitting}) > 1:
            return 0
        return fitting[0] if fitting else 0

    def _course(self, thread: int, number: int) -> tuple[tuple[int, int, int], ...]:
        """What a thread ran while the nodes of this graph were made: equal for threads that did the same work."""
        ring, mask = self.recording.ring, self.recording.ring.mask
        oldest = min((sequence_of(node) for node in self._crash.nodes), default=0)
        return tuple(
            (ring.codes[slot], ring.wheres[slot], ring.sequences[slot])
            for slot in (index & mask for index in range(ring.oldest, ring.written))
            if ring.threads[slot] == thread and oldest <= ring.sequences[slot] <= number
        )

    # -- the operation log ----------------------------------------------------------------------

    @functools.cached_property
    def operations(self) -> list[Operation]:
        log = self.recording.log if self.recording else None
        return list(log.operations) if log is not None and self.recording.thread == self._thread else []

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [operation.sequence for operation in self.operations]

    def operation_of_sequence(self, number: int) -> Operation | None:
        """The logged call during which the node with this number was made."""
        position = bisect.bisect_right(self._starts, number) - 1
        while position >= 0 and self.operations[position].sequence <= number:
            operation = self.operations[position]
            if operation.sequence <= number < operation.sequence_after:
                return operation
            if operation.sequence_after <= number and operation.sequence < number:
                return None
            position -= 1
        return None

    def place_of_operation(self, operation: Operation, known: Known = Known.OBSERVED) -> Place | None:
        via = None
        if operation.user_code is not operation.code and origin_of(operation.user_code) is Origin.USER:
            via = source.place_of_instruction(operation.user_code, operation.user_lasti, known)
        return source.place_of_instruction(operation.code, operation.lasti, known, via)

    def producer(self, ident: int, storage: int, before: int | None = None) -> Operation | None:
        """The logged call that returned this tensor object, the latest one before operation `before`."""
        for operation in reversed(self.operations):
            if before is not None and operation.index >= before:
                continue
            for mark in operation.results:
                if mark.ident == ident and mark.storage == storage:
                    return operation
        return None

    def maker(self, ident: int, storage: int) -> Operation | None:
        """The logged call that made this tensor object: not one that wrote into it and returned it, as `step` and `add_` do."""
        for operation in reversed(self.operations):
            if any(mark.ident == ident and mark.storage == storage for mark in operation.results):
                if operation.name == "requires_grad_" or not any(mark.ident == ident for mark in operation.operands):
                    return operation
        return None

    def first_with_storage(self, storage: int) -> Operation | None:
        """The logged call that allocated this storage: the latest one to return it without having been given it."""
        for operation in reversed(self.operations):
            if any(mark.storage == storage for mark in operation.results) and not any(
                mark.storage == storage for mark in operation.operands
            ):
                return operation
        return None

    def failing_operation(self) -> Operation | None:
        """The logged call that raised, if the log was still watching."""
        last = self.operations[-1] if self.operations else None
        return last if last is not None and last.raised else None

    # -- the ring -------------------------------------------------------------------------------

    @functools.cached_property
    def _indices(self) -> list[int]:
        """Indices of the recorded thread's events, oldest first."""
        if self.recording is None:
            return []
        ring, thread = self.recording.ring, self._thread
        mask, threads = ring.mask, ring.threads
        return [index for index in range(ring.oldest, ring.written) if threads[index & mask] == thread]

    @functools.cached_property
    def _other_threads(self) -> bool:
        """Each thread counts its own nodes from 0: where others have made some too, a number alone is ambiguous."""
        if self.recording is None:
            return False
        ring, mask = self.recording.ring, self.recording.ring.mask
        if ring.written - ring.oldest == len(self._indices):
            return False
        return any(
            ring.threads[index & mask] != self._thread and ring.sequences[index & mask] > 0
            for index in range(ring.oldest, ring.written)
        )

    @functools.cached_property
    def _sequences(self) -> list[int]:
        if self.recording is None:
            return []
        ring = self.recording.ring
        return [ring.sequences[index & ring.mask] for index in self._indices]

    def event_before(self, number: int) -> int | None:
        """Position (in the thread's events) of the last event before the node with this number was made."""
        position = bisect.bisect_right(self._sequences, number) - 1
        return position if position >= 0 else None

    def event(self, position: int) -> Event | None:
        assert self.recording is not None
        return self.recording.ring.event(self._indices[position])

    def events_since(self, number: int) -> Iterator[Event]:
        """Events from the one during which node `number` was made to the newest, in order."""
        first = self.event_before(number)
        yield from self._events_from(first if first is not None else 0)

    def events(self) -> Iterator[Event]:
        """All that is remembered of this thread, in order."""
        yield from self._events_from(0)

    def events_backwards(self) -> Iterator[Event]:
        for position in reversed(range(len(self._indices))):
            event = self.event(position)
            if event is not None:
                yield event

    def _events_from(self, first: int) -> Iterator[Event]:
        for position in range(first, len(self._indices)):
            event = self.event(position)
            if event is not None:
                yield event

    # -- nodes ----------------------------------------------------------------------------------

    def place_of_node(self, node: typing.Any) -> Place | None:
        """The source expression that made an autograd node, or None where the recording does not tell."""
        number = sequence_of(node)
        if number >= LEAF_SEQUENCE:
            return None
        operation = self.operation_of_sequence(number)
        if operation is not None and operation.name in _RUN_THE_PROGRAM:
            outer, inner = self.place_of_operation(operation), self._place_by_ring(node.name(), number)
            if outer is None or inner is None:
                return inner or outer
            same = inner.span.file == outer.span.file and inner.span.line <= outer.span.line <= inner.span.end_line
            return outer if same else inner  # by the engine itself, of a second derivative
        if operation is not None and not self._other_threads:
            return self.place_of_operation(operation)
        return self._place_by_ring(node.name(), number)

    def _place_by_ring(self, node_name: str, number: int) -> Place | None:
        position = self.event_before(number)
        if position is None or position == 0 and self.recording.ring.oldest > 0:
            return None
        position = self._pending(position)
        event = self.event(position) if position is not None else None
        if event is None:
            return None
        via = None
        if origin_of(event.code) is Origin.LIBRARY:
            via = self._user_place_before(position)
        statement = source.statement_at(event.code.co_filename, event.where)
        if statement is None:
            return None
        expression = expression_of_node(node_name, statement, self._equal_before(node_name, number, position))
        if expression is None and (event.index in self.recording.ring.gaps or self._other_threads):
            return None
        if expression is None and isinstance(statement, Function) and event.code.co_name == statement.name:
            return _within_compiled(event.code, statement, node_name, via)
        return source.place_of_node(event.code, expression or statement, Known.OBSERVED, via)

    def _pending(self, position: int) -> int | None:
        """For a return, the event of the caller that is still pending: back over the whole callee."""
        event = self.event(position)
        while event is not None and event.kind is Kind.RETURN:
            depth, code = 0, event.code
            while True:
                if event.kind is Kind.RETURN:
                    depth += 1
                elif event.kind is Kind.START:
                    depth -= 1
                    if depth == 0:
                        break
                position -= 1
                event = self.event(position) if position >= 0 else None
                if event is None:
                    return None
            if event.code is not code:
                return None  # an unwound frame has upset the pairing: better no answer than a wrong one
            position -= 1
            event = self.event(position) if position >= 0 else None
        return position if event is not None and event.kind is not Kind.START else None

    def _equal_before(self, node_name: str, number: int, position: int) -> int:
        """How many nodes of the same kind were made by the same execution of the line before this one."""
        event = self.event(position)
        first = event.sequence if event else number
        while position > 0:  # back to the line event that opened this execution of the line
            before = self.event(position)
            if before is None:
                break
            first = before.sequence
            if before.kind is Kind.LINE:
                break
            position -= 1
        kind = normal_kind(node_name)
        return sum(
            1 for node in self._crash.nodes if first <= sequence_of(node) < number and normal_kind(node.name()) == kind
        )

    def _user_place_before(self, position: int) -> Place | None:
        """The user's own line that was pending when a library's event happened."""
        event = next((event for event in self._outside(position) if origin_of(event.code) is Origin.USER), None)
        statement = source.statement_at(event.code.co_filename, event.where) if event is not None else None
        return source.place_of_node(event.code, statement) if statement is not None else None

    def lines_under_way(self, number: int) -> Iterator[Event]:
        """The program's lines that were being executed when the node with this number was made, innermost first."""
        position = self.event_before(number)
        position = self._pending(position) if position is not None else None
        event = self.event(position) if position is not None else None
        if event is not None:
            yield event
            yield from self._outside(position)

    def execution_of(self, number: int) -> int | None:
        """When that execution of a statement began in whose course the node with this number was made; None where it is not known."""
        position = self.event_before(number)
        position = self._pending(position) if position is not None else None
        event = self.event(position) if position is not None else None
        statement = source.statement_at(event.code.co_filename, event.where) if event is not None else None
        if statement is None or statement.lineno == statement.end_lineno:
            return position if statement is not None else None
        depth = 0
        for before in reversed(range(position)):  # back over the statement's other lines, and the functions that it calls
            earlier = self.event(before)
            if earlier is None:
                return None
            depth += {Kind.RETURN: 1, Kind.START: -1}.get(earlier.kind, 0)
            if depth < 0 or depth == 0 and earlier.kind is Kind.LINE and not statement.lineno <= earlier.where <= statement.end_lineno:
                return position
            if depth == 0 and earlier.kind is Kind.LINE:
                position = before
        return position

    def _outside(self, position: int) -> Iterator[Event]:
        """The lines of the callers, one after the other, of the function that an event happened in."""
        depth = 0
        for before in reversed(range(position)):
            event = self.event(before)
            if event is None:
                return
            if event.kind is Kind.RETURN:
                depth += 1
            elif event.kind is Kind.START:
                depth -= 1
            elif depth < 0:
                depth = 0
                yield event


def _within_compiled(code: types.CodeType, function: ast.FunctionDef | ast.AsyncFunctionDef, node_name: str, via: Place | None) -> Place | None:
    """What `torch.compile` has made of a function runs under its first line: the one expression in it that makes such nodes, or none."""
    found = [
        operation
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and not isinstance(statement, Function)
        for operation in operations_of(statement)
        if normal_kind(node_name) in kinds_of(operation)
    ]
    return source.place_of_node(code, found[0], Known.INFERRED, via) if len(found) == 1 else None
