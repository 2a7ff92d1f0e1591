"""Owners of the hosts of Ingresses: the first namespace that names one, until some time after it no longer does."""

from __future__ import annotations

import pytest

from control.controllers.gateway import host_claims
from control.controllers.gateway.host_claims import KEPT_SECONDS, Claims, claimed
from kube.gateway.ingress_hosts import MOST_BYTES, MOST_HOSTS
from tests.support import cost
from tests.support.gateway_results import result

Ingress = tuple[str, tuple[str, ...]]


def claim(before: Claims, *named: Ingress, now: float = 0.0, wildcards_exclusive: bool = True) -> Claims:
    return result(claimed(before, named, now, wildcards_exclusive=wildcards_exclusive))


def test_an_older_ingress_that_names_a_host_later_does_not_take_it() -> None:
    first = claim(Claims(), ("evil", ("evil.com",)), ("victim", ("shop.com",)))
    later = claim(first, ("evil", ("evil.com", "shop.com", "*.com")), ("victim", ("shop.com",)))

    assert first.owners == {"evil.com": "evil", "shop.com": "victim"}
    assert later.owners == {**first.owners, "*.com": "evil"}


def test_of_new_ingresses_that_name_a_host_together_the_older_one_gets_it() -> None:
    assert claim(Claims(), ("b", ("a.com",)), ("a", ("a.com",))).owners == {"a.com": "b"}


def test_a_host_stays_while_any_ingress_of_its_namespace_names_it() -> None:
    first = claim(Claims(), ("a", ("a.com",)), ("a", ("a.com", "b.com")), ("b", ("a.com",)))
    later = claim(first, ("b", ("a.com",)), ("a", ("a.com",)), now=KEPT_SECONDS * 2)

    assert later.owners["a.com"] == "a" and later.until == {"b.com": KEPT_SECONDS * 3}


def test_a_host_that_is_not_named_any_more_is_kept_for_some_time_and_goes_to_who_waits_for_it() -> None:
    owned = claim(Claims(), ("a", ("a.com",)), ("b", ("a.com",)))
    released = claim(owned, ("b", ("a.com",)), now=10.0)
    still = claim(released, ("b", ("a.com",)), now=9.0 + KEPT_SECONDS)
    gone = claim(still, ("b", ("a.com",)), now=10.0 + KEPT_SECONDS)

    assert [each.owners for each in (released, still, gone)] == [{"a.com": "a"}, {"a.com": "a"}, {"a.com": "b"}]
    assert still.until == released.until == {"a.com": 10.0 + KEPT_SECONDS} and not gone.until
    assert gone.texts == {"b": "a.com"}


def test_a_host_that_is_named_again_in_time_is_not_given_up() -> None:
    released = claim(claim(Claims(), ("a", ("a.com",))), ("b", ("a.com",)), now=1.0)
    again = claim(released, ("b", ("a.com",)), ("a", ("a.com",)), now=2.0)

    assert again.owners == {"a.com": "a"} and not again.until


def test_a_name_of_another_namespaces_wildcard_is_refused_but_not_one_that_was_owned_before() -> None:
    first = claim(Claims(), ("a", ("old.a.com",)))
    wild = claim(first, ("b", ("*.a.com",)), ("a", ("old.a.com",)))
    later = claim(wild, ("a", ("old.a.com", "new.a.com", "x.new.a.com")), ("b", ("*.a.com", "own.a.com")))

    assert later.owners == {"old.a.com": "a", "*.a.com": "b", "x.new.a.com": "a", "own.a.com": "b"}


def test_what_an_older_version_served_by_age_in_another_namespaces_wildcard_is_taken_over() -> None:
    found = claim(Claims(), ("b", ("*.a.com",)), ("a", ("x.a.com",)), wildcards_exclusive=False)

    assert found.owners == {"*.a.com": "b", "x.a.com": "a"}
    assert claim(found, ("b", ("*.a.com",)), ("a", ("x.a.com",))).owners == found.owners


@pytest.mark.parametrize(("hosts", "length"), [(MOST_HOSTS + 10, 10), (2000, 253)])
def test_hosts_of_a_namespace_beyond_the_limit_are_not_claimed_and_harm_no_other(hosts: int, length: int) -> None:
    many = tuple(f"h{number}.".ljust(length, "x") for number in range(hosts))
    found = claim(Claims(), ("a", many), ("b", ("b.com",)))

    owned = [host for host, namespace in found.owners.items() if namespace == "a"]
    assert owned == list(many[: min(MOST_HOSTS, MOST_BYTES // (length + 1))])
    assert found.owners["b.com"] == "b" and len(found.texts["a"]) <= MOST_BYTES


def test_hosts_that_are_kept_unnamed_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_claims, "MOST_HOSTS", 2)
    first = claim(claim(Claims(), ("a", ("a.com", "b.com"))), ("a", ("b.com",)), now=1.0)
    assert set(first.owners) == {"a.com", "b.com"}
    found = claim(first, ("a", ("b.com", "c.com", "d.com")), now=2.0)

    assert set(found.owners) == {"b.com", "c.com"} and not found.until and found.texts == {"a": "b.com\nc.com"}


@pytest.mark.parametrize(("given_up", "wanted"), [("a.com", "a.com"), ("*.a.com", "x.a.com")])
def test_a_host_that_makes_room_goes_to_the_oldest_ingress_that_waits_with_the_next_computation(
    monkeypatch: pytest.MonkeyPatch, given_up: str, wanted: str
) -> None:
    monkeypatch.setattr(host_claims, "MOST_HOSTS", 1)
    owned = claim(Claims(), ("owner", (given_up,)))
    named = ("older", (wanted,)), ("owner", ("other.com",)), ("younger", (wanted,))
    found = claim(owned, *named, now=1.0)
    assert found.owners == {"other.com": "owner"} and found.incomplete
    later = claim(found, *named, now=1.0)
    assert later.owners == {"other.com": "owner", wanted: "older"} and not later.incomplete


def test_the_steps_of_claims_are_short() -> None:
    hosts = tuple(f"h{number}.com" for number in range(1024))
    named = tuple((f"n{number}", hosts) for number in range(16))
    lines = []
    steps = claimed(claim(Claims(), *named), (), 1.0, wildcards_exclusive=True)
    done = False
    while not done:
        with cost.Lines() as counted:
            done = next(steps, None) is None
        lines.append(counted.count)
    assert max(lines) < 30 * len(hosts)
