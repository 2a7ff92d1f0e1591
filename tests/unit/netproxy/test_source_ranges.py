"""Source ranges of load balancers in the forms of iptables and nft."""

import pytest

from netproxy.address_ranges import mask
from netproxy.source_ranges import SourceRanges


def test_ranges_are_canonical_for_iptables_and_addresses_by_prefix_length_for_nft() -> None:
    ranges = SourceRanges(("10.1.2.3/8", "10.0.0.0/9", "192.0.2.1/32", "10.0.0.0/8", "0.0.0.0/33"))
    assert ranges.canonical == ("10.0.0.0/8", "10.0.0.0/9", "192.0.2.1/32", "10.0.0.0/8")
    assert ranges.prefixes() == {32: ("192.0.2.1",), 9: ("10.0.0.0",), 8: ("10.0.0.0",)}
    assert ranges.prefixes(("192.0.2.0",))[32] == ("192.0.2.1", "192.0.2.0")
    assert ranges.prefixes() == {32: ("192.0.2.1",), 9: ("10.0.0.0",), 8: ("10.0.0.0",)}
    assert SourceRanges.of(ranges) is ranges


@pytest.mark.parametrize(
    ("family", "length", "expected"),
    [(4, 24, "255.255.255.0"), (4, 1, "128.0.0.0"), (6, 33, "ffff:ffff:8000::"), (6, 127, "ffff:" * 7 + "fffe")],
)
def test_masks(family: int, length: int, expected: str) -> None:
    assert mask(family, length) == expected


def test_ranges_that_have_an_address_of_the_node() -> None:
    ranges = SourceRanges(("10.0.0.0/8", "fd00::/8"))
    assert [ranges.contain_any(each) for each in (("11.0.0.1",), ("11.0.0.1", "10.9.9.9"), ("fd00::1",), ())] == [
        False,
        True,
        True,
        False,
    ]
