"""Chains that the CNI plugin `portmap` leaves when the last pod with a host port is gone.

The plugin removes a pod's own chains and rules, and keeps three chains with the jumps to them. Other clusters on the machine
use the same chains, so they are removed only if no pod of anybody has a host port.
"""

from __future__ import annotations

import itertools

from kube.process import CommandError, run

CHAINS = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ")
"""The first has a jump for each pod that has host ports; the others have a rule of their own (portmap's chain.go)."""
FAMILIES = ("iptables", "ip6tables")
SECONDS = 30.0


async def remove() -> None:
    """Remove the chains in both families, where iptables is installed."""
    for family in FAMILIES:
        try:
            text = removal((await run([f"{family}-save", "-t", "nat"], timeout=SECONDS)).stdout)
            if text:
                await run([f"{family}-restore", "--noflush", "-w", "5"], input=text, timeout=SECONDS)
        except (CommandError, OSError):
            continue


def removal(saved: str) -> str:
    """Return the input of iptables-restore that removes the chains from a saved table; "" if there is nothing to remove."""
    lines = saved.splitlines()
    present = [chain for chain in CHAINS if any(line.startswith(f":{chain} ") for line in lines)]
    if not present or any(line.startswith(f"-A {CHAINS[0]} ") for line in lines):
        return ""
    jumps = [line for line in lines if line.startswith("-A ") and line.split()[1] not in CHAINS and _leads_to(line)]
    removed = [f"-D{line[2:]}" for line in jumps]
    # A chain that is declared is flushed.
    return "\n".join(
        ["*nat", *(f":{chain} - [0:0]" for chain in present), *removed, *(f"-X {c}" for c in present), "COMMIT", ""]
    )


def _leads_to(line: str) -> bool:
    words = line.split()
    return any(word == "-j" and target in CHAINS for word, target in itertools.pairwise(words))
