"""Nodes that pod ranges belong to, by which addresses in pods' statuses are judged."""

from kube.informer import Change
from netproxy.podnet.pod_ranges import PodRanges
from netproxy.slim_objects import SlimMeta, SlimNode, SlimNodeSpec
from tests.unit.cost.test_proxy_products import Followed


def node(name: str, *cidrs: str, created: str = "2026-01-01T00:00:00Z", uid: str = "") -> SlimNode:
    meta = SlimMeta(name=name, uid=uid or name, creation_timestamp=created)
    return SlimNode(meta, SlimNodeSpec(pod_cidrs=list(cidrs)))


def ranges(nodes: Followed, *cidrs: str) -> tuple[PodRanges, list[int]]:
    changes: list[int] = []
    made = PodRanges("n1", nodes, cidrs)  # type: ignore[arg-type]
    made.subscribe(lambda: changes.append(1))
    return made, changes


def test_an_address_is_in_the_range_of_its_node() -> None:
    nodes = Followed()
    found, changes = ranges(nodes)
    assert found.node_of("10.244.2.1") == ""
    for number in (3, 1, 2):
        nodes.put(node(f"n{number}", f"10.244.{number}.0/24", f"fd00:{number}::/64"))
    assert [found.node_of(f"10.244.{number}.255") for number in range(5)] == ["", "n1", "n2", "n3", ""]
    assert [found.node_of(f"fd00:{number}::1") for number in range(5)] == ["", "n1", "n2", "n3", ""]
    assert len(changes) == 3
    nodes.put(node("n2", "10.244.2.0/24", "fd00:2::/64", created="2026-01-02T00:00:00Z"))
    assert len(changes) == 3, "its ranges are the same"
    nodes.put(node("n2"))
    assert len(changes) == 4 and found.node_of("10.244.2.1") == ""


def test_a_node_gets_no_range_that_is_another_nodes_this_nodes_or_outside_the_clusters() -> None:
    nodes = Followed()
    found, _ = ranges(nodes, "10.244.0.0/16")
    nodes.put(node("n2", "10.244.2.0/24", created="2026-02-01T00:00:00Z"))
    assert found.node_of("10.244.2.1") == "n2"
    nodes.put(node("evil", "10.244.0.0/16"))
    nodes.put(node("far", "192.168.0.0/24"))
    assert found.node_of("10.244.2.1") == "n2" and found.node_of("192.168.0.1") == ""
    nodes.put(node("n1", "10.244.1.0/24", created="2026-03-01T00:00:00Z"))
    assert found.node_of("10.244.1.1") == "n1"
    for handler in nodes._handlers:
        handler(Change("DELETED", None, node("n2")))
    assert found.node_of("10.244.2.1") == ""
    nodes.put(node("n1"))
    assert found.node_of("10.244.2.1") == "evil"
