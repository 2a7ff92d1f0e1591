"""State of one pod's status: the last known status in the API, and the status to be written.

What differs from the agent's last write has been written by others, except for the fields that belong to other components.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from agent.status.patch import difference
from kube.api import core_v1

OTHERS = (
    "nominated_node_name",
    "resource_claim_statuses",
    "extended_resource_claim_status",
    "node_allocatable_resource_claim_statuses",
)
"""The fields of a status that the scheduler and controllers write."""

_OF_CONTAINERS = (
    "init_container_statuses",
    "container_statuses",
    "ephemeral_container_statuses",
    "allocated_resources",
    "resources",
)


@dataclass(slots=True)
class StatusRecord:
    """A pod's status, and the tasks that write it."""

    namespace: str
    name: str
    reported: core_v1.PodStatus
    """The status in the API, as far as it is known."""
    last: core_v1.PodStatus
    """The newest status that was set."""
    revision: int = 0
    """The object's revision after our last write."""
    seen: core_v1.Pod | None = None
    """The newest version of the object that a watch or the response to a write has shown."""
    settled: int = 0
    """The revision of a version that a repair did not change: it differs only in how the server writes it."""
    refused: core_v1.PodStatus | None = None
    """The newest status that the API server refused as too large."""
    refused_part: core_v1.PodStatus | None = None
    """The newest part of a status that it refused, too."""
    repair_at: float = 0.0
    """Time from which others' writes may be overwritten again."""
    late: asyncio.Task[None] | None = None
    """Waits until then."""
    wanted: core_v1.PodStatus | None = None
    changed_at: float = 0.0
    """Time at which the oldest unwritten change was set."""
    task: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, pod: core_v1.Pod) -> None:
        """Keep a version of the object if it is the newest."""
        if self.seen is None or revision_of(pod) >= revision_of(self.seen):
            self.seen = pod

    def acceptable(self, status: core_v1.PodStatus) -> core_v1.PodStatus:
        """Return the status, the part of it that is to be written if it was refused, or what was reported if both were."""
        if status != self.refused:
            return status
        part = without_containers(status, self.reported)
        return part if part != self.refused_part else self.reported

    def written_by_others(self) -> core_v1.PodStatus | None:
        """Return the status that the API has if it is not what was reported; None if it is, or is not known."""
        if self.seen is None:
            return None
        revision = revision_of(self.seen)
        if revision < self.revision or revision <= self.settled:
            return None
        others = {name: getattr(self.reported, name) for name in OTHERS}
        found = msgspec.structs.replace(self.seen.status, **others)
        return found if difference(self.reported, found) is not None else None


def without_containers(status: core_v1.PodStatus, reported: core_v1.PodStatus) -> core_v1.PodStatus:
    """Return a status with the containers' statuses and the resources that were reported before: others may be large."""
    return msgspec.structs.replace(status, **{name: getattr(reported, name) for name in _OF_CONTAINERS})


def revision_of(pod: core_v1.Pod | None) -> int:
    """Return the number of a pod's resourceVersion; 0 if it has none."""
    text = (pod.metadata.resource_version if pod is not None else "") or ""
    return int(text) if text.isdigit() else 0
