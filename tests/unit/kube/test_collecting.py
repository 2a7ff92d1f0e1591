from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kube.collecting import count_as_old


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
