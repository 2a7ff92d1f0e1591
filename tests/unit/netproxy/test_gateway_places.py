"""Places of requests at backends: nobody can take so many that others get none."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from netproxy.gateway.errors import Refused
from netproxy.gateway.limits import BACKENDS
from netproxy.gateway.places import Places


class World:
    """Places whose holders never give them back."""

    def __init__(self, held: contextlib.ExitStack, **limits: int) -> None:
        self.places = Places(replace(BACKENDS, **limits))  # type: ignore[arg-type]
        self._held = held
        self.ended: list[tuple[str, str, int]] = []
        self._numbers: Counter[tuple[str, str]] = Counter()

    def begin(self, namespace: str, client: str) -> bool:
        number = self._numbers[namespace, client]
        try:
            hold = self.places.hold(namespace, client, lambda: self.ended.append((namespace, client, number)))
            self._held.enter_context(hold)
        except Refused as refused:
            assert refused.status == 503
            return False
        self._numbers[namespace, client] += 1
        return True

    def fill(self, namespace: str, client: str) -> int:
        """Begin requests until one is refused and return how many began."""
        count = 0
        while self.begin(namespace, client):
            count += 1
            assert count <= BACKENDS.connections, "no limit"
        return count


@pytest.fixture
def held() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_one_client_has_a_limit_and_ends_nothing(held: contextlib.ExitStack) -> None:
    world = World(held)

    assert world.fill("apps", "192.0.2.1") == BACKENDS.client and world.ended == []


@pytest.mark.parametrize("attackers", [2, 9, 100])
def test_clients_that_hold_all_places_of_a_namespace_leave_some_to_others(
    held: contextlib.ExitStack, attackers: int
) -> None:
    world = World(held)
    for _ in range(3):
        for number in range(attackers):
            world.fill("apps", f"192.0.2.{number}")
    world.ended.clear()

    share = BACKENDS.each // (attackers + 1)
    assert world.fill("apps", "198.51.100.1") >= share // 2 - 1 > 0
    assert all(client.startswith("192.0.2.") for _, client, _ in world.ended)


def test_the_oldest_request_of_the_client_that_has_most_ends(held: contextlib.ExitStack) -> None:
    world = World(held, each=10)
    for client in ("a", "b", "b", "b", "c", "c", "c", "c", "b", "b"):
        assert world.begin("apps", client)

    assert world.begin("apps", "a") and world.ended == [("apps", "b", 0)]
    assert not world.begin("apps", "c"), "it has as many as others"


def test_clients_with_about_as_many_requests_end_none_of_each_other(held: contextlib.ExitStack) -> None:
    world = World(held, each=3)
    assert [world.begin("apps", client) for client in ("a", "b", "c", "d", "a")] == [True, True, True, False, False]
    assert world.ended == []


def test_namespaces_that_hold_all_places_leave_some_to_others(held: contextlib.ExitStack) -> None:
    world = World(held, connections=400, each=300, client=100)
    for namespace in ("a", "b", "c"):
        for number in range(4):
            world.fill(namespace, f"192.0.2.{number}")
    world.ended.clear()

    assert world.fill("late", "198.51.100.1") >= 49
    assert all(namespace != "late" for namespace, _, _ in world.ended)


def test_places_are_free_again_when_requests_have_ended() -> None:
    places = Places(BACKENDS)
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            world = World(stack)
            world.places = places
            assert world.fill("apps", "192.0.2.1") == BACKENDS.client
