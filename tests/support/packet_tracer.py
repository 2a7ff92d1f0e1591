"""Sends imagined packets through rules as iptables-save prints them, and through the model, and says where they end.

The interpreter knows the matches and targets that the proxy uses and fails on any other, so a rule cannot be skipped
unseen. Chance is explored both ways: the outcome is the set of endpoints that a packet may reach.
"""

import fnmatch
import ipaddress
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from netproxy.model import ServicePort
from netproxy.xtables.restore_text import Tables

ACCEPT, DROP, REJECT = "accept", "drop", "reject"


@dataclass(frozen=True)
class Packet:
    """A first packet of a connection."""

    source: str
    destination: str
    port: int
    protocol: str = "tcp"


@dataclass(frozen=True)
class Host:
    """The node that the packet comes by: its addresses, and its recorded clients (the `recent` lists)."""

    addresses: frozenset[str] = frozenset({"192.168.0.1", "127.0.0.1"})
    remembered: frozenset[tuple[str, str]] = frozenset()

    def interface_of(self, source: str) -> str:
        """Return where a packet comes in: "" for one of the host's own."""
        if self.is_local(source):
            return ""
        pods = [ipaddress.ip_network(cidr) for cidr in ("10.244.1.0/24", "fd00::a:f4:1:0/112")]
        return "cni0" if any(ipaddress.ip_address(source) in cidr for cidr in pods) else "eth0"

    def is_local(self, address: str) -> bool:
        return address in self.addresses or ipaddress.ip_address(address).is_loopback


@dataclass(frozen=True)
class Outcome:
    """`endpoints` that the packet may reach ("ip:port"); empty with a verdict other than accept. `snat` is whether the
    node puts its own address in. A packet that nothing translates reaches its own destination."""

    verdict: str
    endpoints: frozenset[str] = frozenset()
    snat: bool = False


@dataclass(frozen=True)
class _State:
    packet: Packet
    mark: int = 0
    translated: bool = False
    snat: bool = False
    end: str = ""
    local_origin: bool = False


@dataclass
class RuleTracer:
    """Follows packets through tables."""

    tables: Tables
    host: Host = field(default_factory=Host)

    def trace(self, packet: Packet) -> Outcome:
        """Return where a packet ends; AssertionError where its ends differ in more than the endpoint."""
        ends = set(self._walk(packet))
        verdicts = {(state.end or ACCEPT, state.snat) for state in ends}
        assert len(verdicts) == 1, f"one packet, several fates: {verdicts}"
        verdict, snat = verdicts.pop()
        if verdict != ACCEPT:
            return Outcome(verdict)
        return Outcome(verdict, frozenset(f"{state.packet.destination}:{state.packet.port}" for state in ends), snat)

    def in_set(self, name: str, how: str, packet: Packet) -> bool:
        """Return whether an ipset holds a packet's fields."""
        raise AssertionError(f"no set {name} is known")

    def _walk(self, packet: Packet) -> Iterator[_State]:
        local_origin = self.host.is_local(packet.source)
        start = _State(packet, local_origin=local_origin)
        for state in self._hook("nat", "OUTPUT" if local_origin else "PREROUTING", start):
            if local_origin:
                chain = "OUTPUT"
            else:
                chain = "INPUT" if self.host.is_local(state.packet.destination) else "FORWARD"
            for after in self._hook("filter", chain, state):
                if after.end in (DROP, REJECT):
                    yield after
                else:
                    yield from self._hook("nat", "POSTROUTING", replace(after, end=""))

    def _hook(self, table: str, chain: str, state: _State) -> Iterator[_State]:
        for end, _ in self._chain(table, chain, state):
            yield end

    def _chain(self, table: str, chain: str, state: _State, index: int = 0) -> Iterator[tuple[_State, bool]]:
        """Yield each end state, and whether it is final (else the calling chain goes on)."""
        rules = self.tables[table][chain]
        while index < len(rules):
            rule = _parse(rules[index])
            index += 1
            matched = rule.matches(state, self.host, self)
            if matched is None:  # chance
                yield from self._chain(table, chain, state, index)
            elif not matched:
                continue
            if not rule.target:
                continue
            if rule.target == "RETURN":
                break
            ends = list(self._apply(table, rule, state))
            if len(ends) == 1 and not ends[0][1]:
                state = ends[0][0]
                continue
            for end, final in ends:
                if final:
                    yield end, True
                else:
                    yield from self._chain(table, chain, end, index)
            return
        yield state, False

    def _apply(self, table: str, rule: "_Rule", state: _State) -> Iterator[tuple[_State, bool]]:
        match rule.target:
            case "ACCEPT":
                yield replace(state, end=ACCEPT), True
            case "DROP":
                yield replace(state, end=DROP), True
            case "REJECT":
                yield replace(state, end=REJECT), True
            case "MARK":
                value, mask = (int(part, 0) for part in rule.options["--set-xmark"].split("/"))
                yield replace(state, mark=(state.mark & ~mask) ^ value), False
            case "MASQUERADE":
                yield replace(state, snat=True, end=ACCEPT), True
            case "DNAT":
                ip, port = rule.options["--to-destination"].rsplit(":", 1)
                packet = replace(state.packet, destination=ip.strip("[]"), port=int(port))
                yield replace(state, packet=packet, translated=True, end=ACCEPT), True
            case chain:
                yield from self._chain(table, chain, state)


@dataclass
class _Rule:
    tests: list[tuple[bool, str, str]]
    options: dict[str, str]
    target: str

    def matches(self, state: _State, host: Host, tracer: "RuleTracer") -> bool | None:
        """True, False, or None if chance decides (and everything else matches)."""
        chance = False
        for negated, name, value in self.tests:
            if name == "--match-set":
                result: bool | None = tracer.in_set(*value.split(" "), state.packet)  # type: ignore[call-arg]
            else:
                result = self._test(name, value, state, host)
            if result is None:
                chance = True
            elif result == negated:
                return False
        return None if chance else True

    def _test(self, name: str, value: str, state: _State, host: Host) -> bool | None:
        packet = state.packet
        match name:
            case "-s":
                return ipaddress.ip_address(packet.source) in ipaddress.ip_network(value)
            case "-d":
                return ipaddress.ip_address(packet.destination) in ipaddress.ip_network(value)
            case "-i":
                return fnmatch.fnmatch(host.interface_of(packet.source), value.replace("+", "*"))
            case "-p":
                return packet.protocol == value
            case "--dport":
                return packet.port == int(value)
            case "--dst-type":
                return host.is_local(packet.destination)
            case "--src-type":
                return host.is_local(packet.source)
            case "--mark":
                wanted, mask = (int(part, 0) for part in value.split("/"))
                return state.mark & mask == wanted
            case "--ctstate":
                states = set(value.split(","))
                return bool(states & ({"NEW", "DNAT"} if state.translated else {"NEW"}))
            case "--probability":
                return None
            case "--rcheck":
                return (value, packet.source) in host.remembered
        raise AssertionError(f"the tracer does not know {name}")


_FLAGS = {"--reap", "--rsource", "--random-fully", "--set"}
_IGNORED = {"--comment", "--mode", "--seconds", "--mask", "--name", "--reject-with"}
_TARGET_OPTIONS = {"--set-xmark", "--to-destination"}
_TESTS = {"-s", "-d", "-i", "-p", "--dport", "--dst-type", "--src-type", "--mark", "--ctstate", "--probability"}


def _parse(text: str) -> _Rule:
    words = shlex.split(text)
    tests: list[tuple[bool, str, str]] = []
    options: dict[str, str] = {}
    target, negated, recent = "", False, False
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "!":
            negated = True
            continue
        if word == "--rcheck":
            recent = True
        elif word in _FLAGS:
            pass
        else:
            value = words[position]
            position += 1
            if word == "-j":
                target = value
            elif word == "--match-set":
                tests.append((negated, word, f"{value} {words[position]}"))
                position += 1
            elif word in _TESTS:
                tests.append((negated, word, value))
            elif word in _TARGET_OPTIONS:
                options[word] = value
            elif word == "--name" and recent:
                tests.append((False, "--rcheck", value))
            elif word not in _IGNORED and word != "-m":
                raise AssertionError(f"the tracer does not know {word} in: {text}")
        negated = False
    return _Rule(tests, options, target)


def trace_model(
    ports: list[ServicePort], packet: Packet, *, host: Host, pods: str, service_range: str = "10.96.0.0/12"
) -> Outcome:
    """Return where the model wants a packet to end: the same rules said a second time, without chains."""
    from_pod = ipaddress.ip_address(packet.source) in ipaddress.ip_network(pods)
    from_node = host.is_local(packet.source)
    for port in ports:
        if port.protocol.lower() != packet.protocol:
            continue
        to_node_port = port.node_port == packet.port and port.node_port and host.is_local(packet.destination)
        outside = packet.destination in (*port.external_ips, *port.load_balancer_ips) and packet.port == port.port
        if packet.destination == port.cluster_ip and packet.port == port.port:
            endpoints, snat = port.internal_endpoints, not from_pod
        elif outside or to_node_port:
            if packet.destination in port.load_balancer_ips and port.source_ranges:
                source = ipaddress.ip_address(packet.source)
                if not any(source in ipaddress.ip_network(cidr, strict=False) for cidr in port.source_ranges):
                    return Outcome(DROP if port.has_endpoints_anywhere else REJECT)
            short_cut = port.external_local and (from_pod or from_node)
            endpoints = port.endpoints if short_cut else port.external_endpoints
            snat = from_node if port.external_local else True
        else:
            continue
        if not endpoints:
            return Outcome(DROP if port.has_endpoints_anywhere else REJECT)
        return Outcome(ACCEPT, frozenset(f"{each.ip}:{each.port}" for each in endpoints), snat)
    untranslated = ipaddress.ip_address(packet.destination) in ipaddress.ip_network(service_range)
    if untranslated and not host.is_local(packet.destination):
        return Outcome(REJECT)
    return Outcome(ACCEPT, frozenset({f"{packet.destination}:{packet.port}"}))
