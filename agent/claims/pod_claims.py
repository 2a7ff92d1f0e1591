"""Names the claims that a pod's containers use, and the requests of each that are for them.

A pod may have thousands of entries and of containers, so the entries are read once for all containers that are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.managers.errors import DynamicResourceError
from agent.node.extended_resources import is_extended
from kube.api import core_v1
from kube.pod_claims import ClaimError, claim_name, made_claims


class PodClaims:
    """The claims of some containers of one pod."""

    def __init__(self, pod: core_v1.Pod, containers: Iterable[core_v1.Container]) -> None:
        self.namespace = pod.metadata.namespace or ""
        self._pod, self._made = pod, made_claims(pod)
        given = list(containers)
        used = {claim.name for container in given if container.resources for claim in container.resources.claims}
        entries = pod.spec.resource_claims if used else ()
        self._entries = {entry.name: (number, entry) for number, entry in enumerate(entries) if entry.name in used}
        names = {container.name for container in given}
        self._extended: dict[str, list[str]] = {}
        """Requests of the claim that was made for extended resources, by container."""
        extended = pod.status.extended_resource_claim_status
        self._extended_claim = extended.resource_claim_name if extended is not None else ""
        for mapping in extended.request_mappings if extended is not None else ():
            if mapping.container_name in names and is_extended(mapping.resource_name):
                self._extended.setdefault(mapping.container_name, []).append(mapping.request_name)

    def name(self, entry: str) -> str | None:
        """Return the claim of an entry; None if there is none. Raise DynamicResourceError if it is not made yet."""
        found = self._entries.get(entry)
        return name_of(self._pod, found[1], self._made)[0] if found is not None else None

    def used_by(self, container: core_v1.Container) -> dict[str, set[str]]:
        """Return a container's claims, each with its requests that are for the container; "" is all of them.

        Raise DynamicResourceError if one is not made yet.
        """
        wanted: dict[str, set[str]] = {}
        for used in container.resources.claims if container.resources else ():
            wanted.setdefault(used.name, set()).add(used.request or "")
        found: dict[str, set[str]] = {}
        for entry in sorted(wanted.keys() & self._entries.keys(), key=lambda name: self._entries[name][0]):
            name = self.name(entry)
            if name is not None:
                found.setdefault(name, set()).update(wanted[entry])
        if container.name in self._extended:
            found.setdefault(self._extended_claim, set()).update(self._extended[container.name])
        return found


def name_of(
    pod: core_v1.Pod, entry: core_v1.PodResourceClaim, made: Mapping[str, str | None]
) -> tuple[str | None, bool]:
    """Return the name of an entry's claim, and whether the pod must own it. Raise DynamicResourceError."""
    try:
        return claim_name(pod, entry, made)
    except ClaimError as error:
        raise DynamicResourceError(str(error)) from error


def names_of(pod: core_v1.Pod) -> dict[str, bool]:
    """Return the names of all claims of a pod, each once, and whether the pod must own it. Raise DynamicResourceError."""
    made = made_claims(pod)
    found: dict[str, bool] = {}
    for entry in pod.spec.resource_claims:
        name, owned = name_of(pod, entry, made)
        if name is not None:
            found[name] = owned or found.get(name, False)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        found[extended.resource_claim_name] = True
    return found
