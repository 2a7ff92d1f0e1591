"""What shapes every port's rules, whatever the Service: where pods are, what is masqueraded, how rules are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """What shapes the rules of every port in one family."""

    family: int = 4
    local_cidrs: tuple[str, ...] = ()
    """Where pods live: traffic to a cluster IP from elsewhere is masqueraded. Empty: none is."""
    local_interface: str = ""
    """Where this node's pods' packets come in, instead of `local_cidrs`; "veth+" are all whose name begins so."""
    masquerade_all: bool = False
    node_addresses: tuple[str, ...] = ()
    lean: bool = False
    """Whether rules are kept as small as they can be: for legacy tables, which the kernel copies whole at each change."""

    @property
    def from_pods(self) -> list[str]:
        """The matches of what comes from pods."""
        return [f"-i {self.local_interface}"] if self.local_interface else [f"-s {cidr}" for cidr in self.local_cidrs]
