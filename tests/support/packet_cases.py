"""The one table of Services and packets: whence, whither, and where each must end.

It is run against the model, against what each mode makes of it in memory (tests/unit/netproxy/test_packets.py, test_ipvs.py),
in both IP families, and as real packets between namespaces (tests/host/netproxy/test_packet_table.py).
"""

from dataclasses import dataclass, field

import msgspec

from kube.api import core_v1, discovery_v1
from netproxy.endpoints import NodeView
from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.static import StaticSettings
from tests.support.packet_tracer import ACCEPT, DROP, REJECT, Host, Outcome, Packet
from tests.support.services import endpoint, port, service, slice_of

PODS = "10.244.0.0/16"
POD, NODE, WORLD = "10.244.1.9", "192.168.0.1", "203.0.113.50"
ELSEWHERE = "10.244.2.2"
"""A pod of another node."""
HERE, THERE = endpoint("10.244.1.2", node="node-1"), endpoint("10.244.2.2", node="node-2")
HERE_ADDRESS, THERE_ADDRESS = "10.244.1.2:8080", "10.244.2.2:8080"
IP = "10.96.5.1"
NODE_VIEW = NodeView("node-1", "east")


def to(*endpoints: str, snat: bool = False) -> Outcome:
    return Outcome(ACCEPT, frozenset(endpoints), snat)


BOTH, BOTH_SNAT = to(HERE_ADDRESS, THERE_ADDRESS), to(HERE_ADDRESS, THERE_ADDRESS, snat=True)


@dataclass
class Case:
    """A Service with its slices, and packets with where they must end."""

    name: str
    service: core_v1.Service
    slices: list[discovery_v1.EndpointSlice]
    packets: dict[Packet, Outcome]
    host: Host = field(default_factory=Host)


def node_port(**spec: object) -> core_v1.Service:
    return service("web", IP, port("http", 80, node_port=30080), type="NodePort", **spec)


def balanced(**spec: object) -> core_v1.Service:
    return service("web", IP, port("http", 80, node_port=30080), type="LoadBalancer", ingress=("198.51.100.1",), **spec)


DYING = endpoint("10.244.1.2", ready=False, serving=True, terminating=True)
DEAD = endpoint("10.244.1.2", ready=False, serving=False, terminating=True)

CASES = [
    Case(
        "a cluster IP leads to every ready endpoint, masqueraded unless a pod asks",
        service("web", IP),
        [slice_of("web", HERE, THERE)],
        {
            Packet(POD, IP, 80): BOTH,
            Packet(NODE, IP, 80): BOTH_SNAT,
            Packet(WORLD, IP, 80): BOTH_SNAT,
            Packet(POD, IP, 81): Outcome(REJECT),
            Packet(NODE, IP, 81): Outcome(REJECT),
            Packet(POD, IP, 80, "udp"): Outcome(REJECT),
        },
    ),
    Case(
        "what is addressed to no Service passes untouched, unless it is of the service range",
        service("web", IP),
        [slice_of("web", HERE)],
        {
            Packet(POD, "192.0.2.1", 443): Outcome(ACCEPT, frozenset({"192.0.2.1:443"})),
            Packet(NODE, "10.111.0.1", 443): Outcome(REJECT),
            Packet(POD, "10.111.0.1", 53, "udp"): Outcome(REJECT),
        },
    ),
    Case(
        "without endpoints every way in is refused",
        service("web", IP, port("http", 80, node_port=30080), type="NodePort", external_ips=["192.0.2.7"]),
        [],
        {
            Packet(POD, IP, 80): Outcome(REJECT),
            Packet(NODE, IP, 80): Outcome(REJECT),
            Packet(WORLD, NODE, 30080): Outcome(REJECT),
            Packet(WORLD, "192.0.2.7", 80): Outcome(REJECT),
        },
    ),
    Case(
        "endpoints that are not ready count as none",
        service("web", IP),
        [slice_of("web", endpoint("10.244.1.2", ready=False))],
        {Packet(POD, IP, 80): Outcome(REJECT)},
    ),
    Case(
        "with no ready endpoint left, one that serves while it ends is used",
        service("web", IP),
        [slice_of("web", DYING, endpoint("10.244.1.3", ready=False))],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "an ending endpoint is not used beside a ready one",
        service("web", IP),
        [slice_of("web", DYING, THERE)],
        {Packet(POD, IP, 80): to(THERE_ADDRESS)},
    ),
    Case(
        "an endpoint that no longer serves is never used",
        service("web", IP),
        [slice_of("web", DEAD)],
        {Packet(POD, IP, 80): Outcome(REJECT)},
    ),
    Case(
        "the internal policy Local uses this node's endpoints alone",
        service("web", IP, internal_traffic_policy="Local"),
        [slice_of("web", HERE, THERE)],
        {Packet(POD, IP, 80): to(HERE_ADDRESS), Packet(NODE, IP, 80): to(HERE_ADDRESS, snat=True)},
    ),
    Case(
        "the internal policy Local drops where only other nodes have endpoints",
        service("web", IP, internal_traffic_policy="Local"),
        [slice_of("web", THERE)],
        {Packet(POD, IP, 80): Outcome(DROP)},
    ),
    Case(
        "the internal policy Local rejects where no node has any",
        service("web", IP, internal_traffic_policy="Local"),
        [],
        {Packet(POD, IP, 80): Outcome(REJECT)},
    ),
    Case(
        "a node port is served on every local address, masqueraded",
        node_port(),
        [slice_of("web", HERE, THERE)],
        {
            Packet(WORLD, NODE, 30080): BOTH_SNAT,
            Packet(POD, NODE, 30080): BOTH_SNAT,
            Packet("127.0.0.1", "127.0.0.1", 30080): BOTH_SNAT,
            Packet(WORLD, NODE, 30081): to("192.168.0.1:30081"),
        },
    ),
    Case(
        "the external policy Local keeps the client's address and this node's endpoints",
        node_port(external_traffic_policy="Local"),
        [slice_of("web", HERE, THERE)],
        {
            Packet(WORLD, NODE, 30080): to(HERE_ADDRESS),
            Packet(POD, NODE, 30080): BOTH,
            Packet(NODE, NODE, 30080): BOTH_SNAT,
            Packet(POD, IP, 80): BOTH,
        },
    ),
    Case(
        "the external policy Local drops what comes from outside where only other nodes have endpoints",
        node_port(external_traffic_policy="Local"),
        [slice_of("web", THERE)],
        {
            Packet(WORLD, NODE, 30080): Outcome(DROP),
            Packet(POD, NODE, 30080): to(THERE_ADDRESS),
            Packet(NODE, NODE, 30080): to(THERE_ADDRESS, snat=True),
        },
    ),
    Case(
        "the external policy Local falls back on a local endpoint that is ending",
        node_port(external_traffic_policy="Local"),
        [slice_of("web", DYING, THERE)],
        {Packet(WORLD, NODE, 30080): to(HERE_ADDRESS), Packet(POD, IP, 80): to(THERE_ADDRESS)},
    ),
    Case(
        "both policies Local at once",
        node_port(external_traffic_policy="Local", internal_traffic_policy="Local"),
        [slice_of("web", HERE, THERE)],
        {
            Packet(POD, IP, 80): to(HERE_ADDRESS),
            Packet(WORLD, NODE, 30080): to(HERE_ADDRESS),
            Packet(POD, NODE, 30080): BOTH,
        },
    ),
    Case(
        "external addresses are served on the Service's port",
        service("web", IP, external_ips=["192.0.2.7"]),
        [slice_of("web", HERE, THERE)],
        {Packet(WORLD, "192.0.2.7", 80): BOTH_SNAT, Packet(POD, "192.0.2.7", 80): BOTH_SNAT},
    ),
    Case(
        "a load balancer's address is served",
        balanced(),
        [slice_of("web", HERE, THERE)],
        {Packet(WORLD, "198.51.100.1", 80): BOTH_SNAT, Packet(POD, "198.51.100.1", 80): BOTH_SNAT},
    ),
    Case(
        "a load balancer's source ranges keep everyone else out, of that address alone",
        balanced(load_balancer_source_ranges=["203.0.113.0/24"]),
        [slice_of("web", HERE)],
        {
            Packet(WORLD, "198.51.100.1", 80): to(HERE_ADDRESS, snat=True),
            Packet("192.0.2.200", "198.51.100.1", 80): Outcome(DROP),
            Packet(POD, "198.51.100.1", 80): Outcome(DROP),
            Packet(POD, IP, 80): to(HERE_ADDRESS, snat=False),
            Packet("192.0.2.200", NODE, 30080): to(HERE_ADDRESS, snat=True),
        },
    ),
    Case(
        "a load balancer that sends to node ports itself is not short-circuited",
        msgspec.structs.replace(
            balanced(),
            status=core_v1.ServiceStatus(
                load_balancer=core_v1.LoadBalancerStatus(
                    ingress=[core_v1.LoadBalancerIngress(ip="198.51.100.1", ip_mode="Proxy")]
                )
            ),
        ),
        [slice_of("web", HERE, THERE)],
        {
            Packet(POD, "198.51.100.1", 80): to("198.51.100.1:80"),
            Packet(WORLD, NODE, 30080): BOTH_SNAT,
        },
    ),
    Case(
        "a load balancer's address under the external policy Local",
        balanced(external_traffic_policy="Local"),
        [slice_of("web", HERE, THERE)],
        {
            Packet(WORLD, "198.51.100.1", 80): to(HERE_ADDRESS),
            Packet(POD, "198.51.100.1", 80): BOTH,
            Packet(NODE, "198.51.100.1", 80): BOTH_SNAT,
        },
    ),
    Case(
        "a load balancer at the node's own address leaves the node's other ports alone",
        service("web", IP, port("http", 80), type="LoadBalancer", ingress=(NODE,)),
        [slice_of("web", HERE, THERE)],
        {
            Packet(WORLD, NODE, 80): BOTH_SNAT,
            Packet(POD, NODE, 80): BOTH_SNAT,
            Packet(WORLD, NODE, 22): to(f"{NODE}:22"),
            Packet(POD, NODE, 6443): to(f"{NODE}:6443"),
        },
    ),
    Case(
        "endpoints from several slices, and more of them than one slice holds",
        service("web", IP),
        [slice_of("web", *(f"10.244.{2 + part}.{n}" for n in range(1, 101)), suffix=str(part)) for part in range(3)],
        {Packet(POD, IP, 80): to(*(f"10.244.{2 + part}.{n}:8080" for part in range(3) for n in range(1, 101)))},
    ),
    Case(
        "a port by name leads to each pod's own number",
        service("web", IP),
        [
            slice_of("web", HERE, ports={"http": 8080}, suffix="a"),
            slice_of("web", THERE, ports={"http": 9090, "other": 1}, suffix="b"),
        ],
        {Packet(POD, IP, 80): to(HERE_ADDRESS, "10.244.2.2:9090")},
    ),
    Case(
        "an endpoint on the node's own network",
        service("web", IP),
        [slice_of("web", endpoint(NODE, node="node-1"))],
        {Packet(POD, IP, 80): to(f"{NODE}:8080"), Packet(NODE, IP, 80): to(f"{NODE}:8080", snat=True)},
    ),
    Case(
        "UDP and SCTP ports are told from TCP ports of the same number",
        service("dns", IP, port("udp", 53, "UDP"), port("tcp", 53, "TCP"), port("sctp", 53, "SCTP")),
        [
            slice_of("dns", "10.244.1.2", ports={"udp": 5353}, protocol="UDP", suffix="u"),
            slice_of("dns", "10.244.1.2", ports={"tcp": 5354}, suffix="t"),
            slice_of("dns", "10.244.1.2", ports={"sctp": 5355}, protocol="SCTP", suffix="s"),
        ],
        {
            Packet(POD, IP, 53, "udp"): to("10.244.1.2:5353"),
            Packet(POD, IP, 53, "tcp"): to("10.244.1.2:5354"),
            Packet(POD, IP, 53, "sctp"): to("10.244.1.2:5355"),
        },
    ),
    Case(
        "an endpoint in two slices counts once, and ready in one is ready",
        service("web", IP),
        [slice_of("web", endpoint("10.244.1.2", ready=False), suffix="a"), slice_of("web", HERE, suffix="b")],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "loopback, link-local and multicast addresses are no endpoints",
        service("web", IP),
        [slice_of("web", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "10.244.1.2")],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "zone hints narrow to this zone when every endpoint has one",
        service("web", IP),
        [slice_of("web", endpoint("10.244.1.2", zones=("east",)), endpoint("10.244.2.2", zones=("west",)))],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "zone hints are ignored where one endpoint has none",
        service("web", IP),
        [slice_of("web", endpoint("10.244.1.2", zones=("east",)), THERE)],
        {Packet(POD, IP, 80): BOTH},
    ),
    Case(
        "zone hints are ignored where none is for this zone",
        service("web", IP),
        [slice_of("web", endpoint("10.244.1.2", zones=("north",)), endpoint("10.244.2.2", zones=("west",)))],
        {Packet(POD, IP, 80): BOTH},
    ),
    Case(
        "node hints win over zone hints",
        service("web", IP),
        [
            slice_of(
                "web",
                endpoint("10.244.1.2", zones=("west",), nodes=("node-1",)),
                endpoint("10.244.2.2", zones=("east",), nodes=("node-2",)),
            )
        ],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "an endpoint that asks its own Service is masqueraded only when it gets itself",
        service("web", IP),
        [slice_of("web", HERE)],
        {Packet("10.244.1.2", IP, 80): to(HERE_ADDRESS, snat=True)},
    ),
    Case(
        "an endpoint of another node that comes by here and gets itself is masqueraded",
        node_port(external_traffic_policy="Local"),
        [slice_of("web", THERE)],
        {Packet(ELSEWHERE, NODE, 30080): to(THERE_ADDRESS, snat=True)},
    ),
    Case(
        "a headless Service has no rules",
        service("web", "None", ips=["None"]),
        [slice_of("web", HERE)],
        {Packet(POD, IP, 80): Outcome(REJECT)},
    ),
    Case(
        "another proxy's Service has no rules",
        service("web", IP, labels={"service.kubernetes.io/service-proxy-name": "mine"}),
        [slice_of("web", HERE)],
        {Packet(POD, IP, 80): Outcome(REJECT)},
    ),
    Case(
        "node ports of a ClusterIP Service are not served",
        service("web", IP, port("http", 80, node_port=30080)),
        [slice_of("web", HERE)],
        {Packet(WORLD, NODE, 30080): to("192.168.0.1:30080")},
    ),
    Case(
        "trafficDistribution PreferSameNode: without one here, the zone's",
        service("web", IP, traffic_distribution="PreferSameNode"),
        [
            slice_of(
                "web",
                endpoint("10.244.2.2", zones=("east",), nodes=("node-2",)),
                endpoint("10.244.3.3", zones=("west",), nodes=("node-3",)),
            )
        ],
        {Packet(POD, IP, 80): to(THERE_ADDRESS)},
    ),
    Case(
        "trafficDistribution PreferClose: the zone's, also for what comes from outside",
        node_port(traffic_distribution="PreferClose"),
        [slice_of("web", endpoint("10.244.1.2", zones=("west",)), endpoint("10.244.2.2", zones=("east",)))],
        {Packet(POD, IP, 80): to(THERE_ADDRESS), Packet(WORLD, NODE, 30080): to(THERE_ADDRESS, snat=True)},
    ),
    Case(
        "trafficDistribution PreferSameZone does not outlast the zone's last ready endpoint",
        service("web", IP, traffic_distribution="PreferSameZone"),
        [
            slice_of(
                "web",
                endpoint("10.244.1.2", ready=False, serving=True, terminating=True, zones=("east",)),
                endpoint("10.244.2.2", zones=("west",)),
            )
        ],
        {Packet(POD, IP, 80): to(THERE_ADDRESS)},
    ),
    Case(
        "hints do not narrow the policy Local",
        node_port(external_traffic_policy="Local", internal_traffic_policy="Local"),
        [
            slice_of(
                "web", endpoint("10.244.1.2", zones=("west",)), endpoint("10.244.2.2", node="node-2", zones=("east",))
            )
        ],
        {Packet(POD, IP, 80): to(HERE_ADDRESS), Packet(WORLD, NODE, 30080): to(HERE_ADDRESS)},
    ),
    Case(
        "an endpoint of which nothing is said counts as ready, as those of publishNotReadyAddresses do",
        service("web", IP, publish_not_ready_addresses=True),
        [slice_of("web", endpoint("10.244.1.2", ready=None), endpoint("10.244.2.2", node="node-2", terminating=True))],
        {Packet(POD, IP, 80): BOTH},
    ),
    Case(
        "the internal policy Local falls back on a local endpoint that is ending",
        service("web", IP, internal_traffic_policy="Local"),
        [slice_of("web", DYING, THERE)],
        {Packet(POD, IP, 80): to(HERE_ADDRESS)},
    ),
    Case(
        "with every endpoint ending, all that still serve are used",
        node_port(),
        [slice_of("web", DYING, endpoint("10.244.2.2", node="node-2", ready=False, serving=True, terminating=True))],
        {Packet(POD, IP, 80): BOTH, Packet(WORLD, NODE, 30080): BOTH_SNAT},
    ),
    Case(
        "a health check node port is the node's own to answer",
        balanced(
            external_traffic_policy="Local",
            health_check_node_port=31000,
            load_balancer_source_ranges=["203.0.113.0/24"],
        ),
        [slice_of("web", THERE)],
        {Packet("192.0.2.200", NODE, 31000): to("192.168.0.1:31000"), Packet(WORLD, NODE, 30080): Outcome(DROP)},
    ),
    Case(
        "an external address under the external policy Local keeps the client's address",
        service("web", IP, external_ips=["192.0.2.7"], external_traffic_policy="Local"),
        [slice_of("web", HERE, THERE)],
        {Packet(WORLD, "192.0.2.7", 80): to(HERE_ADDRESS), Packet(POD, "192.0.2.7", 80): BOTH},
    ),
    Case(
        "several ports lead each to its own",
        service("web", IP, port("http", 80), port("https", 443)),
        [slice_of("web", HERE, ports={"http": 8080, "https": 9090})],
        {Packet(POD, IP, 80): to(HERE_ADDRESS), Packet(POD, IP, 443): to("10.244.1.2:9090")},
    ),
    Case(
        "an endpoint twice in one slice, and as another port's, counts once",
        service("web", IP),
        [slice_of("web", HERE, HERE, THERE, ports={"http": 8080}, suffix="a"), slice_of("web", HERE, suffix="b")],
        {Packet(POD, IP, 80): BOTH},
    ),
]

RULES = RuleSettings(local_cidrs=(PODS,), node_addresses=(NODE,))
FIXED = StaticSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=(PODS,))

# Where one list of endpoints a virtual server makes a difference, as in upstream's IPVS mode.
IPVS_OTHERWISE: dict[str, dict[Packet, Outcome]] = {
    "the internal policy Local drops where only other nodes have endpoints": {Packet(POD, IP, 80): Outcome(REJECT)},
    "the external policy Local keeps the client's address and this node's endpoints": {
        Packet(POD, NODE, 30080): to(HERE_ADDRESS),
        Packet(NODE, NODE, 30080): to(HERE_ADDRESS, snat=True),
    },
    "the external policy Local drops what comes from outside where only other nodes have endpoints": {
        Packet(WORLD, NODE, 30080): to(THERE_ADDRESS),
    },
    "a health check node port is the node's own to answer": {Packet(WORLD, NODE, 30080): to(THERE_ADDRESS)},
    "an external address under the external policy Local keeps the client's address": {
        Packet(POD, "192.0.2.7", 80): to(HERE_ADDRESS)
    },
    "both policies Local at once": {Packet(POD, NODE, 30080): to(HERE_ADDRESS)},
    "a load balancer's address under the external policy Local": {
        Packet(POD, "198.51.100.1", 80): to(HERE_ADDRESS),
        Packet(NODE, "198.51.100.1", 80): to(HERE_ADDRESS, snat=True),
    },
}
