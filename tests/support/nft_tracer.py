"""Sends imagined packets through our nftables table, as the recording writer holds it, and says where they end.

Each rule is read from left to right, statement by statement; one that the tracer does not know fails the test. Chance is
explored in all its ways: the outcome is the set of endpoints that a packet may reach.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from netproxy.nft.table import Contents
from tests.support.packet_tracer import ACCEPT, DROP, REJECT, Host, Outcome, Packet

PART = r"(?:ip6? (?:saddr|daddr)|meta l4proto|(?:th|tcp|udp|sctp) dport)"
KEY = rf"(?P<key>{PART}(?: \. {PART})*)"


@dataclass(frozen=True)
class _State:
    packet: Packet
    mark: int = 0
    translated: bool = False
    snat: bool = False
    end: str = ""


@dataclass
class TableTracer:
    """Follows packets through the table's hooks."""

    contents: Contents
    host: Host = field(default_factory=Host)
    host_port_pod: str = ""
    """The "ip:port" to which a later nat chain of others translates what is for a local address, as portmap's do."""

    def trace(self, packet: Packet) -> Outcome:
        """Return where a packet ends; AssertionError where its ends differ in more than the endpoint."""
        ends = set(self._walk(packet))
        verdicts = {(state.end or ACCEPT, state.snat) for state in ends}
        assert len(verdicts) == 1, f"one packet, several fates: {verdicts}"
        verdict, snat = verdicts.pop()
        if verdict != ACCEPT:
            return Outcome(verdict)
        return Outcome(verdict, frozenset(f"{s.packet.destination}:{s.packet.port}" for s in ends), snat)

    def _walk(self, packet: Packet) -> Iterator[_State]:
        local = self.host.is_local(packet.source)
        hooks = ["firewall-output", "nat-output"] if local else ["firewall-prerouting", "nat-prerouting"]
        states = [_State(packet)]
        for hook in hooks:
            states = [end for state in states for end in self._hook(hook, state)]
        for state in map(self._others_nat, states):
            if local:
                chain = "filter-output"
            else:
                chain = "filter-input" if self.host.is_local(state.packet.destination) else "filter-forward"
            for after in self._hook(chain, state):
                yield from [after] if after.end in (DROP, REJECT) else self._hook("nat-postrouting", after)

    def _others_nat(self, state: _State) -> _State:
        # The first translation of a connection counts, also one to the address that it has.
        if state.end or not self.host_port_pod or not self.host.is_local(state.packet.destination):
            return state
        ip, _, port = self.host_port_pod.rpartition(":")
        return _translated(state, ip, int(port))

    def _hook(self, chain: str, state: _State) -> Iterator[_State]:
        if state.end in (DROP, REJECT):
            yield state
            return
        for end, _ in self._chain(chain, replace(state, end="")):
            yield end

    def _chain(self, chain: str, state: _State, index: int = 0) -> Iterator[tuple[_State, bool]]:
        """Yield each end state, and whether it is final (else the calling chain goes on)."""
        rules = self.contents.rules[chain]
        if index == len(rules):
            yield state, False
            return
        for after, done in self._rule(rules[index], state):
            if done == "next":
                yield from self._chain(chain, after, index + 1)
            elif done == "final":
                yield after, True
            else:  # what a goto led to is over: the calling chain goes on
                yield after, False

    def _rule(self, rule: str, state: _State) -> Iterator[tuple[_State, str]]:
        """Yield (state, what follows): "next" rule, "final", or "return" to the calling chain."""
        rest = rule
        while rest:
            matches = ((re.match(pattern + r"(?: |$)", rest), known) for pattern, known in STATEMENTS)
            found, handler = next(((match, known) for match, known in matches if match), (None, None))
            if found is None or handler is None:
                raise AssertionError(f"the tracer does not know: {rest}")
            rest = rest[found.end() :]
            result = handler(self, found, state)
            if result is False:
                yield state, "next"
                return
            if result is True:
                continue
            if isinstance(result, _State):
                state = result
                continue
            for target in result:
                if isinstance(target, _State):
                    yield target, "final"
                elif target in ("next", "return"):
                    yield state, target
                else:
                    yield from self._go(target, state)
            return
        yield state, "next"

    def _go(self, verdict: str, state: _State) -> Iterator[tuple[_State, str]]:
        if verdict == "drop":
            yield replace(state, end=DROP), "final"
            return
        word, chain = verdict.split()
        for end, final in self._chain(chain, state):
            yield end, "final" if final else ("next" if word == "jump" else "return")

    def key(self, text: str, state: _State) -> str:
        packet = state.packet
        parts = {
            "ip saddr": packet.source,
            "ip daddr": packet.destination,
            "ip6 saddr": packet.source,
            "ip6 daddr": packet.destination,
            "meta l4proto": packet.protocol,
        }
        return " . ".join(parts.get(part) or str(packet.port) for part in text.split(" . "))

    def in_set(self, name: str, key: str) -> bool:
        """Return whether a set holds a key; its last part may be a range there."""
        *head, last = key.split(" . ")
        for held_set, held in self.contents.elements:
            *held_head, held_last = held.split(" . ")
            if held_set == name and held_head == head:
                if held_last == last:
                    return True
                if "-" in held_last:
                    low, high = map(ipaddress.ip_address, held_last.split("-"))
                    if low <= ipaddress.ip_address(last) <= high:  # type: ignore[operator]
                        return True
                if "/" in held_last and ipaddress.ip_address(last) in ipaddress.ip_network(held_last):
                    return True
        return False


def _address(tracer: TableTracer, found: re.Match[str], state: _State) -> bool:
    packet = state.packet
    address = ipaddress.ip_address(packet.source if found["side"] == "saddr" else packet.destination)
    ranges = found["value"].strip("{} ").split(", ")
    return any(address in ipaddress.ip_network(cidr) for cidr in ranges) != bool(found["not"])


def _interface(tracer: TableTracer, found: re.Match[str], state: _State) -> bool:
    name = tracer.host.interface_of(state.packet.source)
    return fnmatch.fnmatch(name, found["value"]) != bool(found["not"])


def _fib(tracer: TableTracer, found: re.Match[str], state: _State) -> bool:
    packet = state.packet
    address = packet.source if found["side"] == "saddr" else packet.destination
    return tracer.host.is_local(address) != bool(found["not"])


def _vmap(tracer: TableTracer, found: re.Match[str], state: _State) -> bool | list[str]:
    verdict = tracer.contents.elements.get((found["map"], tracer.key(found["key"], state)))
    return [verdict] if verdict else True


def _member(tracer: TableTracer, found: re.Match[str], state: _State) -> bool:
    return tracer.in_set(found["set"], tracer.key(found["key"], state)) != bool(found["not"])


def _masked_member(tracer: TableTracer, found: re.Match[str], state: _State) -> bool:
    address, mask = (int(ipaddress.ip_address(each)) for each in (state.packet.source, found["mask"]))
    kind = type(ipaddress.ip_address(state.packet.source))
    return tracer.in_set(found["set"], str(kind(address & mask)))


def _translate(tracer: TableTracer, found: re.Match[str], state: _State) -> list[_State]:
    ends = []
    for number in range(int(found["count"])):
        data = tracer.contents.elements[found["map"], f"{tracer.key(found['key'], state)} . {number}"]
        ip, port = data.split(" . ")
        ends.append(_translated(state, ip, int(port)))
    return ends


def _translated(state: _State, ip: str, port: int) -> _State:
    return replace(state, packet=replace(state.packet, destination=ip, port=port), translated=True, end=ACCEPT)


NUMBER = r"\(meta mark & 0 \^ 0x[\da-f]{8}\)"
"""An endpoint's number in a set of clients."""
STATEMENTS: list[tuple[str, Callable[["TableTracer", re.Match[str], _State], Any]]] = [
    (r"ip6? saddr \. " + NUMBER + r" @clients-[\w-]+", lambda tracer, found, state: False),
    (r'iifname (?P<not>!= )?"(?P<value>[^"]*)"', _interface),
    (r"ct state new", lambda tracer, found, state: True),
    (r"ct state invalid", lambda tracer, found, state: False),
    (r"ct status dnat", lambda tracer, found, state: state.translated),
    (r"fib (?P<side>saddr|daddr) type (?P<not>!= )?local", _fib),
    (r"ip6? saddr & (?P<mask>[\da-f.:]+) @(?P<set>[\w-]+)", _masked_member),
    (r"return", lambda tracer, found, state: ["return"]),
    (KEY + r" vmap @(?P<map>[\w-]+)", _vmap),
    (KEY + r" (?P<not>!= )?@(?P<set>[\w-]+)", _member),
    (r"ip6? (?P<side>saddr|daddr) (?P<not>!= )?(?P<value>\{ [^}]* \}|[\da-f./:]+)", _address),
    (
        r"meta mark & (?P<mask>0x\w+) == (?P<value>0x\w+)",
        lambda tracer, found, state: state.mark & int(found["mask"], 16) == int(found["value"], 16),
    ),
    (
        r"meta mark set meta mark \| (?P<value>0x\w+)",
        lambda tracer, found, state: replace(state, mark=state.mark | int(found["value"], 16)),
    ),
    (
        r"meta mark set meta mark & (?P<value>0x\w+)",
        lambda tracer, found, state: replace(state, mark=state.mark & int(found["value"], 16)),
    ),
    (r"reject with \w+ port-unreachable", lambda tracer, found, state: [replace(state, end=REJECT)]),
    (r"drop", lambda tracer, found, state: ["drop"]),
    (r"masquerade fully-random", lambda tracer, found, state: [replace(state, snat=True, end=ACCEPT)]),
    (r"(?P<verdict>(?:jump|goto) [\w-]+)", lambda tracer, found, state: [found["verdict"]]),
    (
        r"dnat ip6? addr \. port to " + KEY + r" \. numgen random mod (?P<count>\d+) map @(?P<map>[\w-]+)",
        _translate,
    ),
    (
        r"dnat ip6? prefix to ip6? daddr map \{ (?P<all>0\.0\.0\.0/0|::/0) : (?P=all) \}",
        lambda tracer, found, state: [replace(state, end=ACCEPT)],
    ),
    (
        r"meta l4proto (?P<protocol>\w+)(?! dnat to )",
        lambda tracer, found, state: state.packet.protocol == found["protocol"],
    ),
    (r"update @[\w-]+ \{ ip6? saddr \. " + NUMBER + r" \}", lambda tracer, found, state: True),
    (
        r"meta l4proto (?P<protocol>\w+) dnat to \[?(?P<ip>[\da-f.:]+?)\]?:(?P<port>\d+)",
        lambda tracer, found, state: (
            [_translated(state, found["ip"], int(found["port"]))]
            if state.packet.protocol == found["protocol"]
            else False
        ),
    ),
    (
        r"numgen random mod (?P<count>\d+) 0 (?P<verdict>goto [\w-]+)",
        lambda tracer, found, state: [found["verdict"], "next"],
    ),
]
