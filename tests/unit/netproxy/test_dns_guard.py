"""Rules of the guard of the cluster's DNS addresses."""

from netproxy.podnet import dns_guard


def test_packets_of_other_devices_are_dropped_in_both_families() -> None:
    text = dns_guard.body(("10.96.0.10", "fd00:96::a"), "cni7")
    assert 'iifname != { "cni7", "lo" } ip daddr 10.96.0.10 ct state != established drop' in text
    assert 'iifname != { "cni7", "lo" } ip6 daddr fd00:96::a ct state != established drop' in text


def test_no_later_rule_translates_what_the_node_answers_itself() -> None:
    text = dns_guard.body(("10.96.0.10", "fd00:96::a"), "cni7")
    for hook in ("prerouting", "output"):
        chain = text[text.index(f"chain {hook} ") :].split("}")[0]
        assert f"type nat hook {hook} priority -101;" in chain
        assert "fib daddr type local ip daddr 10.96.0.10 dnat ip to 10.96.0.10\n" in chain
        assert "fib daddr type local ip6 daddr fd00:96::a dnat ip6 to fd00:96::a\n" in chain
