"""Slices of one pool cost their number once, and an evaluation for a device ends in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.scheduler.devices import slice_device
from control.scheduler.devices.budget import SearchBudget
from control.scheduler.devices.inventory import Inventory
from control.scheduler.devices.requests import Selector
from kube import step_limit
from tests.support.cost import Lines
from tests.unit.control.scheduler.devices import device, node, slice_of


def lines_to_add(count: int) -> int:
    inventory = Inventory()
    slices = [slice_of(device("a"), name=f"s{number}", count=count) for number in range(count)]
    with Lines() as lines:
        for number, each in enumerate(slices):
            inventory.add(f"s{number}", each)
        for number in range(count):
            inventory.remove(f"s{number}")
    return lines.count


def test_a_change_of_a_slice_costs_the_same_however_many_its_pool_has() -> None:
    assert lines_to_add(400) <= 2.2 * lines_to_add(200)


PLACES = st.sampled_from([{"nodeName": "a"}, {"nodeName": "b"}, {"allNodes": True}])


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 3), PLACES), max_size=12), st.sets(st.integers(0, 11)))
def test_pools_are_found_by_the_nodes_of_the_slices_that_are_there(
    added: list[tuple[str, int, dict[str, object]]], removed: set[int]
) -> None:
    inventory, fresh = Inventory(), Inventory()
    for number, (pool, generation, place) in enumerate(added):
        inventory.add(str(number), slice_of(device("d"), name=str(number), pool=pool, generation=generation, **place))
    for number in removed:
        inventory.remove(str(number))
    for number, (pool, generation, place) in enumerate(added):
        if number not in removed:
            fresh.add(str(number), slice_of(device("d"), name=str(number), pool=pool, generation=generation, **place))
    for name in ("a", "b", "c"):
        seen, wanted = inventory.view(node(name)), fresh.view(node(name))
        assert [(pool.driver, pool.name) for pool in seen.pools] == [(pool.driver, pool.name) for pool in wanted.pools]
        assert [one.id for one, _ in seen.devices] == [one.id for one, _ in wanted.devices]


def test_an_evaluation_that_takes_too_long_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a function costs beside what was charged: `sample` is what the timer calls."""
    inventory = Inventory()
    inventory.add("s", slice_of(device("d")))
    ((found, _),) = inventory.view(node()).devices
    clock = iter([1.0, 1.5, 1.9, 2.1])

    def evaluated(self: object, selector: Selector) -> None:
        limit = step_limit._current.limit
        assert limit is not None
        for now in clock:
            limit.sample(now)

    monkeypatch.setattr(slice_device.SliceDevice, "_evaluated", evaluated)
    budget = SearchBudget()
    with budget:
        result = found.evaluate(Selector("true", "a test"), budget)
    assert result == "CEL runtime error: a step held the event loop too long and was stopped"
