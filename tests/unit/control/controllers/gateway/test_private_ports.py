"""Ports of the nodes that their gateways listen on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.controllers.gateway.private_ports import FIRST, LAST, LEAST, NoPort, PrivatePorts
from kube.gateway.names import INGRESS


def test_a_port_is_kept_while_it_is_used_and_given_again_late() -> None:
    ports = PrivatePorts(100, 105)
    assert dict(ports.assign(INGRESS, [80, 443], "")) == {80: 100, 443: 101}
    assert dict(ports.assign("a", [80, 443], "a")) == {80: 102, 443: 103}
    assert dict(ports.assign("a", [443], "a")) == {80: 102, 443: 103}
    ports.release("a", [443])
    assert dict(ports.assign("b", [80], "b")) == {80: 104}
    assert dict(ports.assign("c", [1, 2], "c")) == {1: 105, 2: 102}
    ports.release("b")
    assert dict(ports.assign("d", [80], "d")) == {80: 104}


def test_nothing_is_given_if_too_few_ports_are_free_and_ingresses_still_get_theirs() -> None:
    ports = PrivatePorts(100, 103)
    ports.assign("a", [80], "a")
    with pytest.raises(NoPort, match="all 4 ports"):
        ports.assign("b", [80, 443], "b")
    assert not ports.of("b") and dict(ports.assign("b", [80], "b")) == {80: 101}
    assert dict(ports.assign(INGRESS, [80, 443], "")) == {80: 102, 443: 103}


def test_some_namespaces_leave_ports_for_others_however_many_gateways_they_have() -> None:
    ports, namespaces = PrivatePorts(), 100
    for number in range(namespaces):
        for gateway in range(64):
            with suppress(NoPort):
                ports.assign(f"{number}-{gateway}", [gateway], f"n{number}")
    counts = [sum(len(ports.of(f"{number}-{gateway}")) for gateway in range(64)) for number in range(namespaces)]
    assert counts[:4] == [64, 64, 64, 63] and min(counts) == LEAST
    assert dict(ports.assign("late", [80, 443], "late"))
    with pytest.raises(NoPort, match="a namespace may have 4, this one needs 5"):
        ports.assign("late", [1, 2, 3], "late")
    assert len(ports.of("late")) == 2


def test_restored_ports_count_for_their_namespace() -> None:
    ports = PrivatePorts(100, 120)
    ports.restore("a", [(number, 100 + number) for number in range(4)], "n")
    with pytest.raises(NoPort, match="this one needs 5"):
        ports.assign("b", [80], "n")
    ports.release("a", range(3))
    assert dict(ports.assign("b", [80], "n"))


def test_recorded_ports_are_restored_but_for_those_of_others_and_out_of_the_range() -> None:
    ports = PrivatePorts()
    ports.restore("a", [(80, FIRST + 5), (443, LAST + 1), (8080, 80)], "a")
    ports.restore("b", [(80, FIRST + 5), (443, FIRST + 7)], "b")
    assert dict(ports.of("a")) == {80: FIRST + 5} and dict(ports.of("b")) == {443: FIRST + 7}
    assert dict(ports.assign("c", [80], "c")) == {80: FIRST + 8}


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
                assert ports.assign(uid, wanted, uid).keys() >= wanted
            except NoPort:
                assert dict(ports.of(uid)) == before
        elif step == "release":
            ports.release(uid, wanted)
            assert ports.of(uid).keys() == before.keys() & wanted
        else:
            ports.restore(uid, [(each, 10 + each) for each in wanted], uid)
        assert all(ports.of(uid).get(port, number) == number for port, number in before.items())
        given_ = [number for each in "abc" for number in ports.of(each).values()]
        assert len(given_) == len(set(given_)) and all(10 <= number <= 17 for number in given_)
