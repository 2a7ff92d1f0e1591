"""Routes and tunnels between the pods of three nodes (routed_nodes.py)."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kube.api import core_v1, meta_v1
from netproxy import cleanup, metrics
from tests.host.netproxy.routed_nodes import (
    ASK,
    SEND,
    RunningNode,
    addresses_of,
    node_of,
    nodes_api,
    plug,
    running_nodes,
    until,
)
from tests.support.netns import Namespace


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningNode]]:
    with running_nodes(tmp_path_factory.mktemp) as made:
        yield made


PAIRS = [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n2")]


def reach(nodes: dict[str, RunningNode], pairs: list[tuple[str, str]] = PAIRS, size: int = 0) -> None:
    for source, target in pairs:
        for family in (0, 1):
            address, own = nodes[target].ips[family], nodes[source].ips[family]
            wanted = f"{target} {own} {size}"
            until(lambda s=source, a=address, w=wanted: nodes[s].ask(a, size) == w, f"{source} -> {target} {address}")  # type: ignore[misc]


def test_pods_reach_pods_of_other_nodes_as_themselves_near_and_far(nodes: dict[str, RunningNode]) -> None:
    reach(nodes)
    assert nodes["n1"].route_to("n2") == ("eth0", "eth0")
    assert nodes["n1"].route_to("n3") == nodes["n3"].route_to("n1") == ("wherry-vxlan", "wherry-vxlan")
    assert len(nodes["n1"].routes()) == 4


def test_nodes_reach_pods_of_other_nodes(nodes: dict[str, RunningNode]) -> None:
    for source, target in PAIRS:
        argv = [sys.executable, "-I", "-c", ASK, nodes[target].ips[0], "0"]
        node = nodes[source].namespace
        until(lambda n=node, a=argv, t=target: n.run(*a, check=False).startswith(f"{t} "), f"{source} -> {target}")  # type: ignore[misc]


def test_full_size_packets_pass_the_tunnel_whole(nodes: dict[str, RunningNode]) -> None:
    pod = nodes["n1"].pod
    mtu = json.loads(pod.run("ip", "-j", "link", "show", "dev", "eth0"))[0]["mtu"]
    assert mtu == 1450

    def send(address: str, size: int) -> str:
        return pod.run(sys.executable, "-I", "-c", SEND, address, str(size)).strip()

    for target in ("n2", "n3"):
        for address, headers in zip(nodes[target].ips, (28, 48), strict=True):
            until(lambda a=address, n=mtu - headers: send(a, n) == "whole", f"{mtu} bytes to {address}")  # type: ignore[misc]
            assert send(address, mtu - headers + 1) == "EMSGSIZE"
    reach(nodes, [("n1", "n3"), ("n3", "n1")], size=2_000_000)


def test_a_pod_that_began_with_a_larger_mtu_learns_the_way_is_narrower(nodes: dict[str, RunningNode]) -> None:
    """As where nodes were switched to the tunnel while pods ran: the node tells the sender, TCP and UDP go on."""
    node = nodes["n3"]
    veth = next(
        each["ifname"]
        for each in json.loads(node.namespace.run("ip", "-j", "link", "show", "master", "cni0"))
        if each["ifname"].startswith("veth")
    )
    try:
        node.namespace.run("ip", "link", "set", veth, "mtu", "1500")
        node.pod.run("ip", "link", "set", "eth0", "mtu", "1500")
        reach(nodes, [("n1", "n3")], size=2_000_000)
        reach(nodes, [("n3", "n1")], size=2_000_000)
    finally:
        node.pod.run("ip", "link", "set", "eth0", "mtu", "1450")
        node.namespace.run("ip", "link", "set", veth, "mtu", "1450")


@pytest.mark.parametrize(
    "damage",
    [
        "ip route del 10.244.2.0/24 proto 87",
        "ip route replace 10.244.3.0/24 via 192.168.77.254 proto static",
        "ip -6 route flush proto 87",
        "ip neigh del 10.244.3.0 dev wherry-vxlan",
        "bridge fdb del 0a:58:0a:f4:03:00 dev wherry-vxlan dst 192.168.78.3",
        "ip link del dev wherry-vxlan",
        "ip link set dev wherry-vxlan down",
        "ip address flush dev wherry-vxlan",
    ],
)
def test_what_others_take_away_is_put_back(nodes: dict[str, RunningNode], damage: str) -> None:
    node = nodes["n1"]

    def held() -> list[str]:
        commands = (
            "ip -4 route show proto 87",
            "ip -6 route show proto 87",
            "ip neigh show dev wherry-vxlan nud permanent",
            "bridge fdb show dev wherry-vxlan",
            "ip -br address show dev wherry-vxlan",
        )
        return [
            line.strip()
            for text in commands
            for line in sorted(node.namespace.run(*text.split(), check=False).splitlines())
        ]

    before = held()
    node.namespace.run(*damage.split())
    until(lambda: held() == before, f"repaired after `{damage}`")
    reach(nodes, [("n1", "n2"), ("n1", "n3")])


def test_a_node_that_leaves_takes_its_ways_along_and_nothing_leaks(nodes: dict[str, RunningNode]) -> None:
    node = nodes["n1"]
    node.tell(lambda api: api.remove(node_of("n3")))
    until(lambda: node.route_to("n3") == (), "the routes are gone")
    assert node.route_to("n2") == ("eth0", "eth0")
    # The last distant node has gone, and the tunnel with it.
    until(lambda: "wherry-vxlan" not in node.namespace.run("ip", "-br", "link"), "the tunnel is gone")
    refused = node.namespace.run("ip", "route", "get", nodes["n3"].ips[0], check=False)
    assert refused == ""  # "No route to host": unreachable lies underneath
    node.tell(lambda api: api.put(node_of("n3")))
    reach(nodes, [("n1", "n3"), ("n3", "n1")])


def test_a_node_that_names_anothers_pods_and_address_gets_no_packet(
    nodes: dict[str, RunningNode], caplog: pytest.LogCaptureFixture
) -> None:
    """Its name sorts before the others', its ranges are halves of theirs, and it stands on the link."""
    node, counted = nodes["n1"], metrics.NODE_CLAIMS_REFUSED.labels("pod range")._value
    before = counted.get()
    held = {name: node.route_to(name) for name in ("n2", "n3")}
    for number, (victim, cidrs) in enumerate(
        {"n2": ["10.244.2.0/25", "fd00:0:0:2::/65"], "n3": ["10.244.3.0/24", "fd00:0:0:3::/64"]}.items()
    ):
        thief = core_v1.Node(
            metadata=meta_v1.ObjectMeta(name=f"a{number}", uid=f"a{number}"),
            spec=core_v1.NodeSpec(pod_cidr=cidrs[0], pod_cidrs=cidrs),
            status=core_v1.NodeStatus(
                addresses=[core_v1.NodeAddress(type="InternalIP", address=f"192.168.77.{66 + number}")]
            ),
        )
        node.tell(lambda api, thief=thief: api.put(thief))  # type: ignore[misc]
        until(
            lambda name=thief.metadata.name: f"pods of node {name} cannot be reached" in caplog.text,  # type: ignore[misc]
            f"the ranges of {victim} are refused to another",
        )
        assert {name: node.route_to(name) for name in held} == held
    assert counted.get() - before == 4
    assert "192.168.77.6" not in node.namespace.run("ip", "route", "show", "proto", "87")
    reach(nodes, [("n1", "n2"), ("n1", "n3")])
    for number in range(2):
        gone = core_v1.Node(metadata=meta_v1.ObjectMeta(name=f"a{number}"))
        node.tell(lambda api, gone=gone: api.remove(gone))  # type: ignore[misc]


def test_only_nodes_can_send_into_the_tunnel(nodes: dict[str, RunningNode]) -> None:
    node = nodes["n1"]
    stranger = Namespace(node.namespace.name.replace("-n1", "-router"))
    own, theirs = addresses_of("n1")[0], "192.168.77.254"

    def arrived() -> int:
        lines = node.pod.run("cat", "/proc/thread-self/net/snmp").splitlines()
        names, values = (line.split() for line in lines if line.startswith("Udp:"))
        return int(values[names.index("InDatagrams")])

    tunnel = f"ip link add stray type vxlan id 1 local {theirs} remote {own} dstport 8472 nolearning"
    stranger.run(*tunnel.split())
    try:
        stranger.run("ip", "address", "add", "10.244.3.77/32", "dev", "stray")
        stranger.run("ip", "link", "set", "stray", "up")
        stranger.run(*f"ip route add {node.ips[0]}/32 dev stray src 10.244.3.77".split())
        stranger.run(*f"ip neigh add {node.ips[0]} lladdr 0a:58:0a:f4:01:00 dev stray".split())
        send = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'stray', ({node.ips[0]!r}, 7000))"
        before = arrived()
        stranger.run(sys.executable, "-I", "-c", send)
        # The same packet from a node's address is delivered.
        as_node = core_v1.Node(
            metadata=meta_v1.ObjectMeta(name="router"),
            status=core_v1.NodeStatus(addresses=[core_v1.NodeAddress(type="InternalIP", address=theirs)]),
        )
        node.tell(lambda api: api.put(as_node))
        until(
            lambda: theirs in node.namespace.run("nft", "list", "table", "inet", "wherry-tunnel"), "the node is known"
        )
        stranger.run(sys.executable, "-I", "-c", send)
        until(lambda: arrived() > before, "it is delivered")
        assert arrived() == before + 1  # and the first one was not
        node.tell(lambda api: api.remove(as_node))
        until(lambda: theirs not in node.namespace.run("nft", "list", "table", "inet", "wherry-tunnel"), "it has left")
    finally:
        stranger.run("ip", "link", "del", "stray")


def test_no_pod_can_send_into_a_tunnel(nodes: dict[str, RunningNode]) -> None:
    """Neither directly nor by a translated address; other ports of the node are reached."""
    target = nodes["n3"]
    send = (
        "import socket, sys\ns = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for port in sys.argv[2:]: s.sendto(b'x' * 50, (sys.argv[1], int(port)))"
    )
    counting = (
        "table ip seen { chain seen { type filter hook prerouting priority -400; "
        "udp dport 8472 udp length 58 counter; udp dport 8473 counter; }; }"
    )
    node = nodes["n1"].namespace
    target.namespace.run("nft", "-f", "-", input=counting)
    translate = (
        "table ip shifted { chain before { type nat hook prerouting priority -99; "
        f"ip daddr 10.96.99.99 udp dport 7999 dnat to {addresses_of('n3')[0]}:8472; }}; }}"
    )
    node.run("nft", "-f", "-", input=translate)

    def seen() -> list[int]:
        words = target.namespace.run("nft", "list", "table", "ip", "seen").split()
        return [int(words[at + 1]) for at, word in enumerate(words) if word == "packets"]

    try:
        argv = [sys.executable, "-I", "-c", send]
        nodes["n1"].pod.run(*argv, "10.96.99.99", "7999")
        nodes["n1"].pod.run(*argv, addresses_of("n3")[0], "8472", "8473")
        until(lambda: seen()[1] == 1, "the other port is reached")
        assert seen()[0] == 0
        node.run("nft", "flush", "chain", "inet", "wherry-tunnel", "forward")
        nodes["n1"].pod.run(*argv, addresses_of("n3")[0], "8472")
        until(lambda: seen()[0] == 1, "without the rules it is")
        nodes["n1"].pod.run(*argv, "10.96.99.99", "7999")
        until(lambda: seen()[0] == 2, "by a translated address, too")
    finally:
        target.namespace.run("nft", "delete", "table", "ip", "seen")
        node.run("nft", "delete", "table", "ip", "shifted")
        node.run("nft", "delete", "table", "inet", "wherry-tunnel")  # written anew at the next look


def test_an_uplink_that_went_down_and_came_back_has_its_ways_again(nodes: dict[str, RunningNode]) -> None:
    node = nodes["n2"]
    node.namespace.run("ip", "link", "set", "dev", "eth0", "down")
    node.namespace.run("ip", "link", "set", "dev", "eth0", "up")
    plug(Namespace(node.namespace.name.replace("-n2", "-router")), node.namespace, "n2", 0)
    reach(nodes, [("n2", "n1"), ("n2", "n3"), ("n1", "n2")])


def test_a_node_that_moves_to_our_link_is_reached_directly(nodes: dict[str, RunningNode]) -> None:
    router = Namespace(nodes["n1"].namespace.name.replace("-n1", "-router"))
    for link, ways in ((0, ("eth0", "eth0")), (1, ("wherry-vxlan", "wherry-vxlan"))):
        plug(router, nodes["n3"].namespace, "n3", link)
        for node in nodes.values():
            node.tell(lambda api, link=link: api.put(node_of("n3", link)))  # type: ignore[misc]
        until(lambda ways=ways: nodes["n1"].route_to("n3") == nodes["n3"].route_to("n1") == ways, f"on link {link}")  # type: ignore[misc]
        reach(nodes, [("n1", "n3"), ("n3", "n1"), ("n3", "n2")])


def test_with_the_tunnel_alone_no_machine_sends_with_a_pods_address_past_it(nodes: dict[str, RunningNode]) -> None:
    """The router, on n3's link, sends as the pod of n1: in mode vxlan it is dropped, and pods reach each other."""
    node, other = nodes["n3"], nodes["n1"]
    router = Namespace(node.namespace.name.replace("-n3", "-router"))
    auto = node.config

    def delivered() -> int:
        lines = node.pod.run("cat", "/proc/net/snmp6").splitlines()
        (four,) = (
            line.split()
            for line in node.pod.run("cat", "/proc/net/snmp").splitlines()
            if "Udp: " in line[:5] and line[5].isdigit()
        )
        return int(four[1]) + sum(int(line.split()[1]) for line in lines if line.startswith("Udp6InDatagrams"))

    def send() -> None:
        for source, target in zip(other.ips, node.ips, strict=True):
            program = (
                "import socket\n"
                f"s = socket.socket({'socket.AF_INET6' if ':' in target else 'socket.AF_INET'}, socket.SOCK_DGRAM)\n"
                "s.setsockopt(socket.SOL_IP, 15, 1)\n"  # IP_FREEBIND
                f"s.bind(({source!r}, 0)); s.sendto(b'forged', ({target!r}, 7000))\n"
            )
            router.run(sys.executable, "-I", "-c", program)

    def restart(mode: str) -> None:
        node.end()
        node.config = replace(auto, pod_network=replace(auto.pod_network, node_routes=mode))
        node.api = nodes_api()
        node.start()

    for family, target, via in (("-4", node.ips[0], addresses_of("n3")[0]), ("-6", node.ips[1], addresses_of("n3")[1])):
        router.run("ip", family, "route", "replace", target, "via", via)
    for source in other.ips:
        router.run("ip", "address", "add", source, "dev", "lo")
    try:
        before = delivered()
        send()
        until(lambda: delivered() == before + 2, "any machine of the link can send as pods of other nodes")
        restart("vxlan")
        guarded = ["nft", "list", "table", "inet", "wherry-tunnel"]
        until(lambda: "fd00:0:0:1::/64" in node.namespace.run(*guarded, check=False), "the ranges are known")
        reach(nodes, [("n1", "n3"), ("n3", "n1"), ("n3", "n2")])
        before = delivered()
        send()
        for address in node.ips:
            argv = [sys.executable, "-I", "-c", SEND, address, "9"]
            until(lambda a=argv: other.pod.run(*a).strip() == "whole", "by the tunnel")  # type: ignore[misc]
        assert delivered() == before + 2
    finally:
        for source in other.ips:
            router.run("ip", "address", "del", source, "dev", "lo", check=False)
        for family, target in zip(("-4", "-6"), node.ips, strict=True):
            router.run("ip", family, "route", "del", target, check=False)
        restart("auto")
        reach(nodes, [("n1", "n3"), ("n3", "n1")])


def test_a_restart_finds_everything_and_cleanup_leaves_nothing(nodes: dict[str, RunningNode]) -> None:
    node = nodes["n3"]
    node.end()
    reach(nodes, [("n3", "n1")])  # what is in force stays in force
    node.config = replace(node.config, pod_network=replace(node.config.pod_network, node_routes="host-gw"))
    node.api = nodes_api()
    node.start()
    until(lambda: node.routes() == [], "host-gw alone is allowed: nobody is on our link")
    until(lambda: "wherry-vxlan" not in node.namespace.run("ip", "-br", "link"), "and there is no tunnel")
    node.end()
    node.config = replace(node.config, pod_network=replace(node.config.pod_network, node_routes="vxlan"))
    node.api = nodes_api()
    node.start()
    reach(nodes, [("n3", "n1")])
    node.end()
    node.namespace.inside(lambda: cleanup.cleanup(node.config))
    assert "wherry-vxlan" not in node.namespace.run("ip", "-br", "link")
    node.namespace.inside(lambda: cleanup.cleanup(node.config, everything=True))
    left = node.namespace.run("ip", "-br", "link")
    assert "wherry" not in left
    assert "cni0" not in left
    assert node.namespace.run("ip", "route", "show", "proto", "87", check=False).strip() == ""
