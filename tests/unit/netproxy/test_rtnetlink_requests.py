"""Requests that are encoded from a template, beside the same ones encoded by pyroute2 alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from netproxy import netlink
from netproxy import rtnetlink_requests as requests

MAC = "0a:58:0a:f4:02:00"
CASES: list[Callable[[int], bytes]] = [
    lambda n: requests.replace_route(f"10.244.{n}.0/24", 7, 87, via=f"192.0.2.{n}"),
    lambda n: requests.replace_route(f"fd00:0:0:{n}::/64", 7, 87, via=f"fd00:0:0:{n}::", onlink=True),
    lambda n: requests.replace_route(f"10.{n}.0.0/16", 7, 87, source=f"192.0.2.{n}", metric=65535),
    lambda n: requests.delete_route(f"10.244.{n}.0/24", f"192.0.2.{n}", 7, 87),
    lambda n: requests.replace_unreachable(f"fd0{n % 10}::/48", 87, 65535),
    lambda n: requests.replace_neighbour(f"10.244.{n}.0", f"0a:58:0a:f4:{n:02x}:00", 9),
    lambda n: requests.replace_neighbour(f"fd00:0:0:{n}::", f"0e:58:0a:f4:{n:02x}:00", 9),
    lambda n: requests.delete_neighbour(f"10.244.{n}.0", 9),
    lambda n: requests.replace_fdb_entry(f"0a:58:0a:f4:{n:02x}:00", f"192.0.2.{n}", 9),
    lambda n: requests.delete_fdb_entry(f"0a:58:0a:f4:{n:02x}:00", f"fd99::{n}", 9),
    lambda n: requests.replace_address(f"10.244.{n}.0", 9, host=True),
    lambda n: requests.delete_address(f"fd00::{n}", 9),
]


@pytest.mark.parametrize("case", CASES)
def test_addresses_are_put_where_pyroute2_has_them(
    case: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from_template = [case(1), case(77)]
    assert from_template[0] != from_template[1] and case(1) == from_template[0]
    whole = requests._encode
    monkeypatch.setattr(requests, "_request", lambda message, *rest, **fields: whole(message(), *rest, **fields))
    assert [case(1), case(77)] == from_template


def test_the_cidr_and_next_hop_of_a_route_are_in_the_request() -> None:
    (message,) = netlink.messages(requests.replace_route("10.244.2.0/24", 7, 87, via="192.0.2.9"))
    assert message.kind == requests.NEW_ROUTE and message.body[1] == 24 and message.body[5] == 87
    assert dict(netlink.attributes(message.body, 12)) == {
        1: bytes([10, 244, 2, 0]),
        4: (7).to_bytes(4, sys.byteorder),
        5: bytes([192, 0, 2, 9]),
    }


@pytest.mark.parametrize("cidr", ["10.244.2.1/24", "nowhere", "10.244.0.0/33"])
def test_what_is_no_network_is_an_error(cidr: str) -> None:
    with pytest.raises(ValueError):
        requests.replace_route(cidr, 7, 87)
