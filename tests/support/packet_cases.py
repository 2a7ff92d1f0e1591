"""The one table of Services and packets: whence, whither, and where each must end.

It is run against the model, against what each mode makes of it in memory (tests/unit/netproxy/test_packets.py, test_ipvs.py),
in both IP families, and as real packets between namespaces (tests/host/netproxy/test_packet_table.py).
"""

import msgspec

from kube.api import core_v1
from netproxy.settings import FixedChainSettings, RuleSettings
from tests.support.packet_case import (
    BOTH,
    BOTH_SNAT,
    DEAD,
    DYING,
    HERE,
    HERE_ADDRESS,
    IP,
    NODE,
    POD,
    PODS,
    THERE,
    THERE_ADDRESS,
    WORLD,
    Case,
    balanced,
    node_port,
    to,
)
from tests.support.packet_choices import CHOICES
from tests.support.packet_tracer import ACCEPT, DROP, REJECT, Outcome, Packet
from tests.support.services import endpoint, port, service, slice_of

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
        "source ranges hold for every port of a load balancer, and lead each to its own",
        service(
            "web",
            IP,
            port("http", 80),
            port("https", 443),
            port("dns", 53, "UDP"),
            type="LoadBalancer",
            ingress=("198.51.100.1", "198.51.100.2"),
            load_balancer_source_ranges=["203.0.113.0/26", "203.0.113.64/26", "203.0.113.129/32"],
        ),
        [slice_of("web", HERE, ports={"http": 8080, "https": 9090})],
        {
            Packet(WORLD, "198.51.100.1", 80): to(HERE_ADDRESS, snat=True),
            Packet(WORLD, "198.51.100.2", 443): to("10.244.1.2:9090", snat=True),
            Packet(WORLD, "198.51.100.1", 53, "udp"): Outcome(REJECT),
            Packet("203.0.113.127", "198.51.100.1", 443): to("10.244.1.2:9090", snat=True),
            Packet("203.0.113.129", "198.51.100.1", 443): to("10.244.1.2:9090", snat=True),
            Packet("203.0.113.128", "198.51.100.1", 443): Outcome(DROP),
            Packet("192.0.2.200", "198.51.100.2", 80): Outcome(DROP),
            Packet(POD, "198.51.100.1", 443): Outcome(DROP),
        },
    ),
    Case(
        "a source range of all addresses keeps nobody out",
        balanced(load_balancer_source_ranges=["203.0.113.0/24", "0.0.0.0/0"]),
        [slice_of("web", HERE)],
        {
            Packet(WORLD, "198.51.100.1", 80): to(HERE_ADDRESS, snat=True),
            Packet(POD, "198.51.100.1", 80): to(HERE_ADDRESS, snat=True),
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
    *CHOICES,
]

RULES = RuleSettings(local_cidrs=(PODS,), node_addresses=(NODE,))
FIXED = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=(PODS,))

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
