"""ReferenceGrants are read once for many references, and again when they change."""

from __future__ import annotations

import pytest

from kube.gateway import grants
from kube.gateway.grants import Grants
from kube.gateway.objects import ReferenceGrant
from tests.support.gateways import grant


class Found:
    """Grants of a namespace that counts how often they are read."""

    def __init__(self, *given: ReferenceGrant) -> None:
        self.given, self.read = list(given), 0

    def __call__(self, namespace: str) -> list[ReferenceGrant]:
        self.read += 1
        return [each for each in self.given if each.metadata.namespace == namespace]


def route_may(made: Grants, name: str, namespace: str = "infra", target: str = "apps") -> bool:
    return made.permitted("HTTPRoute", namespace, "Service", target, name)


def test_the_grants_of_a_namespace_are_read_once_for_all_references_of_another() -> None:
    found = Found(grant("HTTPRoute", "infra", "Service", "apps", "a"), grant("HTTPRoute", "infra", "Secret", "apps"))
    made = Grants(found)
    assert [route_may(made, name) for name in "abcd"] == [True, False, False, False] and found.read == 1
    assert not route_may(made, "a", "other") and found.read == 2
    assert route_may(made, "a", "apps") and found.read == 2


def test_grants_that_have_changed_are_read_again() -> None:
    found = Found(grant("HTTPRoute", "infra", "Service", "apps", "a"))
    made = Grants(found)
    assert route_may(made, "a") and not route_may(made, "b")
    found.given = [grant("HTTPRoute", "infra", "Service", "apps", "b")]
    made.forget("other")
    assert route_may(made, "a")
    made.forget("apps")
    assert route_may(made, "b") and not route_may(made, "a")


def test_few_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MOST_NAMES", 10)
    found = Found(*(grant("HTTPRoute", "infra", "Service", f"n{number}", "a") for number in range(100)))
    made = Grants(found)
    for _ in range(2):
        assert all(route_may(made, "a", target=f"n{number}") for number in range(100))
    assert sum(map(len, made._known.values())) <= 10
    for number in range(100):
        made.forget(f"n{number}")
    assert made._names == 0 and not made._known
