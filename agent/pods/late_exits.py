"""Reading again what the runtime's events point at: it tells its listeners of an exit before it knows of it itself.

So what was said to be dead is looked at until it is, at growing intervals; where it still runs after two seconds, the event
was about something else, or the slow listing will find it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agent.pods.state import PodState
from cri.errors import CRIError

log = logging.getLogger(__name__)

EXIT_LAG = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between looks."""


async def read_again(pod: PodState, ids: Iterable[str]) -> None:
    """Read the containers and sandboxes of these IDs, which events said to have ended."""
    for container_id in ids:
        try:
            if any(sandbox.id == container_id for sandbox in pod.runtime.sandboxes):
                await _read_sandbox(pod, container_id)
            else:
                await _read_container(pod, container_id)
        except CRIError as error:
            log.warning("pod %s: reading %s: %s", pod.uid, container_id[:13], error)


async def _read_sandbox(pod: PodState, sandbox_id: str) -> None:
    for lag in EXIT_LAG:
        sandbox = await pod.tools.runtime.sandbox(sandbox_id)
        if sandbox is None:
            pod.runtime = pod.runtime.without_sandbox(sandbox_id)
            return
        if not sandbox.ready:
            pod.runtime = pod.runtime.with_sandbox(sandbox)
            return
        await pod.tools.clock.sleep(lag)


async def _read_container(pod: PodState, container_id: str) -> None:
    for lag in EXIT_LAG:
        record = await pod.reload(container_id)
        if record is None or record.exited:
            return
        await pod.tools.clock.sleep(lag)
