"""Finds the object that a pod's template is in: commands change that one, not the pod."""

from __future__ import annotations

from typing import Any

from kube.api import apps_v1, batch_v1, core_v1
from kube.api.meta_v1 import OwnerReference
from kube.object_names import namespace_of
from wherry.why.model import Reference, reference
from wherry.why.reading import Reader

CONTROLLERS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        apps_v1.ReplicaSet,
        apps_v1.Deployment,
        apps_v1.StatefulSet,
        apps_v1.DaemonSet,
        batch_v1.Job,
        batch_v1.CronJob,
        core_v1.ReplicationController,
    )
}
"""Kinds with a pod template, by name."""


def controller_of(obj: Any) -> OwnerReference | None:
    """Return the owner that manages an object, if there is one."""
    return next((owner for owner in obj.metadata.owner_references if owner.controller), None)


async def owner(reader: Reader, obj: Any) -> Any | None:
    """Return the controller of an object, if it is a workload that can be read and still is that one."""
    found = controller_of(obj)
    if found is None or found.kind not in CONTROLLERS:
        return None
    read: Any | None = await reader.get(CONTROLLERS[found.kind], found.name, namespace_of(obj))
    return read if read is not None and read.metadata.uid == found.uid else None


async def template_owner(reader: Reader, obj: Any) -> Reference:
    """Return the object to change so that pods like this one change: the first in the chain of controllers, else itself."""
    current = obj
    for _ in range(3):
        above = await owner(reader, current)
        if above is None:
            break
        current = above
    return reference(current)
