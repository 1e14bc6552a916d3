"""Sees embeddings and compiled functions where Python calls them (Python >= 3.12), without another trip through the dispatcher.

Two events of `sys.monitoring`, on a handful of code objects: the start of `F.embedding`, whose arguments are its frame's
locals; and, once the user's own code has been seen to call an `nn.Embedding`, the calls in that very function, which come
with the module and the index and need no frame at all. Call sites of anything else are switched off as they are met.
Recommenders have dozens of tables, so there is as little in these callbacks as will do. Functions compiled by
`torch.compile` are seen at the start of the wrapper that it makes, once it has been called.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import typing

import torch

from torchsleuth import env
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.blackbox.compiled import COMPILE_CODE, indices_in, wrapper_codes
from torchsleuth.record.blackbox.operations import COMPILED, EMBEDDING

if typing.TYPE_CHECKING:
    from torchsleuth.record.blackbox.box import BlackBox

_TOOLS = (4, 3, 2, 1, 0, 5)


class Entrance:
    def __init__(self, box: BlackBox) -> None:
        self._box = box
        self._tool: int | None = None
        self._codes: set[types.CodeType] = set()

    def open(self, note: typing.Callable, note_at: typing.Callable) -> bool:
        """False where this Python cannot, or every tool id is taken."""
        if not env.HAS_MONITORING:
            return False
        monitoring = sys.monitoring
        self._tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
        if self._tool is None:
            return False
        monitoring.use_tool_id(self._tool, "torchsleuth black box")
        on_start, on_call = self._callbacks(note, note_at)
        monitoring.register_callback(self._tool, monitoring.events.PY_START, on_start)
        monitoring.register_callback(self._tool, monitoring.events.CALL, on_call)
        for code in (_EMBEDDING_CODE, COMPILE_CODE):
            self._watch(code, monitoring.events.PY_START)
        if "torch._dynamo.eval_frame" in sys.modules:
            self._watch_compiled()
        monitoring.restart_events()  # call sites that an earlier recording with this id has switched off
        return True

    def close(self) -> None:
        tool, self._tool = self._tool, None
        if tool is None:
            return
        monitoring = sys.monitoring
        for code in self._codes:
            monitoring.set_local_events(tool, code, 0)
        self._codes.clear()
        for event in (monitoring.events.PY_START, monitoring.events.CALL):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    def _watch(self, code: types.CodeType, events: int) -> None:
        if code not in self._codes:
            self._codes.add(code)
            sys.monitoring.set_local_events(self._tool, code, events)

    def _watch_compiled(self) -> None:
        with contextlib.suppress(Exception):  # another torch may keep its wrappers elsewhere
            for code in wrapper_codes():
                self._watch(code, sys.monitoring.events.PY_START)

    def _callbacks(self, note: typing.Callable, note_at: typing.Callable) -> tuple[typing.Callable, typing.Callable]:
        box, monitoring = self._box, sys.monitoring
        is_there, getframe, thread = box._is_there, sys._getframe, threading.get_ident
        module_name, modes = sys._getframemodulename, torch._C._len_torch_function_stack
        announce, disable = box.announce, monitoring.DISABLE
        announced = 0  # the thread whose next `F.embedding` has been noted at its call

        def on_call(code, offset, called, index):
            nonlocal announced
            if type(called) is not _Embedding:
                return disable
            try:
                if type(index) is not _Tensor or called._forward_pre_hooks or modes():
                    return None
                weight = called._parameters["weight"]
                if not announce(index, weight, code, offset):
                    if not is_there(index):
                        return None
                    place = (code, offset)
                    note_at(EMBEDDING, index, (weight, index), place, place, "embedding")
                announced = thread()
            except Exception:  # never into the user's program
                pass

        def on_compiled(code):
            if code is COMPILE_CODE:
                return self._watch_compiled()
            frame = getframe(2)
            with torch._C.DisableTorchFunction():
                found = indices_in(frame.f_locals["args"], frame.f_locals["kwargs"], is_there)
                if found:
                    note(COMPILED, found[0][1], (*(tensor for _, tensor in found), tuple(where for where, _ in found)), frame)

        def on_start(code, offset):
            nonlocal announced
            if announced and announced == thread():
                announced = 0
                return
            try:
                if code is not _EMBEDDING_CODE:
                    return on_compiled(code)
                frame = getframe(1)
                given = frame.f_locals
                index, weight = given["input"], given["weight"]
                if type(index) is not _Tensor or type(weight) not in _PLAIN:
                    return
                if modes():  # reading an attribute of a tensor is a call that a mode of the user's would see
                    with torch._C.DisableTorchFunction():
                        if is_there(index):
                            note(EMBEDDING, index, (weight, index), frame)
                    return
                if not is_there(index):
                    return
                note(EMBEDDING, index, (weight, index), frame)
                # `forward`, `_call_impl` and `_wrapped_call_impl` lie between `F.embedding` and who called the layer.
                if module_name(2) == _LAYERS and module_name(4) == _MODULES:
                    caller = getframe(5).f_code
                    if origin_of(caller) is Origin.USER:
                        self._watch(caller, monitoring.events.CALL)
            except Exception:  # never into the user's program
                pass

        return on_start, on_call


_Tensor, _Embedding = torch.Tensor, torch.nn.Embedding
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_EMBEDDING_CODE = torch.nn.functional.embedding.__code__
_LAYERS, _MODULES = torch.nn.Embedding.__module__, torch.nn.Module.__module__
