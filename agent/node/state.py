"""The node's state that pods depend on: capacity, labels, taints, what runtime and kernel can do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.podspec.dns import Resolver
from kube.api import core_v1
from kube.quantity import Quantity


@dataclass(slots=True)
class NodeState:
    """Facts of the node that change seldom and that pods show."""

    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    memory_capacity: int = 0
    swap_capacity: int = 0
    huge_page_sizes: tuple[str, ...] = ()
    """As 2Mi."""
    resolver: Resolver = field(default_factory=Resolver)
    host_file: str = ""
    runtime: tuple[str, str] = ("", "")
    """The container runtime's name and version."""
    network_problem: str = ""
    """Reason why the runtime cannot connect pods to a network, "" if it can or has not been asked yet."""
    recursive_read_only: Mapping[str, bool] = field(default_factory=dict)
    """True if a runtime handler makes what is mounted below a mount read-only too."""
    labels: Mapping[str, str] | None = None
    """The Node object's labels and taints; None until they were read from the API."""
    taints: Sequence[core_v1.Taint] = ()
    pressures: Callable[[], Mapping[str, bool]] = dict
    """The pressure conditions, and whether they hold."""
    supplemental_groups_policy: bool = False
    """The runtime can do without the groups that an image names for its user."""
    app_armor: bool = False
    """The kernel confines processes by AppArmor profiles."""
    shutting_down: bool = False
    report_requested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the node's status should be reported now: images, pressures, devices or volumes in use changed."""
    user_namespaces: Mapping[str, bool] = field(default_factory=dict)
    """By the name of a runtime handler: whether it can make user namespaces."""

    def request_report(self) -> None:
        """Have the node's status reported now."""
        self.report_requested.set()
