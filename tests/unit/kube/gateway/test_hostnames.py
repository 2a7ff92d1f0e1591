"""Hostnames of listeners and routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.gateway.hostnames import common, intersection, matches, most_specific, specificity

LABEL = st.sampled_from(["a", "b", "shop"])
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PATTERN = st.one_of(st.just(""), NAME, NAME.map(lambda name: f"*.{name}"))


@pytest.mark.parametrize(
    ("pattern", "host", "found"),
    [
        ("", "a.com", True),
        ("a.com", "a.com", True),
        ("a.com", "b.a.com", False),
        ("*.a.com", "a.com", False),
        ("*.a.com", ".a.com", False),
        ("*.a.com", "b.a.com", True),
        ("*.a.com", "c.b.a.com", True),
        ("*.a.com", "ba.com", False),
    ],
)
def test_a_wildcard_stands_for_one_or_more_labels(pattern: str, host: str, found: bool) -> None:
    assert matches(pattern, host) is found


def test_the_wildcard_of_an_ingress_stands_for_one_label() -> None:
    assert matches("*.a.com", "b.a.com", single_label=True)
    assert not matches("*.a.com", "c.b.a.com", single_label=True)


@given(PATTERN, PATTERN, NAME)
def test_an_intersection_has_the_names_of_both(one: str, other: str, host: str) -> None:
    both = intersection(one, other)
    assert both == intersection(other, one)
    wanted = matches(one, host) and matches(other, host)
    assert wanted == (both is not None and matches(both, host))


@given(PATTERN, st.lists(PATTERN.filter(bool), max_size=4), NAME)
def test_a_route_serves_at_a_listener_the_names_of_both(listener: str, hostnames: list[str], host: str) -> None:
    found = common(listener, hostnames)
    wanted = matches(listener, host) and any(matches(each, host) for each in hostnames or [""])
    assert wanted == (found is not None and any(matches(each, host) for each in found or ("",)))


@given(st.lists(PATTERN, max_size=6), NAME)
def test_the_most_specific_hostname_has_the_fewest_names(patterns: list[str], host: str) -> None:
    found = most_specific(patterns, host)
    matching = [each for each in patterns if matches(each, host)]
    assert (found is None) == (not matching)
    for each in matching:
        assert found is not None and intersection(found, each) == found


def test_a_name_without_a_wildcard_is_more_specific_than_a_longer_one_with_it() -> None:
    assert specificity("a.com") > specificity("*.much.longer.com") > specificity("*.com") > specificity("")
