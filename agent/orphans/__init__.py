"""What a containerd that was killed while it started or ended a sandbox leaves on the machine, found and removed.

Used only with a containerd that belongs to the agent's installation (`OwnContainerd`): another one may have other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OwnContainerd:
    """Where such a containerd has its things."""

    socket: Path
    root: Path
    state: Path
    reservations: Path
    """host-local's folder of the pod network: a file an address, with the sandbox's ID in it."""
    network: Path
    """The CNI network list."""
    plugins: Path
    """The folder of the CNI plugins."""
    results: Path = Path("/var/lib/cni/results")
    """Where libcni keeps the results of ADD, for all networks of the machine."""

    @property
    def bundles(self) -> Path:
        return self.state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def work(self) -> Path:
        return self.root / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def namespaces(self) -> Path:
        """Where network namespaces are mounted (netns_mounts_under_state_dir)."""
        return self.state / "io.containerd.grpc.v1.cri" / "netns"
