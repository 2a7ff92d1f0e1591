"""The packet table's cases of which endpoints are chosen, out of slices, hints, policies and endings (packet_cases.py)."""

from tests.support.packet_case import (
    BOTH,
    BOTH_SNAT,
    DYING,
    ELSEWHERE,
    HERE,
    HERE_ADDRESS,
    IP,
    NODE,
    POD,
    THERE,
    THERE_ADDRESS,
    WORLD,
    Case,
    balanced,
    node_port,
    to,
)
from tests.support.packet_tracer import DROP, REJECT, Outcome, Packet
from tests.support.services import endpoint, port, service, slice_of

CHOICES = [
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
