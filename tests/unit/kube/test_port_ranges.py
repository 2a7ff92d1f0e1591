from __future__ import annotations

import pytest

from kube.port_ranges import PortRanges


def test_ports_and_ranges_with_commas_between() -> None:
    found = PortRanges.parse("80, 443,1024-29999")
    assert [port in found for port in (79, 80, 81, 443, 1023, 1024, 29999, 30000)] == [
        False, True, False, True, False, True, True, False,
    ]  # fmt: skip
    assert str(found) == "80, 443,1024-29999"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is neither a port nor a range"),
        ("80,", "'' is neither a port nor a range"),
        ("http", "'http' is neither a port nor a range"),
        ("-80", "'-80' is neither a port nor a range"),
        ("1-2-3", "'1-2-3' is neither a port nor a range"),
        ("٨٠", "'٨٠' is neither a port nor a range"),
        ("0", "'0' is not within 1-65535"),
        ("65536", "'65536' is not within 1-65535"),
        ("90-80", "'90-80' is not within 1-65535, lower port first"),
    ],
)
def test_what_is_no_port_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        PortRanges.parse(text)
