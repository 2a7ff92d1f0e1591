"""Objects for admission plugins: from the watch cache, and from the store if the cache may be behind.

`target` is `Resource.target`: "namespaces", "priorityclasses.scheduling.k8s.io". Objects are read-only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Protocol

from control.interfaces import default_class
from kube.json_object import Object
from kube.resources import Resource
from kube.selectors import LabelSelector


class Objects(Protocol):
    """Built-in objects. Implemented by the API server on its watch cache and store."""

    def get(self, target: str, namespace: str, name: str) -> Object | None:
        """Return an object from memory, None if it is not there (yet)."""
        ...

    def list(self, target: str, namespace: str = "") -> Iterable[Object]:
        """Return all objects of a namespace ("": of all) from memory."""
        ...

    def count(self, target: str, namespace: str) -> int:
        """Return how many objects a namespace has."""
        ...

    def each(self, target: str, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
        """Give the objects of a namespace ("": of all) with their bytes, with turns of others in between.

        Parts of a large one are decoded when they are requested by name.
        """
        ...

    def indexed(self, target: str, namespace: str, value: str) -> AsyncIterator[Object]:
        """Give the objects of a namespace that are indexed by a value (EndpointSlices by their Service), in random order."""
        ...

    async def fresh(self, target: str, namespace: str, name: str) -> Object | None:
        """Return an object as the store has it now; for what may have been made a moment ago."""
        ...


class Lookup(Objects, Protocol):
    """Objects of all kinds, custom ones too, and what admission writes."""

    def select(
        self, user: str, resource: Resource, namespace: str, chosen: str | LabelSelector
    ) -> AsyncIterator[Object]:
        """Give the object of a name, or those of a namespace that a selector matches; custom ones, too.

        Each is decoded when it is requested, a large one at the user's turn.
        """
        ...

    async def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource whose objects are of a kind, custom ones too; None if there is none."""
        ...

    async def create(self, target: str, obj: Object) -> Object:
        """Create an object as the server itself; StatusError where that cannot be."""
        ...

    async def update_status(self, target: str, obj: Object) -> Object:
        """Write an object's status if its resourceVersion is still the newest; StatusError 409 otherwise."""
        ...


async def find(lookup: Objects, target: str, namespace: str, name: str) -> Object | None:
    """Return an object from memory or, if it is not there, from the store."""
    found = lookup.get(target, namespace, name)
    return found if found is not None else await lookup.fresh(target, namespace, name)


def default_of(lookup: Objects, target: str, marks: Iterable[str]) -> str | None:
    """Return the name of the class that is the default of its kind, None if none is."""
    found = (class_["metadata"] for class_ in lookup.list(target))
    return default_class.newest(
        (str(m.get("creationTimestamp", "")), str(m["name"]))
        for m in found
        if default_class.marked(m.get("annotations"), marks)
    )
