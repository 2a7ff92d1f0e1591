"""Addresses of endpoints that would lead to the node itself or to its link are never endpoints, however they are written."""

from __future__ import annotations

import pytest

from netproxy.endpoints import usable_address
from netproxy.families import family_of
from netproxy.policy.pod_facts import facts_of
from tests.support.policies import pod

SPECIAL = ("127.0.0.1", "127.8.9.1", "169.254.169.254", "224.0.0.1", "0.0.0.0")


@pytest.mark.parametrize(
    "text", [*SPECIAL, "::1", "::", "fe80::1", "ff02::1", "fe80::1%eth0", "fd00::1%x; y", "x", "", "1.2.3"]
)
def test_special_addresses_are_not_used(text: str) -> None:
    assert usable_address(text) == ""


@pytest.mark.parametrize("text", SPECIAL)
def test_special_addresses_inside_ipv6_are_not_used(text: str) -> None:
    assert usable_address(f"::ffff:{text}") == usable_address(f"0:0:0:0:0:FFFF:{text}") == ""


@pytest.mark.parametrize(("text", "plain"), [("10.0.0.1", "10.0.0.1"), ("FD00:0::1", "fd00::1")])
def test_others_are_used_in_their_plain_form(text: str, plain: str) -> None:
    assert usable_address(text) == plain


def test_addresses_of_pods_that_cannot_be_read_are_not_in_policies() -> None:
    facts = facts_of(pod("web", "FD00:0::1", "fe80::1%x } ; flush ruleset", "1.2.3", "", "10.0.0.1"), "node-1")
    assert facts is not None and facts.ips == ("fd00::1", "10.0.0.1")


@pytest.mark.parametrize("text", ["fd00::1%eth0", "fd00::%x; y/64", "fd00::%eth0/64"])
def test_what_names_a_link_is_neither_an_address_nor_a_range(text: str) -> None:
    assert family_of(text) == 0
