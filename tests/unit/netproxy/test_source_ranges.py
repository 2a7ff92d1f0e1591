"""Source ranges of load balancers in the forms of iptables and nft."""

from netproxy.source_ranges import SourceRanges


def test_ranges_are_canonical_for_iptables_and_joined_for_nft() -> None:
    ranges = SourceRanges(("10.1.2.3/8", "10.0.0.0/9", "192.0.2.1/32", "0.0.0.0/33"))
    assert ranges == ("10.1.2.3/8", "10.0.0.0/9", "192.0.2.1/32", "0.0.0.0/33")
    assert ranges.canonical == ("10.0.0.0/8", "10.0.0.0/9", "192.0.2.1/32")
    assert ranges.joined() == ("10.0.0.0/8", "192.0.2.1")
    assert ranges.joined(("192.0.2.0",)) == ("10.0.0.0/8", "192.0.2.0/31")
    assert ranges.joined() == ("10.0.0.0/8", "192.0.2.1")
    assert SourceRanges.of(ranges) is ranges


def test_ranges_that_have_an_address_of_the_node() -> None:
    ranges = SourceRanges(("10.0.0.0/8", "fd00::/8"))
    assert [ranges.contain_any(each) for each in (("11.0.0.1",), ("11.0.0.1", "10.9.9.9"), ("fd00::1",), ())] == [
        False,
        True,
        True,
        False,
    ]
