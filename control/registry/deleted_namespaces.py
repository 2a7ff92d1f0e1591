"""Takes back what was created in a namespace that another server has deleted meanwhile.

Admission looks at this server's cache, which may be behind: by seconds, or by minutes after a pause of the process. Whoever
deletes the contents of the namespace may have listed them before, and then nobody would ever delete the new object. When it is
stored the cache has reached its revision, and so knows of all deletions before it. (Upstream leaves such objects.)
"""

from __future__ import annotations

import contextlib

from control.registry.outcome import newest
from control.registry.registry import Registry
from control.registry.storing import storage_error
from control.storage.entry import Entry
from control.storage.store import Item, KeyNotFound, RevisionConflict, StoreError
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_path

_found = by_path("", "v1", "namespaces")
assert _found is not None
NAMESPACES: Resource = _found
ATTEMPTS, RETRY_SECONDS = 10, 1.0
"""Requests to a store that does not answer, and the seconds between them: nobody else knows of the object."""


def is_terminating(namespace: Object) -> bool:
    """Return whether a namespace is being deleted."""
    return (namespace.get("status") or {}).get("phase") == "Terminating" or "deletionTimestamp" in namespace["metadata"]


def add_cause(error: StatusError, namespace: str) -> StatusError:
    """Return the error of a creation in a namespace that is being deleted, with the cause that clients look for."""
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details["causes"] = [*error.details.get("causes", ()), cause]
    return error


def terminating_text(namespace: str) -> str:
    """Return why nothing is created in a namespace that is being deleted."""
    return f"unable to create new content in namespace {namespace} because it is being terminated"


def accepts(registry: Registry, namespace: str) -> bool:
    """Return whether a namespace exists and is not being deleted, as far as this server knows."""
    found = registry.peek(NAMESPACES, "", namespace) if namespace else None
    return found is not None and not is_terminating(found.obj)


async def take_back(registry: Registry, resource: Resource, namespace: str, name: str, item: Item) -> None:
    """Remove a new object again if its namespace was deleted before; raises 404, 403, and 500 if the store does not answer.

    To be called when the cache has the object, if `accepts` was true before it was stored.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found = await _current(registry, namespace, item.revision)
            if found is not None and not is_terminating(found.obj):
                return
            # Somebody may have deleted it, or know that it is there.
            with contextlib.suppress(KeyNotFound, RevisionConflict):
                await registry.store.delete(item.key, item.revision)
            break
        except StoreError as error:
            if attempt == ATTEMPTS:
                raise storage_error(error) from error
            await registry.clock.sleep(RETRY_SECONDS)
    if found is None:
        raise errors.not_found("", "namespaces", namespace)
    raise add_cause(errors.forbidden(resource.group, resource.plural, name, terminating_text(namespace)), namespace)


async def _current(registry: Registry, namespace: str, revision: int) -> Entry | None:
    """Return a namespace at a revision or later."""
    if registry.cache.revision >= revision:
        return registry.peek(NAMESPACES, "", namespace)
    return await newest(registry, NAMESPACES, NAMESPACES.key("", namespace))  # the cache is still behind
