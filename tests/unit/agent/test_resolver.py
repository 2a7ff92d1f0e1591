"""DNS settings and host names of pods."""

from __future__ import annotations

from typing import Any

import pytest

from agent.podspec import dns, hosts
from tests.unit.agent.pods import pod

# -- names and resolvers ----------------------------------------------------------------------------------------------
HOST = dns.parse("search corp.example lan\nnameserver 192.0.2.53\noptions ndots:1 timeout:2\n")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, dns.Resolver(("10.96.0.10",), ("default.svc.c.l", "svc.c.l", "c.l", "corp.example", "lan"), ("ndots:5",))),
        ({"dnsPolicy": "Default"}, HOST),
        ({"hostNetwork": True}, HOST),
        (
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            dns.Resolver(("10.96.0.10",), ("default.svc.c.l", "svc.c.l", "c.l", "corp.example", "lan"), ("ndots:5",)),
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"], "options": [{"name": "edns0"}]}},
            dns.Resolver(("1.2.3.4",), (), ("edns0",)),
        ),
        (
            {
                "dnsPolicy": "Default",
                "dnsConfig": {"options": [{"name": "ndots", "value": "3"}], "searches": ["lan", "x"]},
            },
            dns.Resolver(("192.0.2.53",), ("corp.example", "lan", "x"), ("ndots:3", "timeout:2")),
        ),
    ],
)
def test_the_resolver_follows_the_policy(spec: dict[str, Any], expected: dns.Resolver) -> None:
    assert dns.for_pod(pod(**spec), HOST, ["10.96.0.10"], "c.l") == expected


def test_without_a_cluster_dns_the_hosts_resolver_is_used() -> None:
    assert dns.for_pod(pod(), HOST, [], "c.l") == HOST
    lacks = 'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy.'
    reported = f'pod: "web_default(uid-1)". {lacks} Falling back to "Default" policy.'
    assert dns.warnings(pod(), HOST, [], "c.l") == [("MissingClusterDNS", reported)]
    assert dns.warnings(pod(hostNetwork=True), HOST, [], "c.l") == []


def test_dns_settings_over_the_limits_are_reported() -> None:
    searches = [f"d{n}" for n in range(40)]
    servers = ["1.0.0.1", "1.0.0.1", "1.0.0.2", "1.0.0.3"]
    given = pod(dnsPolicy="None", dnsConfig={"nameservers": servers})
    assert dns.warnings(given, HOST, [], "c.l") == []  # what is named twice counts once
    given = pod(dnsPolicy="None", dnsConfig={"nameservers": [*servers, "1.0.0.4"], "searches": searches})
    limits = "limits were exceeded, some {} have been omitted, the applied {} line is: {}"
    assert dns.warnings(given, HOST, [], "c.l") == [
        ("DNSConfigForming", "Nameserver " + limits.format("nameservers", "nameserver", "1.0.0.1 1.0.0.2 1.0.0.3")),
        ("DNSConfigForming", "Search Line " + limits.format("search paths", "search", " ".join(searches[:32]))),
    ]


def test_host_names_are_cut_to_63_characters_without_a_dash_at_the_end() -> None:
    long = pod(metadata={"name": "a" * 62 + "-b"})
    assert hosts.hostname_and_domain(long, "c.l") == ("a" * 62, "")
    full = pod(hostname="h", subdomain="s", setHostnameAsFQDN=True)
    assert hosts.sandbox_hostname(full, "c.l") == "h.s.default.svc.c.l"
    full = pod(hostname="h", subdomain="s" * 60, setHostnameAsFQDN=True)
    with pytest.raises(
        hosts.HostnameError, match=r"is too long \(64 characters is the max, 78 characters requested\)$"
    ):
        hosts.sandbox_hostname(full, "c.l")
