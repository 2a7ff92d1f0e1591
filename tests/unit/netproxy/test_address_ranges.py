"""Address ranges of policies less their exceptions, and that nothing but addresses comes out."""

import ipaddress
import random

import pytest

from netproxy.address_ranges import allowed
from netproxy.nft.listing import parse as parse_listing


@pytest.mark.parametrize(
    ("blocks", "left"),
    [
        ([("10.0.0.0/8", [])], ("10.0.0.0/8",)),
        ([("10.0.0.5/8", ["10.0.0.0/9"])], ("10.128.0.0/9",)),
        ([("10.0.0.7/32", [])], ("10.0.0.7",)),
        ([("010.0.0.0/08", ["::ffff:10.0.0.0/105"])], ("10.128.0.0/9",)),
        ([("0.0.0.0/0", ["10.0.0.0/8"])], ("0.0.0.0-9.255.255.255", "11.0.0.0-255.255.255.255")),
        ([("0.0.0.0/0", ["10.0.0.0/8"]), ("10.0.0.0/8", [])], ("0.0.0.0/0",)),
        ([("10.0.0.0/24", ["10.0.0.0/25", "10.0.0.128/25"])], ()),
        ([("10.0.0.0/24", ["10.0.0.0/24"])], ()),
        ([("10.0.0.0/24", ["10.0.0.0/23", "11.0.0.0/24", "9.0.0.0/24", "fd00::/8"])], ()),
        ([("10.0.0.0/24", ["11.0.0.0/24", "9.0.0.0/24", "fd00::/8"])], ("10.0.0.0/24",)),
        ([("::/0", ["::a00:0/104"])], ("::-::9.255.255.255", "::11.0.0.0-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
    ],
)
def test_exceptions_leave_ranges(blocks: list[tuple[str, list[str]]], left: tuple[str, ...]) -> None:
    assert allowed(blocks) == left


@pytest.mark.parametrize(
    "text", ["fd00::%x } ; flush ruleset ; # /64", "fe80::%eth0/64", "", "10.0.0.0/33", "0.0.0.0/0 }"]
)
def test_a_block_that_cannot_be_read_allows_nothing_and_leaves_the_others(text: str) -> None:
    assert allowed([(text, []), ("10.0.0.0/8", [])]) == ("10.0.0.0/8",)
    assert allowed([("fd00::/8", [text]), ("10.0.0.0/8", [])]) == ("10.0.0.0/8",)


@pytest.mark.parametrize("seed", range(20))
def test_an_address_is_allowed_if_any_block_has_it_and_does_not_except_it(seed: int) -> None:
    chance = random.Random(seed)

    def some(shortest: int) -> ipaddress.IPv4Network:
        return ipaddress.ip_network((chance.randrange(256), chance.randrange(shortest, 33)), strict=False)  # type: ignore[return-value]

    blocks = [(some(24), [some(26) for _ in range(chance.randrange(6))]) for _ in range(chance.randrange(1, 4))]
    ranges = [each.partition("-") for each in allowed([(str(cidr), list(map(str, holes))) for cidr, holes in blocks])]
    got: list[int] = []
    for first, dash, last in ranges:
        bounds = (first, last) if dash else (ipaddress.ip_network(first)[0], ipaddress.ip_network(first)[-1])
        got += range(int(ipaddress.ip_address(bounds[0])), int(ipaddress.ip_address(bounds[1])) + 1)
    wanted = [
        number
        for number in range(256)
        if any(
            ipaddress.IPv4Address(number) in cidr and not any(ipaddress.IPv4Address(number) in hole for hole in holes)
            for cidr, holes in blocks
        )
    ]
    assert got == wanted


@pytest.mark.parametrize(("start", "step"), [("0.0.0.0/0", 1 << 12), ("::/0", 1 << 70)])
def test_each_exception_costs_one_range(start: str, step: int) -> None:
    whole = ipaddress.ip_network(start)
    address = type(whole.network_address)
    holes = [f"{address(step * number)}/{whole.max_prefixlen}" for number in range(1, 2001)]
    assert len(allowed([(start, holes)])) == 2001


def test_ranges_read_from_the_kernel_are_written_as_ours_are() -> None:
    blocks = [("0.0.0.0/0", ["10.0.0.0/8", "11.0.0.1/32"]), ("10.1.0.0/16", []), ("10.9.9.9/32", [])]
    elem = [
        {"range": ["0.0.0.0", "9.255.255.255"]},
        {"prefix": {"addr": "10.1.0.0", "len": 16}},
        "10.9.9.9",
        "11.0.0.0",
        {"range": ["11.0.0.2", "255.255.255.255"]},
    ]
    listing = {"nftables": [{"set": {"name": "blocks", "elem": elem}}]}
    assert tuple(key for _, key in parse_listing(listing).elements) == allowed(blocks)
