"""Translates service ports to iptables rules, as text in the form in which iptables-save prints them. No I/O.

Because rules are written in the kernel's canonical form, written and listed rules are compared as strings, and drift is found
without parsing. A port has chains of its own (rewritten as a whole when they change) and entries in chains shared by all ports
(added and deleted one by one, so that a change never rewrites those of 5 000 other ports).

The chains of a packet are upstream's: KUBE-SERVICES (or KUBE-NODEPORTS) -> KUBE-SVC / KUBE-SVL / KUBE-EXT / KUBE-FW ->
KUBE-SEP -> DNAT, with the masquerade mark if replies would not return through this node otherwise.
Upstream has a KUBE-FW chain for each port, so its rules are ports times source ranges; here the ports of a Service share one.
"""

from __future__ import annotations

from collections.abc import Sequence

from netproxy.iptables import balancing
from netproxy.model import ServicePort
from netproxy.settings import RuleSettings
from netproxy.source_ranges import SourceRanges
from netproxy.xtables import chain_names
from netproxy.xtables.matches import canonical_match, comment, host_match
from netproxy.xtables.shadow import Fragment


def fragment(ports: Sequence[ServicePort], settings: RuleSettings) -> Fragment:
    """Return the rules of one Service's ports of the settings' family."""
    result = Fragment()
    ours = [port for port in ports if port.family == settings.family]
    firewall = _Firewall([port for port in ours if port.source_ranges and port.load_balancer_ips and port.answered])
    for port in ours:
        _PortRules(port, settings, firewall, result).write()
    firewall.write(settings, result)
    return result


class _PortRules:
    """The rules of one port, written into a fragment."""

    def __init__(self, port: ServicePort, settings: RuleSettings, firewall: _Firewall, out: Fragment) -> None:
        self.port, self.settings, self.firewall, self.out = port, settings, firewall, out
        self.label = str(port.name)
        self.protocol = port.protocol.lower()
        self.svc = chain_names.cluster_policy(self.label, port.protocol)
        self.svl = chain_names.local_policy(self.label, port.protocol)
        self.ext = chain_names.external(self.label, port.protocol)

    def write(self) -> None:
        port = self.port
        internal_chain = self.svl if port.internal_local else self.svc
        self._cluster_ip(internal_chain)
        if port.reachable_from_outside:
            self._outside()
        self._without_endpoints()
        for name, endpoints in ((self.svc, port.endpoints), (self.svl, port.local_endpoints)):
            if endpoints:
                masquerade = self._masquerade_cluster_ip() if name == internal_chain else []
                self.out.chains.update(balancing.chains(port, name, endpoints, masquerade, self.settings))

    def _note(self, text: str) -> str:
        return _note(text, self.settings)

    # -- ways in --------------------------------------------------------------------------------------------------
    def _to(self, ip: str, number: int, note: str, target: str) -> str:
        return (
            f"-d {host_match(ip)} -p {self.protocol} {self._note(f'{self.label} {note}')}"
            f"-m {self.protocol} --dport {number} -j {target}"
        )

    def _cluster_ip(self, chain: str) -> None:
        port = self.port
        if port.internal_endpoints:
            self.out.add_entry("nat", chain_names.SERVICES, self._to(port.cluster_ip, port.port, "cluster IP", chain))

    def _masquerade_cluster_ip(self) -> list[str]:
        """Return what marks packets to the cluster IP that do not come from pods: their answers must pass here."""
        port, settings = self.port, self.settings
        rule = self._to(port.cluster_ip, port.port, "cluster IP", chain_names.MARK_MASQ)
        if settings.masquerade_all:
            return [rule]
        if settings.local_interface:
            return [rule.replace(" -p ", f" ! -i {settings.local_interface} -p ", 1)]
        return [f"! -s {settings.local_cidrs[0]} {rule}"] if settings.local_cidrs else []

    def _outside(self) -> None:
        port = self.port
        if port.health_check_node_port:
            self.out.add_entry(
                "filter",
                chain_names.NODE_PORTS,
                f"-p tcp {self._note(f'{self.label} health check node port')}"
                f"-m tcp --dport {port.health_check_node_port} -j ACCEPT",
            )
        self._keep()
        if not port.answered:
            return
        for ip in port.external_ips:
            self.out.add_entry("nat", chain_names.SERVICES, self._to(ip, port.port, "external IP", self.ext))
        for ip in port.load_balancer_ips:
            self._load_balancer(ip)
        if port.node_port:
            self.out.add_entry(
                "nat",
                chain_names.NODE_PORTS,
                f"-p {self.protocol} {self._note(self.label)}-m {self.protocol} --dport {port.node_port} -j {self.ext}",
            )
        self._external_chain()

    def _keep(self) -> None:
        """Let no later rule translate what is refused for want of endpoints, or a health check, to a host port."""
        port = self.port
        node_ports = {("tcp", port.health_check_node_port, "health check node port")}
        if not port.answered:
            note = "has no endpoints"
            for ip in (*port.external_ips, *port.load_balancer_ips):
                self.out.add_entry("nat", chain_names.SERVICES, self._to(ip, port.port, note, "ACCEPT"))
            node_ports.add((self.protocol, port.node_port, note))
        for protocol, number, note in sorted(node_ports):
            if number:
                rule = f"-p {protocol} {self._note(f'{self.label} {note}')}-m {protocol} --dport {number} -j ACCEPT"
                self.out.add_entry("nat", chain_names.NODE_PORTS, rule)

    def _load_balancer(self, ip: str) -> None:
        port, firewall = self.port, self.firewall
        target = firewall.chain if port.source_ranges else self.ext
        self.out.add_entry("nat", chain_names.SERVICES, self._to(ip, port.port, "loadbalancer IP", target))
        if port.source_ranges:
            if firewall.several:
                firewall.accepted.append(self._to(ip, port.port, "loadbalancer IP", self.ext))
            refusal = self._to(ip, port.port, f"traffic not accepted by {firewall.chain}", "DROP")
            self.out.add_entry("filter", chain_names.PROXY_FIREWALL, refusal)

    def _external_chain(self) -> None:
        port, settings = self.port, self.settings
        rules: list[str] = []
        if not port.external_local:
            # The endpoint may be on another node: its answer must come back through here to be translated back.
            rules.append(
                f"{self._note(f'masquerade traffic for {self.label} external destinations')}-j {chain_names.MARK_MASQ}"
            )
            rules.append(f"-j {self.svc}")
        else:
            if port.endpoints:
                # Traffic from inside is not bound to this node's endpoints: it goes the way of the cluster policy.
                rules += [
                    f"{match} {self._note(f'pod traffic for {self.label} external destinations')}-j {self.svc}"
                    for match in settings.from_pods
                ]
                rules.append(
                    f"{self._note(f'masquerade LOCAL traffic for {self.label} external destinations')}"
                    f"-m addrtype --src-type LOCAL -j {chain_names.MARK_MASQ}"
                )
                rules.append(
                    f"{self._note(f'route LOCAL traffic for {self.label} external destinations')}"
                    f"-m addrtype --src-type LOCAL -j {self.svc}"
                )
            # ACCEPT ends the nat table, so that no rule of a host port translates the packet; KUBE-EXTERNAL-SERVICES in the
            # filter table drops it (`_without_endpoints`).
            rules.append(f"-j {self.svl}" if port.local_endpoints else "-j ACCEPT")
        self.out.chains["nat", self.ext] = tuple(rules)

    # -- nobody there ---------------------------------------------------------------------------------------------
    def _without_endpoints(self) -> None:
        """Reject a port without any endpoint; drop where only this node has none, as its balancer expects."""
        port = self.port
        reject = "REJECT --reject-with " + ("icmp-port-unreachable" if port.family == 4 else "icmp6-port-unreachable")
        target, note = (
            ("DROP", "has no local endpoints") if port.has_endpoints_anywhere else (reject, "has no endpoints")
        )
        if not port.internal_endpoints:
            self.out.add_entry("filter", chain_names.SERVICES, self._to(port.cluster_ip, port.port, note, target))
        if not port.external_endpoints:
            for ip in (*port.external_ips, *port.load_balancer_ips):
                self.out.add_entry("filter", chain_names.EXTERNAL_SERVICES, self._to(ip, port.port, note, target))
            if port.node_port:
                self.out.add_entry(
                    "filter",
                    chain_names.EXTERNAL_SERVICES,
                    f"-p {self.protocol} {self._note(f'{self.label} {note}')}-m addrtype --dst-type LOCAL "
                    f"-m {self.protocol} --dport {port.node_port} -j {target}",
                )


class _Firewall:
    """The chains that accept a load balancer's source ranges: one of the ranges, then one that leads on to the port.

    The second is left out where there is one port; the rules are then upstream's.
    """

    def __init__(self, ports: Sequence[ServicePort]) -> None:
        self.ports, self.several = ports, len(ports) > 1
        self.accepted: list[str] = []
        """Rules that lead what the ranges let in to the port that it is for."""
        if ports:
            name, protocol = ports[0].name, ports[0].protocol
            self.label = f"{name.namespace}/{name.name}" if self.several else str(name)
            self.chain = chain_names.load_balancer_firewall(self.label, "" if self.several else protocol)
            self.target = (
                chain_names.load_balancer(self.label) if self.several else chain_names.external(self.label, protocol)
            )

    def write(self, settings: RuleSettings, out: Fragment) -> None:
        if not self.ports:
            return
        note = _note(f"{self.label} loadbalancer IP", settings)
        ranges = SourceRanges.of(self.ports[0].source_ranges)
        rules = [f"{canonical_match('-s', cidr)}{note}-j {self.target}" for cidr in ranges.canonical]
        if ranges.contain_any(settings.node_addresses):
            # Where the balancer's address is a local one, the node's own requests carry it as their source.
            addresses = dict.fromkeys(ip for port in self.ports for ip in port.load_balancer_ips)
            rules += [f"-s {host_match(ip)} {note}-j {self.target}" for ip in addresses]
        # Nor does a later rule translate it first, as those of host ports would.
        rules.append(
            _note(f"other traffic to {self.label} will be dropped by KUBE-PROXY-FIREWALL", settings) + "-j ACCEPT"
        )
        out.chains["nat", self.chain] = tuple(rules)
        if self.several:
            out.chains["nat", self.target] = tuple(self.accepted)


def _note(text: str, settings: RuleSettings) -> str:
    return "" if settings.lean else f"{comment(text)} "
