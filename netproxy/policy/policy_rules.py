"""Translates the rules of one policy to those of nftables, with the sets that they name. No I/O."""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterator

from netproxy.families import of_family
from netproxy.nft.commands import PROTOCOLS, family_keyword
from netproxy.policy.model import EGRESS, INGRESS, Policy, Port, Rule
from netproxy.policy.ruleset import PolicyPart, digest
from netproxy.policy.selector import EVERY_POD, Selector

PEER = {EGRESS: "daddr", INGRESS: "saddr"}
SLICE = 100
"""Rules that are made between suspensions."""


class PolicyRules:
    """Makes the parts of policies in one family."""

    def __init__(self, family: int) -> None:
        self.family = family
        self._ip = family_keyword(family)
        self._address = "ipv4_addr" if family == 4 else "ipv6_addr"
        self._names: dict[object, str] = {}

    def new_part(self, direction: str, policy: Policy) -> Generator[None, None, PolicyPart]:
        """Return the part of a new policy without the members of selections, in slices."""
        part = PolicyPart(policy=policy)
        part.chains[self.name(direction, policy.key)] = yield from self._policy(direction, policy, part)
        return part

    def _policy(self, direction: str, policy: Policy, out: PolicyPart) -> Generator[None, None, tuple[str, ...]]:
        rules: dict[str, None] = {}
        end = f"accept {comment(policy.key)}"
        count = itertools.count(1)
        for rule in policy.rules[direction]:
            for peers, target in self._peers(direction, policy, rule, out):
                for ports in self._ports(rule, target, out):
                    rules[" ".join(filter(None, (peers, ports, end)))] = None
                    if not next(count) % SLICE:
                        yield
        return tuple(rules)

    def _peers(self, direction: str, policy: Policy, rule: Rule, out: PolicyPart) -> list[tuple[str, Selector]]:
        """Return a match for each group of peers, and the selector of the receivers, whose named ports count."""
        match = f"{self._ip} {PEER[direction]}"
        found: list[tuple[str, Selector]] = []
        subject = policy.subject if direction == INGRESS else None
        if rule.anyone:
            found.append(("", subject or EVERY_POD))
        for selector in rule.peers:
            name = self.name("pods", selector)
            if name not in out.declarations:
                out.declarations[name] = f"set {name} {{ type {self._address} ; }}"
                out.selections.setdefault(selector, []).append(name)
            found.append((f"{match} @{name}", subject or selector))
        blocks = of_family(rule.blocks, self.family)
        if any(text.endswith("/0") for text in blocks):
            found.append(("", subject or EVERY_POD))
        elif blocks:
            name = self.name("blocks", *blocks)
            out.declarations[name] = f"set {name} {{ type {self._address} ; flags interval ; }}"
            out.elements[name] = dict.fromkeys(blocks, "")
            found.append((f"{match} @{name}", subject or EVERY_POD))
        return found

    def _ports(self, rule: Rule, target: Selector, out: PolicyPart) -> Iterator[str]:
        """Yield a match for each group of ports, and for each port by name."""
        if not rule.ports:
            yield ""
        for protocol in dict.fromkeys(port.protocol.lower() for port in rule.ports):
            if protocol not in PROTOCOLS:
                continue
            ports = [port for port in rule.ports if port.protocol.lower() == protocol]
            if any(not port.name and not port.number for port in ports):
                yield f"meta l4proto {protocol}"
                continue
            ranges = _ranges([port for port in ports if port.number])
            if ranges:
                yield f"{protocol} dport {{ {', '.join(ranges)} }}"
            for port in ports:
                if port.name:
                    yield f"{self._ip} daddr . {protocol} dport @{self._named(port, target, out)}"

    def _named(self, port: Port, target: Selector, out: PolicyPart) -> str:
        """Return the set of those addresses and ports that pods call by this name."""
        name = self.name("named", target, port)
        if name not in out.declarations:
            out.declarations[name] = f"set {name} {{ type {self._address} . inet_service ; }}"
            out.selections.setdefault(target, [])
            out.named.setdefault(target, {})[name] = port
        return name

    def name(self, kind: str, *parts: object) -> str:
        """Return the name of a set or chain that these values determine."""
        key = (kind, *parts)
        found = self._names.get(key)
        if found is None:
            if len(self._names) > 20_000:
                self._names.clear()
            found = self._names[key] = f"{kind}-{digest(*parts)}"
        return found


def _ranges(ports: list[Port]) -> list[str]:
    """Return ports and ranges as text. Overlapping ones are joined, since nft refuses them in one set."""
    merged: list[list[int]] = []
    for first, last in sorted((port.number, port.last) for port in ports):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return [str(first) if first == last else f"{first}-{last}" for first, last in merged]


def comment(key: str) -> str:
    return f'comment "{re.sub(r"[^a-z0-9./-]", "", key)[:120]}"'
