"""NetworkPolicies, pods and namespaces for tests in few words, and what a policy table does with an imagined packet."""

import ipaddress
import random
import re
from collections.abc import Collection
from typing import Any

import msgspec

from kube.api import networking_v1
from netproxy.nft.table import Contents
from netproxy.policy.base_chains import HOOKS
from netproxy.slim_objects import SlimContainer, SlimMeta, SlimPod, SlimPodIP, SlimPodSpec, SlimPodStatus, SlimPort


def policy(name: str, namespace: str = "default", **spec: Any) -> networking_v1.NetworkPolicy:
    """A policy from its spec as written in YAML (camelCase)."""
    document = {"metadata": {"name": name, "namespace": namespace}, "spec": {"podSelector": {}, **spec}}
    return msgspec.convert(document, networking_v1.NetworkPolicy)


def pod(
    name: str,
    *ips: str,
    namespace: str = "default",
    node: str = "node-1",
    labels: dict[str, str] | None = None,
    ports: dict[str, tuple[str, int]] | None = None,
    host_network: bool = False,
    phase: str = "Running",
    created: str = "2026-01-01T00:00:00Z",
) -> SlimPod:
    """A pod; its ports are name -> (protocol, number)."""
    named = [SlimPort(number, port, protocol) for port, (protocol, number) in (ports or {}).items()]
    return SlimPod(
        SlimMeta(name=name, namespace=namespace, uid=name, labels=labels or {}, creation_timestamp=created),
        SlimPodSpec(node, host_network, [SlimContainer(named)]),
        SlimPodStatus(phase, ips[0] if ips else "", [SlimPodIP(ip) for ip in ips]),
    )


def random_policy(number: int, chance: random.Random, family: int = 4) -> networking_v1.NetworkPolicy:
    """Any policy at all, in namespace default or other."""

    def labels() -> dict[str, Any]:
        return {"matchLabels": {"app": chance.choice(["web", "db"])}} if chance.random() < 0.7 else {}

    def peer() -> dict[str, Any]:
        kind = chance.randrange(3)
        if kind == 0:
            start, hole = (
                ("203.0.{}.0/24", "203.0.1.0/28") if family == 4 else ("2001:db8:{}::/48", "2001:db8:1:5::/64")
            )
            holes = [hole] if chance.random() < 0.3 else []
            return {"ipBlock": {"cidr": start.format(chance.randrange(4)), "except": holes}}
        team = {"namespaceSelector": {"matchLabels": {"team": chance.choice("ab")}}} if kind == 1 else {}
        return {"podSelector": labels(), **team}

    def rules(word: str) -> list[dict[str, Any]]:
        ports: list[dict[str, Any]] = [
            {"port": 80},
            {"port": "http"},
            {"port": 8000, "endPort": 8100},
            {"protocol": "UDP"},
            {"port": 36412, "protocol": "SCTP"},
        ]
        return [
            {word: [peer() for _ in range(chance.randrange(3))], "ports": chance.sample(ports, chance.randrange(4))}
            for _ in range(chance.randrange(3))
        ]

    types = chance.choice([["Ingress"], ["Egress"], ["Ingress", "Egress"]])
    spec = {"podSelector": labels(), "policyTypes": types, "ingress": rules("from"), "egress": rules("to")}
    return policy(f"p{number}", chance.choice(["default", "other"]), **spec)


class PolicyTracer:
    """Follows packets through a policy table as the recording writer holds it; `node` are the node's own addresses."""

    def __init__(self, contents: Contents, node: Collection[str] = ()) -> None:
        self._contents, self._node = contents, node

    def allows(
        self,
        source: str,
        destination: str,
        port: int = 0,
        protocol: str = "tcp",
        state: str = "new",
        *,
        hook: str = "forward",
    ) -> bool:
        """Return whether a packet passes the base chains of a hook; port 0 is of a protocol without ports."""
        packet = {"saddr": source, "daddr": destination, "port": str(port), "protocol": protocol, "state": state}
        chains = [name for name, text in HOOKS.items() if f" hook {hook} " in text and name in self._contents.rules]
        assert chains, hook
        return all(self._chain(name, packet) != "drop" for name in chains)

    def _chain(self, name: str, packet: dict[str, str]) -> str:
        for rule in self._contents.rules[name]:
            verdict = self._rule(re.sub(r' comment "[^"]*"$', "", rule), packet)
            if verdict:
                return verdict
        return ""

    def _rule(self, rule: str, packet: dict[str, str]) -> str:
        while rule:
            if rule in ("accept", "drop"):
                return rule
            if found := re.match(r"(jump|goto) (\S+)$", rule):
                verdict = self._chain(found[2], packet)
                return verdict or ("return" if found[1] == "goto" else "")
            if found := re.match(r"ip6? (saddr|daddr) vmap @(\S+)$", rule):
                data = self._contents.elements.get((found[2], packet[found[1]]))
                return self._rule(data, packet) if data else ""
            rest = self._match(rule, packet)
            if rest is None:
                return ""
            rule = rest
        return ""

    def _match(self, rule: str, packet: dict[str, str]) -> str | None:
        """Return what is left of a rule after its first match, None if that does not hold."""
        for pattern, holds in (
            (r"ct state established,related", lambda _: packet["state"] in ("established", "related")),
            (r"fib saddr type != local", lambda _: packet["saddr"] not in self._node),
            (r"fib saddr type local", lambda _: packet["saddr"] in self._node),
            (r'[io]ifname "cni0"', lambda _: True),  # packets from outside have another device: tests/host
            (r"fib daddr type \{ broadcast, multicast \}", lambda _: _reaches_all(packet["daddr"])),
            (r"ip6 hoplimit 255 icmpv6 type \{[^}]*\}", lambda _: packet["protocol"] == "nd"),
            (r"ip6? saddr \. ip6? daddr @(\S+)", lambda m: self._in(m[1], f"{packet['saddr']} . {packet['daddr']}")),
            (
                r"ip6? daddr \. (\w+) dport @(\S+)",
                lambda m: packet["protocol"] == m[1] and self._in(m[2], f"{packet['daddr']} . {packet['port']}"),
            ),
            (r"ip6? (saddr|daddr) @(\S+)", lambda m: self._in(m[2], packet[m[1]])),
            (r"ip6? (saddr|daddr) != @(\S+)", lambda m: not self._in(m[2], packet[m[1]])),
            (r"ip6? (saddr|daddr) ([0-9a-f.:]+/\d+)", lambda m: _inside(packet[m[1]], m[2])),
            (r"meta l4proto (\w+)", lambda m: packet["protocol"] == m[1]),
            (
                r"(\w+) dport \{ ([^}]*) \}",
                lambda m: packet["protocol"] == m[1] and _in_ranges(int(packet["port"]), m[2]),
            ),
        ):
            found = re.match(pattern + " ", rule)
            if found:
                return rule[found.end() :] if holds(found) else None
        raise AssertionError(f"the tracer does not know: {rule}")

    def _in(self, name: str, key: str) -> bool:
        assert name in self._contents.sets, name
        if (name, key) in self._contents.elements:
            return True
        return any(
            _inside(key, held) for held_in, held in self._contents.elements if held_in == name and " . " not in held
        )


def _inside(address: str, network: str) -> bool:
    if " . " in address:
        return False
    first, dash, last = network.partition("-")
    if dash:
        return int(ipaddress.ip_address(first)) <= int(ipaddress.ip_address(address)) <= int(ipaddress.ip_address(last))
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)


def _reaches_all(address: str) -> bool:
    return address == "255.255.255.255" or ipaddress.ip_address(address).is_multicast


def _in_ranges(port: int, text: str) -> bool:
    bounds = [each.split("-") for each in text.split(", ")]
    return any(int(each[0]) <= port <= int(each[-1]) for each in bounds)
