"""Rules of the guard of the cluster's DNS addresses."""

from netproxy.podnet import dns_guard


def test_packets_of_other_devices_are_dropped_in_both_families() -> None:
    text = dns_guard.body(("10.96.0.10", "fd00:96::a"), "cni7")
    assert 'iifname != { "cni7", "lo" } ip daddr 10.96.0.10 ct state != established drop' in text
    assert 'iifname != { "cni7", "lo" } ip6 daddr fd00:96::a ct state != established drop' in text
