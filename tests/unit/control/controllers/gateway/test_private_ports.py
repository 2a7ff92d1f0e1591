"""Ports of the nodes that their gateways listen on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.controllers.gateway.private_ports import FIRST, LAST, NoPort, PrivatePorts


def test_a_port_is_kept_while_it_is_used_and_given_again_late() -> None:
    ports = PrivatePorts(100, 103)
    assert dict(ports.assign("a", [80, 443])) == {80: 100, 443: 101}
    assert dict(ports.assign("a", [443])) == {80: 100, 443: 101}
    ports.release("a", [443])
    assert dict(ports.assign("b", [80])) == {80: 102}
    assert dict(ports.assign("c", [1, 2])) == {1: 103, 2: 100}
    ports.release("b")
    assert dict(ports.assign("d", [80])) == {80: 102}


def test_nothing_is_given_if_too_few_ports_are_free() -> None:
    ports = PrivatePorts(100, 101)
    ports.assign("a", [80])
    with pytest.raises(NoPort, match="all 2 ports"):
        ports.assign("b", [80, 443])
    assert not ports.of("b") and dict(ports.assign("b", [80])) == {80: 101}


def test_recorded_ports_are_restored_but_for_those_of_others_and_out_of_the_range() -> None:
    ports = PrivatePorts()
    ports.restore("a", [(80, FIRST + 5), (443, LAST + 1), (8080, 80)])
    ports.restore("b", [(80, FIRST + 5), (443, FIRST + 7)])
    assert dict(ports.of("a")) == {80: FIRST + 5} and dict(ports.of("b")) == {443: FIRST + 7}
    assert dict(ports.assign("c", [80])) == {80: FIRST + 8}


STEP = st.one_of(
    st.tuples(st.just("assign"), st.sampled_from("abc"), st.sets(st.integers(1, 5))),
    st.tuples(st.just("release"), st.sampled_from("abc"), st.sets(st.integers(1, 5))),
    st.tuples(st.just("restore"), st.sampled_from("abc"), st.sets(st.integers(1, 5))),
)


@given(st.lists(STEP, max_size=30))
def test_no_port_belongs_to_two_gateways(steps: list[tuple[str, str, set[int]]]) -> None:
    ports = PrivatePorts(10, 17)
    for step, uid, wanted in steps:
        before: Mapping[int, int] = dict(ports.of(uid))
        if step == "assign":
            try:
                assert ports.assign(uid, wanted).keys() >= wanted
            except NoPort:
                assert dict(ports.of(uid)) == before
        elif step == "release":
            ports.release(uid, wanted)
            assert ports.of(uid).keys() == before.keys() & wanted
        else:
            ports.restore(uid, [(each, 10 + each) for each in wanted])
        assert all(ports.of(uid).get(port, number) == number for port, number in before.items())
        given_ = [number for each in "abc" for number in ports.of(each).values()]
        assert len(given_) == len(set(given_)) and all(10 <= number <= 17 for number in given_)
