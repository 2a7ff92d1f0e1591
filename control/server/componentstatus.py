"""ComponentStatuses (deprecated): not stored; each request checks the components."""

from __future__ import annotations

import msgspec

from control.registry.registry import Registry
from control.storage.entry import Entry
from kube import errors
from kube.resources import Resource

PARTS = ("controller-manager", "etcd-0", "scheduler")
_PREFIX = "/registry/componentstatuses/"


async def entries(registry: Registry) -> list[Entry]:
    """Return the state of every part. The scheduler and the controllers live and die with this very process."""
    try:
        await registry.store.current_revision()
        store = ""
    except Exception as error:
        store = str(error)
    return [_entry(name, store if name == "etcd-0" else "") for name in PARTS]


async def entry(registry: Registry, resource: Resource, name: str) -> Entry:
    """Return the state of one part; raises 404."""
    for found in await entries(registry):
        if found.key == _PREFIX + name:
            return found
    raise errors.not_found(resource.group, resource.plural, name)


def _entry(name: str, problem: str) -> Entry:
    condition = {"type": "Healthy", "status": "False" if problem else "True", "message": problem or "ok"}
    obj = {
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [condition],
    }
    return Entry(_PREFIX + name, 0, msgspec.json.encode(obj), lambda obj: {})
