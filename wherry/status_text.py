"""The text of `wherry status`: tables of daemons and, with `-o wide`, of nodes, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube.build import GIT_VERSION
from wherry import VERSION, image_pulls, snapshot_status
from wherry.discovery import duration
from wherry.output import Column, size, table
from wherry.status import Daemon, Node, Status


class TableLine(str):
    """A line of a table, which stays whole; other lines are broken on a narrow terminal."""

    __slots__ = ()


DAEMONS: Sequence[Column[Daemon]] = (
    Column("DAEMON", lambda daemon: daemon.name),
    Column("PID", lambda daemon: str(daemon.pid or "")),
    Column("MEMORY", lambda daemon: size(daemon.memory) if daemon.pid else ""),
    Column("UPTIME", lambda daemon: duration(daemon.uptime) if daemon.pid else ""),
    Column("STATE", lambda daemon: daemon.state),
    Column("LOG", lambda daemon: daemon.log, wide=True),
)
NODES: Sequence[Column[Node]] = (
    Column("NODE", lambda node: node.name),
    Column("STATUS", lambda node: "Ready" if node.ready else "NotReady"),
    Column("VERSION", lambda node: node.version),
    Column("INTERNAL-IP", lambda node: node.address),
    Column("OS-IMAGE", lambda node: node.os),
    Column("KERNEL-VERSION", lambda node: node.kernel),
    Column("CONTAINER-RUNTIME", lambda node: node.runtime),
)


def lines(status: Status, *, wide: bool = False) -> Iterator[str]:
    """Return a status as lines of text."""
    yield f"wherry {VERSION} (Kubernetes {GIT_VERSION})"
    yield from map(TableLine, table(DAEMONS, status.daemons, wide=wide))
    yield from _daemons(status)
    yield f"API server {status.server}: {status.server_problem or 'ready'}"
    if wide and status.nodes:
        yield from map(TableLine, table(NODES, status.nodes, wide=True))
    for node in status.nodes:
        state = "Ready" if node.ready else f"not Ready{': ' if node.problem else ''}{node.problem}"
        if not wide or node.problem:
            yield f"node {node.name}: {state}{', ' if node.version else ''}{node.version}"
    yield from status.others
    yield from _pods(status)
    yield f"disk {status.disk.path}: {status.disk.used_percent} % used, {size(status.disk.free)} free"
    if status.snapshots is not None:
        yield snapshot_status.line(status.snapshots, status.now)
    yield from status.certificates


def _daemons(status: Status) -> Iterator[str]:
    if not any(daemon.pid for daemon in status.daemons):
        yield "nothing runs here: `wherry up` starts it"
    for daemon in status.daemons:
        if daemon.state != "running" and (daemon.problem or any(each.pid for each in status.daemons)):
            log = f"`{daemon.log}`" if " " in daemon.log else daemon.log
            yield f"{daemon.name} is {daemon.state}{': ' if daemon.problem else ''}{daemon.problem}; see {log}"
    if status.outdated:
        yield f"{', '.join(status.outdated)}: started before this version was installed; `wherry up` starts them again"


def _pods(status: Status) -> Iterator[str]:
    if not status.server_problem:
        counts = ", ".join(f"{number} {phase}" for phase, number in sorted(status.phases.items()))
        yield f"pods: {counts or 'none'}"
    for reason in status.not_ready:
        yield f"  {reason.count} not Ready, {reason.reason}: {reason.example}{' and others' if reason.count > 1 else ''}"
    if image_pulls.REASONS & {reason.reason for reason in status.not_ready}:
        yield f"  {image_pulls.HINT}"
