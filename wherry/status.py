"""`wherry status`: the state of this machine's daemons, and of the cluster's nodes and pods.

`collect` asks daemons and API server; the rest is pure. The machine is healthy if every daemon is, the API server is ready and
every node is Ready: pods that are not Ready, certificates that end soon and a full disk are shown, but change no exit status.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from kube.api import core_v1
from kube.build import GIT_VERSION
from kube.errors import StatusError
from wherry import VERSION, cluster, daemons, expiry, health, installation, other_network, snapshot_status
from wherry.errors import WherryError
from wherry.output import camel_case
from wherry.pod_problems import NotReady, not_ready
from wherry.settings import Settings
from wherry.snapshot_status import Snapshots


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon; `pid` is 0 if it does not run, `problem` is empty if it is healthy."""

    name: str
    pid: int
    memory: int
    """Proportional set size in bytes."""
    uptime: float
    """Seconds."""
    problem: str
    log: str
    """The file of its log, or the command that shows it."""

    @property
    def state(self) -> str:
        return "stopped" if not self.pid else "unhealthy" if self.problem else "running"


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `problem` is the Ready condition's message if it is not Ready."""

    name: str
    ready: bool
    problem: str
    version: str
    address: str = ""
    os: str = ""
    kernel: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem of the cluster's files; sizes in bytes."""

    path: str
    size: int
    free: int
    """Bytes that accounts other than root may use: file systems reserve some for root."""
    used: int

    @property
    def used_percent(self) -> int:
        """The part that is in use of what can be used, as `df` shows it."""
        return -(-100 * self.used // max(1, self.used + self.free))


@dataclass(slots=True)
class Status:
    """The state of the machine and the cluster."""

    server: str
    daemons: list[Daemon]
    disk: Disk
    certificates: list[str]
    """Certificates that end soon, each with its fix."""
    now: datetime
    snapshots: Snapshots | None = None
    """Scheduled snapshots; None if there is no schedule."""
    outdated: list[str] = field(default_factory=list)
    """Daemons that were started before the program was replaced."""
    others: list[str] = field(default_factory=list)
    """Parts of the network that other programs have."""
    server_problem: str = ""
    nodes: list[Node] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    """Number of pods by phase."""
    not_ready: list[NotReady] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return (
            all(daemon.state == "running" for daemon in self.daemons)
            and not self.server_problem
            and all(node.ready for node in self.nodes)
        )


async def collect(settings: Settings, now: datetime, server_seconds: float | None = None) -> Status:
    """Ask the daemons and the API server, which has a limit for its answers."""
    found: list[Daemon] = []
    for name, pid in (await daemons.running(settings)).items():
        problem = await health.problem(settings, name) if pid else None
        log = daemons.where_logged(settings, name)
        found.append(Daemon(name, pid, _resident(pid), round(installation.uptime(pid), 2), problem or "", log))
    certificates = [f"{one.what}: {one.fix}" for one in expiry.ending(settings, now)]
    status = Status(settings.server, found, _disk(settings.layout.state), certificates, now)
    status.snapshots, status.others = snapshot_status.read(settings, now), _others(settings)
    status.outdated = installation.outdated({daemon.name: daemon.pid for daemon in found})
    try:
        async with asyncio.timeout(server_seconds), cluster.connect(settings) as client:
            await client.call("GET", "/readyz")
            # A worker may look at its own node and at what runs there.
            own = settings.is_worker
            nodes = (
                [await client.get(core_v1.Node, settings.node_name)] if own else (await client.list(core_v1.Node)).items
            )
            selector = f"spec.nodeName={settings.node_name}" if own else ""
            pods = (await client.list(core_v1.Pod, field_selector=selector)).items
            status.server = getattr(client.transport, "server", settings.server)
    except TimeoutError as error:
        status.server_problem = str(error) or f"it did not answer within {server_seconds:g} s"
        return status
    except (StatusError, WherryError) as error:
        status.server_problem = error.message if isinstance(error, StatusError) else str(error)
        return status
    status.nodes = [_node(node) for node in nodes]
    for pod in pods:
        phase = pod.status.phase or "Unknown"
        status.phases[phase] = status.phases.get(phase, 0) + 1
    status.not_ready = not_ready(pods)
    return status


def as_data(status: Status) -> dict[str, object]:
    """Return a status as JSON data; sizes in bytes, times in seconds."""
    data = asdict(status, dict_factory=camel_case)
    del data["now"]
    return {"healthy": status.healthy, "version": VERSION, "kubernetes": GIT_VERSION, **data}


def _others(settings: Settings) -> list[str]:
    """Return which parts of the network are not Wherry's on this machine, a sentence each."""
    found = []
    if not settings.own_pod_network:
        found.append(other_network.summary(settings))
    if not settings.own_proxy:
        found.append("Services: served by another proxy")
    if not settings.serves_dns:
        where = f", at {settings.cluster_dns}" if settings.dns_addresses else ""
        found.append(f"cluster DNS: not Wherry's{where}")
    return found


def _node(node: core_v1.Node) -> Node:
    condition = cluster.ready_condition(node)
    ready = condition is not None and condition.status == "True"
    problem = "" if ready or condition is None else condition.message or ""
    address = next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")
    info = node.status.node_info or core_v1.NodeSystemInfo()
    texts = (info.kubelet_version, address, info.os_image, info.kernel_version, info.container_runtime_version)
    return Node(node.metadata.name or "", ready, problem, *(text or "" for text in texts))


def _disk(folder: Path) -> Disk:
    while not folder.exists():
        folder = folder.parent
    found = os.statvfs(folder)
    blocks = (found.f_blocks, found.f_bavail, found.f_blocks - found.f_bfree)
    return Disk(str(folder), *(number * found.f_frsize for number in blocks))


def _resident(pid: int) -> int:
    """Return the bytes of memory that a process has for itself and its share of what it shares (PSS)."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0
