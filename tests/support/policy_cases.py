"""Cases of network policies: policies with packets that pass and packets that do not."""

from typing import Any

from kube.api import networking_v1
from tests.support.policies import policy
from tests.support.policy_tables import (
    DB,
    EVERYBODY,
    FAR_OTHER,
    FAR_WEB,
    GROUP,
    OTHER,
    WEB,
    WEB_ONLY,
    WORLD,
)

Packet = tuple[Any, ...]
CASES: list[tuple[str, list[networking_v1.NetworkPolicy], list[Packet], list[Packet]]] = [
    (
        "an empty ingress list lets nobody in, and leaves what goes out alone",
        [policy("deny")],
        [(WEB, WORLD, 443), (OTHER, FAR_OTHER, 80), (WORLD, OTHER, 80), (WEB, WEB, 80)],
        [(DB, WEB, 80), (WORLD, WEB, 80), (OTHER, DB, 5432), (WORLD, DB, 0, "icmp")],
    ),
    (
        "an empty egress list lets nothing out, and leaves what comes in alone",
        [policy("deny", policyTypes=["Egress"])],
        [(WORLD, WEB, 80), (OTHER, WEB, 80), (WEB, WEB, 80)],
        [(WEB, WORLD, 443), (WEB, DB, 5432), (DB, OTHER, 53, "udp")],
    ),
    (
        "both types deny both ways",
        [policy("deny", policyTypes=["Ingress", "Egress"])],
        [(OTHER, WORLD, 80)],
        [(WEB, WORLD, 443), (WORLD, WEB, 80), (WEB, DB, 5432)],
    ),
    (
        "without policyTypes egress rules make a policy of both types",
        [policy("out", egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])],
        [(WEB, WORLD, 53, "udp")],
        [(WEB, WORLD, 53), (WORLD, WEB, 80)],
    ),
    (
        "an empty rule allows everything, of every protocol",
        [policy("allow", ingress=[{}])],
        [(WORLD, WEB, 80), (WORLD, WEB, 0, "icmp"), (OTHER, DB, 1, "sctp")],
        [],
    ),
    (
        "what belongs to an accepted connection passes both ways",
        [policy("deny", policyTypes=["Ingress", "Egress"])],
        [(WEB, WORLD, 443, "tcp", "established"), (WORLD, WEB, 80, "tcp", "related")],
        [(WORLD, WEB, 80, "tcp", "invalid")],
    ),
    (
        "a pod selector alone speaks of the policy's own namespace",
        [policy("web", podSelector={"matchLabels": {"app": "db"}}, ingress=[{"from": [WEB_ONLY]}])],
        [(WEB, DB, 5432), (FAR_WEB, DB, 5432), (OTHER, WEB, 80)],
        [(OTHER, DB, 5432), (WORLD, DB, 5432)],
    ),
    (
        "a namespace selector speaks of all pods of the namespaces it matches",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}])],
        [(OTHER, DB, 5432), (FAR_OTHER, WEB, 80)],
        [(WEB, DB, 5432), (WORLD, DB, 80)],
    ),
    (
        "both selectors in one peer must both hold",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}, **WEB_ONLY}]}])],
        [(OTHER, DB, 5432)],
        [(FAR_OTHER, DB, 5432), (WEB, DB, 5432)],
    ),
    (
        "selectors in two peers: either will do",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}, WEB_ONLY]}])],
        [(OTHER, DB, 5432), (FAR_OTHER, DB, 5432), (WEB, DB, 5432), (FAR_WEB, DB, 5432)],
        [(DB, WEB, 1), (WORLD, DB, 1)],
    ),
    (
        "an empty namespace selector is every namespace, an expression is evaluated",
        [
            policy(
                "any",
                podSelector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
                ingress=[{"from": [{"namespaceSelector": {}}]}],
            )
        ],
        [(OTHER, WEB, 80), (FAR_WEB, WEB, 80), (WORLD, DB, 80)],
        [(WORLD, WEB, 80)],
    ),
    (
        "an address range less its exceptions",
        [
            policy(
                "range",
                ingress=[
                    {
                        "from": [
                            {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.4/30", "203.0.113.128/25"]}}
                        ]
                    }
                ],
            )
        ],
        [("203.0.113.1", WEB, 80), ("203.0.113.8", WEB, 80), ("203.0.113.127", WEB, 80)],
        [("203.0.113.5", WEB, 80), ("203.0.113.200", WEB, 80), ("198.51.100.1", WEB, 80), (DB, WEB, 80)],
    ),
    (
        "everywhere but a range, one single address beside it",
        [
            policy(
                "range",
                policyTypes=["Egress"],
                egress=[
                    {
                        "to": [
                            {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
                            {"ipBlock": {"cidr": "10.244.1.4/32"}},
                        ]
                    }
                ],
            )
        ],
        [(WEB, WORLD, 443), (WEB, OTHER, 1)],
        [(WEB, DB, 5432)],
    ),
    (
        "the whole address space",
        [policy("range", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 80}]}])],
        [(WORLD, WEB, 80), (DB, WEB, 80)],
        [(WORLD, WEB, 81)],
    ),
    (
        "ports, ranges that overlap, protocols without a port, SCTP",
        [
            policy(
                "ports",
                ingress=[
                    {
                        "ports": [
                            {"port": 80},
                            {"port": 8000, "endPort": 8080},
                            {"port": 8050, "endPort": 8100, "protocol": "TCP"},
                            {"protocol": "UDP"},
                            {"port": 36412, "protocol": "SCTP"},
                        ]
                    }
                ],
            )
        ],
        [(DB, WEB, 80), (DB, WEB, 8000), (DB, WEB, 8100), (DB, WEB, 5, "udp"), (DB, WEB, 36412, "sctp")],
        [(DB, WEB, 81), (DB, WEB, 8101), (DB, WEB, 80, "sctp"), (DB, WEB, 0, "icmp")],
    ),
    (
        "a named port is the receiving pod's own",
        [
            policy(
                "named",
                ingress=[
                    {
                        "ports": [
                            {"port": "http"},
                            {"port": "metrics", "protocol": "UDP"},
                            {"port": "sql", "protocol": "UDP"},
                        ]
                    }
                ],
            )
        ],
        [(DB, WEB, 8080), (DB, WEB, 9100, "udp")],
        [(DB, WEB, 8081), (DB, WEB, 9100), (WEB, DB, 8080), (WEB, DB, 5432), (WEB, DB, 5432, "udp")],
    ),
    (
        "a named port of an egress rule is that of each peer",
        [
            policy(
                "named",
                policyTypes=["Egress"],
                egress=[{"to": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}], "ports": [{"port": "sql"}]}],
            )
        ],
        [(WEB, OTHER, 6543), (WEB, FAR_OTHER, 7654)],
        [(WEB, OTHER, 7654), (WEB, DB, 5432), (WEB, FAR_OTHER, 6543)],
    ),
    (
        "a named port of an egress rule to anywhere is that of any pod",
        [policy("named", policyTypes=["Egress"], egress=[{"ports": [{"port": "sql"}]}])],
        [(WEB, OTHER, 6543), (WEB, FAR_OTHER, 7654), (WEB, DB, 5432)],
        [(WEB, WORLD, 5432), (WEB, FAR_OTHER, 6543)],
    ),
    (
        "policies that select the same pod add up",
        [
            policy("deny"),
            policy("http", ingress=[{"ports": [{"port": 80}]}]),
            policy("db", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}], **WEB_ONLY),
        ],
        [(WORLD, WEB, 80), (WORLD, DB, 80), (DB, WEB, 5)],
        [(WORLD, WEB, 81), (WEB, DB, 5)],
    ),
    (
        "leaving the sender is not yet entering the receiver",
        [
            policy("out", policyTypes=["Egress"], egress=[{}]),
            policy("in", "other", ingress=[{"ports": [{"port": 80}]}]),
        ],
        [(WEB, OTHER, 80), (WEB, WORLD, 1)],
        [(WEB, OTHER, 81)],
    ),
    (
        "what reaches every pod at once is dropped where not everybody may send to every pod",
        [policy("web", ingress=[{"ports": [{"port": 80, "protocol": "UDP"}]}], **WEB_ONLY)],
        [(OTHER, WEB, 80, "udp"), (OTHER, DB, 81, "udp"), (OTHER, WORLD, 80, "udp")],
        [(OTHER, EVERYBODY, 81, "udp"), (OTHER, GROUP, 81, "udp"), (DB, GROUP, 0, "icmp")],
    ),
    (
        "where no pod is isolated for what comes in, it passes",
        [policy("out", policyTypes=["Egress"], **WEB_ONLY)],
        [(OTHER, EVERYBODY, 81, "udp"), (OTHER, GROUP, 81, "udp")],
        [(WEB, EVERYBODY, 81, "udp"), (WEB, GROUP, 81, "udp")],
    ),
]
