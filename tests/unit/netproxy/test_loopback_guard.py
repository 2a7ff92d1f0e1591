"""Rules that keep pods from the node's loopback addresses."""

from netproxy.podnet import loopback_guard, source_rules, stranger_rules


def test_packets_of_the_bridge_to_loopback_addresses_are_dropped_as_they_came_in() -> None:
    text = loopback_guard.body("cni7")
    assert 'iifname "cni7" ip daddr 127.0.0.0/8 drop' in text and 'iifname "cni7" ip6 daddr ::1 drop' in text
    assert "hook prerouting priority -310" in text


def test_no_port_may_send_to_loopback_addresses() -> None:
    rules = source_rules.CHAINS
    assert rules["sent-by-ipv4"][0] == "ip daddr 127.0.0.0/8 drop"
    assert rules["sent-by-ipv6"][0] == "ip6 daddr ::1 drop"
    strangers = stranger_rules.chains(())
    assert "ip daddr 127.0.0.0/8 drop" in strangers["sent-by-strangers"]
    assert "ip6 daddr ::1 drop" in strangers["sent-by-strangers-ipv6"]
