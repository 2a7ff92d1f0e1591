"""Rules that lead from a port's chain to its endpoints: with equal probability, or by session affinity.

Of n endpoints the first rule takes 1/n of the packets, the second 1/(n-1) of the rest, and so on. Each leads to a chain of
the endpoint's own (KUBE-SEP), which marks hairpin traffic and translates.

Lean rules (`RuleSettings.lean`) are for legacy tables: the kernel copies such a table out and in at every change, so what
a change costs is the table's size, of which comments are two thirds. Upstream leaves comments out in large clusters too.
The only endpoint of a port then needs no chain either: its two rules stand in the port's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from netproxy.endpoints import Endpoint
from netproxy.model import ServicePort
from netproxy.settings import RuleSettings
from netproxy.xtables import chain_names
from netproxy.xtables.matches import Chain, comment, full_mask, host_match, probability


def chains(
    port: ServicePort, chain: str, endpoints: Sequence[Endpoint], first: list[str], settings: RuleSettings
) -> dict[Chain, tuple[str, ...]]:
    """Return the chain that balances over these endpoints, after the rules `first`, and the endpoints' own."""
    label = str(port.name)
    if settings.lean and len(endpoints) == 1 and not port.affinity_seconds:
        return {("nat", chain): (*first, *_translate(port, endpoints[0], "", settings))}
    found: dict[Chain, tuple[str, ...]] = {}
    targets = []
    for each in endpoints:
        target = chain_names.endpoint(label, port.protocol, str(each))
        targets.append((target, "" if settings.lean else f"{comment(f'{label} -> {each}')} "))
        found["nat", target] = _translate(port, each, target, settings)
    rules = list(first)
    if port.affinity_seconds:
        rules += [
            f"{note}-m recent --rcheck --seconds {port.affinity_seconds} --reap "
            f"--name {target} --mask {full_mask(port.family)} --rsource -j {target}"
            for target, note in targets
        ]
    for index, (target, note) in enumerate(targets):
        left = len(targets) - index
        chance = f"-m statistic --mode random --probability {probability(left)} " if left > 1 else ""
        rules.append(f"{note}{chance}-j {target}")
    found["nat", chain] = tuple(rules)
    return found


def _translate(port: ServicePort, endpoint: Endpoint, chain: str, settings: RuleSettings) -> tuple[str, ...]:
    protocol, label = port.protocol.lower(), str(port.name)
    note = "" if settings.lean else f"{comment(label)} "
    # Hairpin: an endpoint that reaches itself must see the node as the source, or it would answer itself. Elsewhere than
    # on its node it can meet itself only where pods' packets from other nodes are not masqueraded.
    hairpin = f"-s {host_match(endpoint.ip)} {note}-j {chain_names.MARK_MASQ}"
    remember = (
        f"-m recent --set --name {chain} --mask {full_mask(port.family)} --rsource " if port.affinity_seconds else ""
    )
    matched = "" if settings.lean else f"-m {protocol} "
    translate = f"-p {protocol} {note}{remember}{matched}-j DNAT --to-destination {endpoint}"
    meets_itself = endpoint.local or port.external_local or not settings.lean
    return (hairpin, translate) if meets_itself else (translate,)
