"""What is known of one pod: the part of a worker that decides nothing and tells nobody (told.py).

The runtime's records are kept here as calls return and events come in. Two looks at a container may cross on their way, so
an end once seen is never unseen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from agent.contracts import ProbeOutcome, ProbeTarget
from agent.lifecycle import End, is_sidecar
from agent.node import log_rotation
from agent.pods.allocation import as_granted
from agent.pods.resize import Hold
from agent.pods.setup import make_sandbox_config, unlink_logs
from agent.pods.taken import Taken
from agent.pods.termination_messages import with_message
from agent.pods.toolbox import Toolbox
from agent.records import ContainerRecord, PodRuntime
from agent.status.container import Waiting
from agent.status.phase import ENDED_PHASES
from agent.threads import Owner
from agent.volumes.mounted import Mounted
from cri.errors import CRIError
from cri.messages import PodSandboxConfig
from kube.api import core_v1

log = logging.getLogger(__name__)


class PodState:
    """One pod as this node knows it."""

    def __init__(
        self,
        pod: core_v1.Pod,
        tools: Toolbox,
        runtime: PodRuntime | None = None,
        *,
        static: bool = False,
        rejected: End | None = None,
    ) -> None:
        self.uid = pod.metadata.uid or ""
        self.pod = pod
        self.tools = tools
        self.runtime = runtime or PodRuntime()
        self.static = static
        """The pod's source is a manifest on this machine: the API shows a mirror pod, if anything.

        Set by the source alone, never read from the pod: an author of API pods may write any annotation.
        """
        self.mirror: core_v1.Pod | None = None
        self.in_api = True
        """False once the object is gone from its source, the API or the manifest."""
        self.waiting: dict[str, Waiting] = {}
        """By container name: why it does not run."""
        self.mounted: dict[str, Mounted] | None = None
        self.applied: dict[str, core_v1.ResourceRequirements] | None = None
        """What the running containers were given, by ID; None until it was read from the last agent's note."""
        self.held: Hold | None = None
        self.allocated = as_granted(pod, tools.resources.allocated.of(self.uid))
        """The pod in the size that the node has granted it: the spec's, but for a resize that is held."""
        self._taken: Taken | None = None
        self.resize_error = ""
        self.end = self.rejected = rejected
        self.grace: int | None = None
        """The grace for the pod's end, where somebody gave one."""
        self.freed: Callable[[], None] = lambda: None
        """Called when what the pod held is free."""
        self.finished = False
        """Nothing of the pod runs any more and what it held is free."""
        self.discarded = False
        """Nothing of the pod is left."""
        self.suspect = False
        """The runtime may have something of the pod that we do not know of."""
        self.final_outcomes: dict[str, ProbeOutcome] = {}
        self.last_status: core_v1.PodStatus | None = None
        """What the API was told last, or would have been."""
        self._sandbox_config: tuple[int, PodSandboxConfig] | None = None

    @property
    def api_pod(self) -> core_v1.Pod | None:
        """The object that shows the pod in the API."""
        return self.mirror if self.static else self.pod

    @property
    def taken(self) -> Taken:
        """What the pod takes of the node in the size that it was granted."""
        if self._taken is None or self._taken.pod is not self.allocated:
            self._taken = Taken.of(self.allocated)
        return self._taken

    @property
    def cpu_request(self) -> int:
        """What the pod was granted of what it requests, in millicores."""
        return self.taken.requests.get("cpu", 0)

    @property
    def leaving(self) -> bool:
        """The pod is to vanish from this node, not only to end."""
        return not self.in_api or self.pod.metadata.deletion_timestamp is not None

    @property
    def ending(self) -> bool:
        return self.end is not None or self.leaving or self.pod.status.phase in ENDED_PHASES

    # -- what runs -----------------------------------------------------------------------------------------------------
    async def reload(self, container_id: str) -> ContainerRecord | None:
        """Read a container and keep its record; None where it is gone. Raise CRIError."""
        before = self.runtime.find(container_id)
        sandbox = self.runtime.sandbox
        sandbox_id = before.sandbox_id if before else (sandbox.id if sandbox else "")
        record = await self.tools.runtime.container(container_id, sandbox_id)
        if record is None:
            self.runtime = self.runtime.without_container(container_id)
            return None
        before = self.runtime.find(container_id)
        if before is not None and before.exited and not record.exited:
            return before  # two looks crossed: the later one knows better
        record = await with_message(record, self.tools.volumes.pod_dir(self.uid), Owner.of(self.pod))
        if before is not None and self.runtime.find(container_id) is None:
            return None  # removed meanwhile
        self.runtime = self.runtime.with_container(record)
        return record

    async def remove_container(self, container_id: str) -> None:
        """Remove a dead container instance from the runtime."""
        try:
            await self.tools.runtime.remove(container_id)
        except CRIError as error:
            log.warning("pod %s: removing %s: %s", self.uid, container_id[:13], error)
            return
        record = self.runtime.find(container_id)
        self.runtime = self.runtime.without_container(container_id)
        await asyncio.to_thread(unlink_logs, self.tools.config.container_logs_dir, {container_id})
        if record is not None and record.log_path:
            await asyncio.to_thread(log_rotation.remove_logs, Path(record.log_path))

    def probe(self) -> None:
        """Have exactly the running containers probed."""
        sandbox = self.runtime.sandbox
        ip = sandbox.ips[0] if sandbox and sandbox.ips else ""
        if self.pod.spec.host_network and self.tools.node.host_ips:
            ip = self.tools.node.host_ips[0]
        targets = []
        sidecars = [c for c in self.pod.spec.init_containers if is_sidecar(c)]
        for container in (*sidecars, *self.pod.spec.containers):
            record = self.runtime.latest(container.name)
            if record is not None and record.running:
                targets.append(ProbeTarget(container, record.id, record.started_at))
        self.tools.prober.sync(self.pod, ip, targets)

    def outcomes(self) -> dict[str, ProbeOutcome]:
        """Return what the probes say, by container ID."""
        if self.final_outcomes:
            return self.final_outcomes
        found = ((c.id, self.tools.prober.outcome(c.id)) for c in self.runtime.containers if c.running)
        return {container_id: outcome for container_id, outcome in found if outcome is not None}

    def sandbox_config(self) -> PodSandboxConfig:
        """Return the configuration of the current sandbox, as containers are made with it."""
        sandbox = self.runtime.sandbox
        attempt = sandbox.attempt if sandbox else 0
        if self._sandbox_config is None or self._sandbox_config[0] != attempt:
            self._sandbox_config = (attempt, make_sandbox_config(self.tools, self.pod, attempt))
        return self._sandbox_config[1]
