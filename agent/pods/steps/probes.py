"""Has the prober probe exactly a pod's running containers."""

from __future__ import annotations

from agent.interfaces import ProbeTarget
from agent.lifecycle import is_sidecar
from agent.pods.context import PodContext


def probe_containers(ctx: PodContext) -> None:
    """Probe the pod's running containers, and no others."""
    pod, node = ctx.state.pod, ctx.deps.node
    ip = node.host_ips[0] if pod.spec.host_network and node.host_ips else ctx.state.ip
    targets = []
    sidecars = [c for c in pod.spec.init_containers if is_sidecar(c)]
    for container in (*sidecars, *pod.spec.containers):
        record = ctx.state.runtime.latest(container.name)
        if record is not None and record.running:
            targets.append(ProbeTarget(container, record.id, record.started_at))
    ctx.deps.prober.sync(pod, ip, targets)
