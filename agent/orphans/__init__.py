"""Finds and removes the shims, network namespaces, addresses, containers and leases that containerd leaks.

It leaks them if it is killed, or its disk fails, while it starts or stops a sandbox or container: CRI no longer shows
these then.

Used only with a containerd that belongs to the agent's installation (`OwnContainerd`): another one may have other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OwnContainerd:
    """The socket and directories of a containerd that only this agent uses."""

    socket: Path
    root: Path
    state: Path
    reservations: Path
    """host-local's directory of the pod network: one file for each address, which contains the sandbox's ID."""
    network: Path
    """The CNI network list."""
    plugins: Path
    """The folder of the CNI plugins."""
    results: Path = Path("/var/lib/cni/results")
    """The directory of libcni's cached ADD results, for all networks of the machine."""

    @property
    def bundles(self) -> Path:
        return self.state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def work(self) -> Path:
        return self.root / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def namespaces(self) -> Path:
        """The directory in which containerd mounts network namespaces (netns_mounts_under_state_dir)."""
        return self.state / "io.containerd.grpc.v1.cri" / "netns"
