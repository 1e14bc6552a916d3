"""The door through which a program applies its custom Functions, and how to stand in it."""

from __future__ import annotations

import typing

from torch.autograd.function import Function, _SingleLevelFunction

from torchsleuth import env

Apply = typing.Callable[..., typing.Any]  # (function class, *arguments, **keywords)


def apply_replaced(replacement: typing.Callable[[Apply], Apply]) -> typing.Callable[[], None]:
    """Every `apply` goes to `replacement(apply as it was)` from now on, until the answer is called.

    Where `Function.apply` is Python it calls `super().apply`, which is looked up on the class below first: names that were bound
    before (`op = MyOp.apply`) go through that door, too. Where it is C++ all the way, such names cannot be reached any more.
    """
    if env.function_apply_is_native():
        native = Function.__dict__["apply"]
        Function.apply = classmethod(replacement(lambda cls, *arguments, **keywords: native.__get__(None, cls)(*arguments, **keywords)))
        return lambda: setattr(Function, "apply", native)

    def below(cls: typing.Any, *arguments: typing.Any, **keywords: typing.Any) -> typing.Any:
        return super(_SingleLevelFunction, cls).apply(*arguments, **keywords)

    _SingleLevelFunction.apply = classmethod(replacement(below))
    return lambda: delattr(_SingleLevelFunction, "apply")
