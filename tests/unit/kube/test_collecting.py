from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kube import collecting
from kube.collecting import count_as_old, short_full_collections


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_objects_that_count_as_old_are_traversed_by_full_collections_only() -> None:
    known = _Cycle()
    count_as_old()
    assert not any(each is known for young in (0, 1) for each in gc.get_objects(young))
    assert any(each is known for each in gc.get_objects(2))


def test_garbage_that_counts_as_old_is_collected() -> None:
    garbage = _Cycle()
    number = id(garbage)
    count_as_old()
    del garbage
    gc.collect()
    assert not any(id(each) == number and isinstance(each, _Cycle) for each in gc.get_objects())


def test_objects_that_the_process_has_frozen_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    count_as_old()
    assert gc.get_freeze_count() == frozen > 0


def test_what_a_long_full_collection_leaves_is_not_traversed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [_Cycle() for _ in range(100)]
    with short_full_collections():
        monkeypatch.setattr(collecting, "FULL_SECONDS", 60.0)
        gc.collect()
        assert gc.get_freeze_count() == 0
        monkeypatch.setattr(collecting, "FULL_SECONDS", 0.0)
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        frozen = gc.get_freeze_count()
        assert frozen > len(kept) and not any(each is kept[0] for each in gc.get_objects())
    gc.collect()
    assert frozen - 100 < gc.get_freeze_count() <= frozen


def test_garbage_that_comes_after_a_long_full_collection_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "FULL_SECONDS", 0.0)
    with short_full_collections():
        gc.collect()
        garbage = weakref.ref(_Cycle())
        gc.collect()
    assert garbage() is None
