"""Facts that checks evaluate, collected once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kube.json_object import Object
from wherry.settings import Settings


@dataclass(frozen=True, slots=True)
class Listening:
    """A TCP port that one of the daemons listens on."""

    daemon: str
    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        return self.address.startswith("127.") or self.address == "::1"


@dataclass(frozen=True, slots=True)
class Probed:
    """Responses of ports: HTTP statuses, 0 if nothing did, and names of cipher suites, "" where none was taken."""

    api_anonymous: int = 0
    api_profiling: int = 0
    api_weak_suite: str = ""
    kubelet_anonymous: int = 0
    kubelet_weak_suite: str = ""


@dataclass(frozen=True, slots=True)
class EtcdPort:
    """One port of etcd as a client without a certificate sees it."""

    url: str
    encrypted: bool
    trusted: bool = False
    """Its certificate is one of the given authority."""
    self_signed: bool = False
    open_to_all: bool = False
    """It answers those who show no certificate."""


@dataclass(frozen=True, slots=True)
class Etcd:
    """The ports of the members, and whether the authority is one of etcd's own."""

    clients: tuple[EtcdPort, ...] = ()
    peers: tuple[EtcdPort, ...] = ()
    own_authority: bool = False


@dataclass(frozen=True, slots=True)
class Containerd:
    """The containerd that the agent uses."""

    version: str
    restart_monitor: bool
    """Its plugin that starts ended containers again is loaded."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One machine and its cluster at one moment."""

    settings: Settings
    daemon_files: tuple[Path, ...] = ()
    """Files that define how the daemons are started: systemd's units, or the supervisor's plan."""
    owners: tuple[int, ...] = (0,)
    """User IDs that may own what Wherry writes: root, and the control plane's account where there is one."""
    listening: tuple[Listening, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    """kube-apiserver's flags in force (/flagz)."""
    plugins: frozenset[str] = frozenset()
    """Admission plugins that are on."""
    authorizers: tuple[str, ...] = ()
    kubelet: Object = field(default_factory=dict)
    """The KubeletConfiguration in force, or of the files on a machine without administrator."""
    kubelet_flags: dict[str, str] = field(default_factory=dict)
    host_name: str = ""
    probed: Probed = field(default_factory=Probed)
    etcd: Etcd = field(default_factory=Etcd)
    containerd: Containerd | None = None
    """None for another container runtime, or if `ctr` cannot query it."""
    audit_users: frozenset[str] = frozenset()
    """Users of the newest events in the audit log."""
    objects: dict[str, list[Object]] = field(default_factory=dict)
    """Kind -> the cluster's objects."""

    def of(self, kind: str) -> list[Object]:
        """Return the cluster's objects of a kind."""
        return self.objects.get(kind, [])

    def sockets(self, daemon: str) -> list[Listening]:
        return [each for each in self.listening if each.daemon == daemon]
