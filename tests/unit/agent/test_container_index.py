"""Each pod has an index of its containers of its own, which is dropped with the pod, or when all together become large."""

from __future__ import annotations

import pytest

from agent.lifecycle import Kind, container_index, find_container
from agent.lifecycle.container_index import _Indices
from tests.unit.agent.pods import pod


def test_an_index_is_made_once_for_each_spec() -> None:
    indices, first, second = _Indices(), pod("a", "b", metadata={"uid": "1"}), pod("a", metadata={"uid": "2"})
    made = indices.of(first)
    indices.of(second)
    assert indices.of(first) is made and made.named["b"] == (first.spec.containers[1], Kind.MAIN)
    resized, other = pod("a", "b", metadata={"uid": "1"}), pod("a", "c", metadata={"uid": "1"})
    again = indices.of(resized)
    assert again is not made and indices.of(first) is made and indices.of(resized) is again
    indices.of(other)
    assert len(indices._pods["1"]) == 2, "a pod has two specs at most"


def test_what_is_no_longer_looked_up_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_index, "MOST", 5)
    indices = _Indices()
    for number in range(4):
        indices.of(pod("a", "b", metadata={"uid": str(number)}))
    assert list(indices._pods) == ["2", "3"] and indices._size == 4
    large = pod(*(f"c{n}" for n in range(9)), metadata={"uid": "large"})
    assert indices.of(large) is indices.of(large) and list(indices._pods) == ["large"]
    indices.forget("large")
    indices.forget("large")
    assert (indices._pods, indices._size) == ({}, 0)


def test_the_first_container_of_a_name_is_meant() -> None:
    given = pod({"name": "a", "image": "first"}, {"name": "a", "image": "second"}, init=["a", "b"])
    found, init = find_container(given, "a"), find_container(given, "b")
    assert found == (given.spec.containers[0], Kind.MAIN) and init == (given.spec.init_containers[1], Kind.INIT)
