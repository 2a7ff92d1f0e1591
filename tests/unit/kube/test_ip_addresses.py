"""IP addresses and CIDRs as upstream reads stored ones."""

from __future__ import annotations

import pytest

from kube.ip_addresses import canonical, family, lenient, lenient_cidr, network


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.00.0001", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("::ffff:010.0.0.1", "10.0.0.1"),
        ("2001:0DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("00001::", "1::"),
        ("::", "::"),
        ("0::0", "::"),
        ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
    ],
)
def test_leading_zeros_have_no_meaning(text: str, plain: str) -> None:
    assert str(lenient(text)) == canonical(text) == plain
    assert family(text) == ("IPv6" if ":" in plain else "IPv4")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.0x1",
        "10.0.0.1 ",
        "fe80::1%eth0",
        "1:::2",
        "12345::",
        "10.0.0.1/8",
        "\u0661.0.0.1",
        "1::2:3:4:5:6:7:8",
        "0" * 100_000,
        f"{'0' * 60}10.0.0.1",
        ":" * 100_000,
        "." * 100_000,
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        lenient(text)
    assert family(text) == "" and canonical(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1/08", "10.0.0.0/8"),
        ("10.0.0.1/" + "0" * 10_000, "0.0.0.0/0"),
        ("::ffff:10.0.0.1/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.1/90", "::ffc0:0:0/90"),
        ("FD00::1/64", "fd00::/64"),
    ],
)
def test_a_range_is_read_without_the_bits_behind_its_prefix(text: str, shown: str) -> None:
    assert str(lenient_cidr(text).network) == str(network(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "fd00::/129",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "fd00::%x/64",
        "/8",
        "10.0.0.0/" + "9" * 10_000,
    ],
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError):
        lenient_cidr(text)
