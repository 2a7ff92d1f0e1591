"""Settings that rules are made from, in every mode: one value for all Services, one for the fixed chains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Settings of the rules of every port in one family."""

    family: int = 4
    local_cidrs: tuple[str, ...] = ()
    """Ranges of pods: traffic to a cluster IP from elsewhere is masqueraded. Empty: none is."""
    local_interface: str = ""
    """The interface of this node's pods, instead of `local_cidrs`; "veth+" matches all names that begin so."""
    masquerade_all: bool = False
    node_addresses: tuple[str, ...] = ()
    lean: bool = False
    """True if rules are kept as small as they can be: for legacy tables, which the kernel copies whole at each change."""

    @property
    def from_pods(self) -> list[str]:
        """The matches of what comes from pods."""
        return [f"-i {self.local_interface}"] if self.local_interface else [f"-s {cidr}" for cidr in self.local_cidrs]


@dataclass(frozen=True, slots=True)
class FixedChainSettings:
    """Settings of the fixed chains of one family."""

    family: int = 4
    mark: str = "0x4000"
    service_cidrs: tuple[str, ...] = ()
    cluster_cidrs: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    """This node's pods, where this process runs the pod network; empty leaves the pod chains empty."""
    node_port_cidrs: tuple[str, ...] = ()
    """Ranges of local addresses that serve node ports; empty: all do."""
    localhost_node_ports: bool = True
    drop_invalid: bool = True
