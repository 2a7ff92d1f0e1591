"""The allocations of all containers on the node, by pod and by resource: each question about one reads only its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from agent.devices.checkpoint import Allocation


class Allocations:
    """In the order in which their pods were admitted: what is new is at the end of the checkpoint."""

    def __init__(self, found: Iterable[Allocation] = ()) -> None:
        self._pods: dict[str, dict[str, dict[str, Allocation]]] = {}
        """By pod UID, container and resource."""
        self._taken: dict[str, Counter[str]] = {}
        """By resource: for each device, how many containers have it; those of one pod may share it."""
        for allocation in found:
            self.add(allocation)

    def __iter__(self) -> Iterator[Allocation]:
        for containers in self._pods.values():
            for allocations in containers.values():
                yield from allocations.values()

    def __bool__(self) -> bool:
        return bool(self._pods)

    def add(self, allocation: Allocation) -> None:
        """Add an allocation; it replaces what the container had of the resource."""
        container = self._pods.setdefault(allocation.uid, {}).setdefault(allocation.container, {})
        self._give_back(container.get(allocation.resource))
        container[allocation.resource] = allocation
        self._taken.setdefault(allocation.resource, Counter()).update(allocation.ids)

    def remove(self, uid: str) -> bool:
        """Remove a pod's allocations; return whether it had any."""
        found = self._pods.pop(uid, {})
        for allocations in found.values():
            for allocation in allocations.values():
                self._give_back(allocation)
        return bool(found)

    def _give_back(self, allocation: Allocation | None) -> None:
        if allocation is not None:
            taken = self._taken[allocation.resource]
            for name in allocation.ids:
                taken[name] -= 1
                if not taken[name]:
                    del taken[name]
            if not taken:
                del self._taken[allocation.resource]

    def of(self, uid: str, container: str) -> list[Allocation]:
        """Return what a container has, by resource."""
        return [allocation for _, allocation in sorted(self._pods.get(uid, {}).get(container, {}).items())]

    def ids(self, uid: str, container: str, resource: str) -> list[str]:
        """Return the devices of a resource that a container has."""
        found = self._pods.get(uid, {}).get(container, {}).get(resource)
        return found.ids if found else []

    def taken(self, resource: str) -> Container[str]:
        """Return the devices of a resource that containers have."""
        return self._taken.get(resource, {})

    def has(self, resource: str) -> bool:
        """Return whether any container has devices of a resource."""
        return resource in self._taken

    @property
    def owners(self) -> set[str]:
        """The UIDs of the pods that have something."""
        return set(self._pods)
