"""Each spec of a pod has an index of its containers, which is dropped with the spec, whoever looks containers up and when."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pytest

from agent.lifecycle import Kind, container_index, find_container
from agent.podspec import downward
from agent.usage import collector
from kube.api import core_v1
from tests.unit.agent.pods import pod


def indexed() -> set[str]:
    """Return the names of all containers in the indices."""
    return {name for index in tuple(container_index._indices.values()) for name in index.named}


def test_an_index_is_made_once_for_each_spec() -> None:
    first, second = pod("a", "b", metadata={"uid": "1"}), pod("a", metadata={"uid": "2"})
    made = container_index.of(first)
    container_index.of(second)
    assert container_index.of(first) is made and made.named["b"] == (first.spec.containers[1], Kind.MAIN)
    resized = pod("a", "b", metadata={"uid": "1"})
    again = container_index.of(resized)
    assert again is not made and container_index.of(first) is made and container_index.of(resized) is again


def of_a_snapshot(gone: core_v1.Pod) -> object:
    return collector._memory_limit(gone, "looked-up-late")


def of_a_volume(gone: core_v1.Pod) -> object:
    selector = core_v1.ResourceFieldSelector(container_name="looked-up-late", resource="limits.cpu")
    return downward.resource(gone, selector, {"cpu": "4"})


@pytest.mark.parametrize("look_up", [of_a_snapshot, of_a_volume])
def test_nothing_is_kept_of_a_pod_that_is_looked_up_after_it_is_gone(look_up: Callable[[core_v1.Pod], object]) -> None:
    gone = pod("looked-up-late", metadata={"uid": "gone"})
    spec = weakref.ref(gone.spec)
    look_up(gone)
    assert "looked-up-late" in indexed()
    del gone
    assert spec() is None and "looked-up-late" not in indexed()


def test_threads_and_the_event_loop_look_up_the_same_pods() -> None:
    large = [pod(*(f"thread{n}" for n in range(50))) for _ in range(4)]
    wrong = list[core_v1.Pod]()

    def look_up() -> None:
        for number in range(200):
            for each in (large[number % 4], pod(*(f"thread{n}" for n in range(50)))):
                if container_index.of(each).named["thread7"][0] is not each.spec.containers[7]:
                    wrong.append(each)

    threads = [threading.Thread(target=look_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    look_up()
    for thread in threads:
        thread.join()
    assert not wrong
    large.clear()
    assert "thread7" not in indexed()


def test_the_first_container_of_a_name_is_meant() -> None:
    given = pod({"name": "a", "image": "first"}, {"name": "a", "image": "second"}, init=["a", "b"])
    found, init = find_container(given, "a"), find_container(given, "b")
    assert found == (given.spec.containers[0], Kind.MAIN) and init == (given.spec.init_containers[1], Kind.INIT)
