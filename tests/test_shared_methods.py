"""`@frozen` classes behave as `dataclass(frozen=True)` does, in all that the house uses of it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field

import pytest

from torchsleuth.frozen import frozen
from torchsleuth.model import from_plain, to_plain


@frozen
class Ours:
    name: str
    sizes: tuple[int, ...] = ()
    notes: dict[str, str] = field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class Theirs:
    name: str
    sizes: tuple[int, ...] = ()
    notes: dict[str, str] = field(default_factory=dict, repr=False)


@frozen
class Longer(Ours):
    more: int = 0

    def __repr__(self) -> str:
        return "longer"


BUILT = [((), {"name": "a"}), (("a",), {}), (("a", (1, 2)), {}), (("a",), {"sizes": (3,)}), (("a", (1,), {"x": "y"}), {})]


@pytest.mark.parametrize("args, named", BUILT)
def test_values_are_the_standard_librarys(args, named):
    ours, theirs = Ours(*args, **named), Theirs(*args, **named)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours == Ours(*args, **named) and ours != theirs
    assert pickle.loads(pickle.dumps(ours)) == ours == copy.deepcopy(ours)
    assert from_plain(Ours, to_plain(ours)) == ours


@pytest.mark.parametrize("args, named", [((), {}), (("a", (), {}, 1), {}), (("a",), {"name": "b"}), (("a",), {"other": 1}), ((), {"sizes": (), "other": 1})])
def test_what_the_standard_library_refuses_is_refused(args, named):
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError):
            kind(*args, **named)


def test_a_default_made_for_one_is_not_anothers():
    assert Ours("a").notes is not Ours("b").notes


def test_nothing_is_assigned_or_deleted():
    one = Ours("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert dataclasses.replace(one, name="b") == Ours("b") and one.name == "a"


def test_equal_values_have_one_place_in_a_set():
    first, second, other = Longer("a", (1,), None, 2), Longer("a", (1,), None, 2), Longer("a", (1,), None, 3)
    assert len({first, second, other}) == 2


def test_a_class_of_more_fields_keeps_its_own_methods():
    longer = Longer("a", more=2)
    assert repr(longer) == "longer" and longer.name == "a" and longer.more == 2 and longer != Ours("a")
