"""`wherry status`: the daemons of this machine and the health of the cluster, at a glance."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from kube.api import core_v1
from kube.errors import StatusError
from wherry import cluster, daemons, health
from wherry.progress import console
from wherry.settings import Settings


async def show(settings: Settings) -> bool:
    """Print the state and return whether all is well."""
    well = True
    table = Table(box=None, header_style="bold")
    for heading in ("DAEMON", "PID", "MEMORY", "STATE"):
        table.add_column(heading)
    found, wrong = await daemons.running(settings), dict[str, str | None]()
    for daemon, pid in found.items():
        well &= pid > 0
        memory = f"{_resident(pid) >> 20} MiB" if pid else ""
        wrong[daemon] = await health.problem(settings, daemon) if pid else None
        state = "[red]stopped[/]" if not pid else "[red]not well[/]" if wrong[daemon] else "[green]running[/]"
        table.add_row(daemon, str(pid or ""), memory, state)
    well &= not any(wrong.values())
    console.print(table)
    for daemon in (daemon for daemon, pid in found.items() if not pid):
        console.print(f"why {daemon} is stopped: {daemons.where_logged(settings, daemon)}", soft_wrap=True)
    for daemon, why in wrong.items():
        if why:
            logged = daemons.where_logged(settings, daemon)
            console.print(f"{daemon} is not well: {why}; see {logged}", soft_wrap=True, markup=False)
    try:
        async with cluster.connect(settings) as client:
            await client.call("GET", "/readyz")
            # A worker may look at its own node and at what runs there.
            own = settings.is_worker
            nodes = (
                [await client.get(core_v1.Node, settings.node_name)] if own else (await client.list(core_v1.Node)).items
            )
            selector = f"spec.nodeName={settings.node_name}" if own else ""
            pods = await client.list(core_v1.Pod, field_selector=selector)
            server = getattr(client.transport, "server", settings.server)
    except StatusError as error:
        console.print(f"API server {settings.server}: [red]{error.message}[/]")
        return False
    console.print(f"API server {server}: [green]ready[/]")
    for node in nodes:
        condition = cluster.ready_condition(node)
        ready = condition is not None and condition.status == "True"
        well &= ready
        console.print(f"node {node.metadata.name}: {'[green]Ready[/]' if ready else '[red]not Ready[/]'}")
    phases: dict[str, int] = {}
    for pod in pods.items:
        phase = pod.status.phase or "Unknown"
        phases[phase] = phases.get(phase, 0) + 1
    console.print("pods: " + (", ".join(f"{n} {phase}" for phase, n in sorted(phases.items())) or "none"))
    return well


def _resident(pid: int) -> int:
    """Return the bytes of memory that a process has for itself and its share of what it shares (PSS)."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0
