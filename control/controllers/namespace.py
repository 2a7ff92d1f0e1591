"""Namespace controller: deletes the contents of a terminating namespace, then removes its finalizer.

All namespaced resources that the server has are requested (so custom ones too); what answers with content is deleted as
a collection. Pods go first, and nothing else is deleted before the last of them is gone: a pod that is still ending
keeps its NetworkPolicies, Secrets and service account (CVE-2024-7598). Conditions tell what is still in the way. When
nothing is left the finalizer "kubernetes" is taken off, and the API server removes the namespace. Upstream:
pkg/controller/namespace/deletion.
"""

from __future__ import annotations

import asyncio

import msgspec

from control.controllers.context import Context
from control.controllers.discovery import METADATA_LIST, ONE_OBJECT_BYTES, DiscoveredResource, served
from kube import step_limit
from kube.api import core_v1
from kube.client import JSON, Client, answered
from kube.clock import format_time, parse_time
from kube.controller import Controller
from kube.errors import AnswerTooLong, StatusError
from kube.informer import Change

FINALIZER = "kubernetes"
MOST_KINDS = 10
"""Kinds and finalizers that an entry of the journal names."""
LOOK_AGAIN_SECONDS = 5.0
"""For content that is not followed (events, resources that cannot be watched), or that was refused to be deleted."""
AT_ONCE = 4
"""Resources of a group version that are requested at a time: an extension server may serve it, and answer with megabytes."""
VERSION_SECONDS = 120.0
"""Seconds for all resources of a group version; what is left is deleted the next time."""
_BACKGROUND = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})


class Remains(msgspec.Struct):
    """Remaining objects of a namespace, and errors."""

    objects: dict[str, int] = msgspec.field(default_factory=dict)
    finalizers: dict[str, int] = msgspec.field(default_factory=dict)
    failures: list[str] = msgspec.field(default_factory=list)
    undiscovered: list[str] = msgspec.field(default_factory=list)

    def text(self) -> str:
        """Return for the journal what the deletion waits for."""
        kinds = [f"{number} {name.rstrip('.')}" for name, number in sorted(self.objects.items())[:MOST_KINDS]]
        finalizers = [f"finalizer {name} of {number}" for name, number in sorted(self.finalizers.items())[:MOST_KINDS]]
        others = [
            *finalizers,
            *sorted(self.failures)[:MOST_KINDS],
            *(f"group {g}" for g in self.undiscovered[:MOST_KINDS]),
        ]
        return f"deletion waits for {'; '.join([*kinds, *others])}" if kinds or others else ""

    @property
    def empty(self) -> bool:
        return not (self.objects or self.failures or self.undiscovered)


def conditions(remains: Remains) -> list[tuple[str, str, str, str]]:
    """Return (type, status, reason, message) of a terminating namespace's conditions."""
    found: list[tuple[str, str, str, str]] = []

    def add_condition(type_: str, failure: str, failure_reason: str, ok_reason: str, ok_message: str) -> None:
        failed = (type_, "True", failure_reason, failure)
        found.append(failed if failure else (type_, "False", ok_reason, ok_message))

    undiscovered = ", ".join(sorted(remains.undiscovered))
    add_condition(
        "NamespaceDeletionDiscoveryFailure",
        f"Discovery failed for some groups, {len(remains.undiscovered)} failing: {undiscovered}"
        if undiscovered
        else "",
        "DiscoveryFailed",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    )
    add_condition(
        "NamespaceDeletionGroupVersionParsingFailure",
        "",
        "GroupVersionParsingFailed",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    )
    failures = ", ".join(sorted(remains.failures))
    add_condition(
        "NamespaceDeletionContentFailure",
        f"Failed to delete all resource types, {len(remains.failures)} remaining: {failures}" if failures else "",
        "ContentDeletionFailed",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    )
    objects = ", ".join(f"{name} has {n} resource instances" for name, n in sorted(remains.objects.items()))
    add_condition(
        "NamespaceContentRemaining",
        f"Some resources are remaining: {objects}" if objects else "",
        "SomeResourcesRemain",
        "ContentRemoved",
        "All content successfully removed",
    )
    finalizers = ", ".join(f"{name} in {n} resource instances" for name, n in sorted(remains.finalizers.items()))
    add_condition(
        "NamespaceFinalizersRemaining",
        f"Some content in the namespace has finalizers remaining: {finalizers}" if finalizers else "",
        "SomeFinalizersRemain",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    )
    return found


class NamespaceController:
    """Follows namespaces, and hears of whatever goes from them."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._namespaces = context.informers.of(core_v1.Namespace)
        self._decisions = context.recorder("namespace-controller").decisions
        self.controller = Controller("namespace", self.reconcile, workers=4, clock=context.clock)
        self._namespaces.subscribe(self._namespace_changed)
        context.on_departure("namespace", self._departed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _namespace_changed(self, change: Change[core_v1.Namespace]) -> None:
        old, new = change.old, change.new
        if change.type == "DELETED" or new.metadata.deletion_timestamp is None:
            return
        # Not for conditions, which this controller writes: while requests fail, they name other failures each time.
        if old is None or old.metadata.deletion_timestamp is None or old.spec != new.spec:
            self.controller.enqueue(change.key)

    def _departed(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is not None and namespace.metadata.deletion_timestamp is not None:
            self.controller.enqueue(name)

    async def reconcile(self, key: str) -> float | None:
        """Empty one terminating namespace as far as it goes now."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return None
        if FINALIZER not in namespace.spec.finalizers:
            return None
        since = self._clock.now() - parse_time(namespace.metadata.deletion_timestamp)
        remains = await delete_content(self._client, key, since.total_seconds())
        self._decisions.changed(namespace, "content", remains.text())
        namespace = await self._write_conditions(namespace, remains)
        if not remains.empty:
            return LOOK_AGAIN_SECONDS
        left = [name for name in namespace.spec.finalizers if name != FINALIZER]
        spec = msgspec.structs.replace(namespace.spec, finalizers=left)
        try:
            await self._client.update(msgspec.structs.replace(namespace, spec=spec), subresource="finalize")
        except StatusError as error:
            if not error.not_found:
                raise
        return None

    async def _write_conditions(self, namespace: core_v1.Namespace, remains: Remains) -> core_v1.Namespace:
        now = format_time(self._clock.now())
        known = {c.type: c for c in namespace.status.conditions}
        changed = False
        for type_, status, reason, message in conditions(remains):
            old = known.get(type_)
            if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
                continue
            since = old.last_transition_time if old is not None and old.status == status else now
            known[type_] = core_v1.NamespaceCondition(
                type=type_, status=status, reason=reason, message=message, last_transition_time=since
            )
            changed = True
        if not changed or (not known_bad(known) and remains.empty and not namespace.status.conditions):
            return namespace
        status_ = msgspec.structs.replace(namespace.status, phase="Terminating", conditions=list(known.values()))
        return await self._client.update_status(msgspec.structs.replace(namespace, status=status_))


def known_bad(known: dict[str, core_v1.NamespaceCondition]) -> bool:
    return any(condition.status == "True" for condition in known.values())


async def delete_content(client: Client, namespace: str, terminating_seconds: float) -> Remains:
    """Delete everything in a namespace once over, pods first; return what is still there.

    Nothing but pods is deleted while there are pods, or while it is unknown whether there are.
    """
    remains = Remains()
    resources, remains.undiscovered = await served(client)
    contents = [r for r in resources if r.namespaced and {"list", "delete"} <= r.verbs]
    pods = [resource for resource in contents if resource.target == "pods"]
    for resource in pods:
        await _delete_resource(client, namespace, resource, remains, terminating_seconds)
    if remains.objects or remains.failures:
        return remains
    others = [resource for resource in contents if resource not in pods]
    versions: dict[str, list[DiscoveredResource]] = {}
    for resource in others:
        versions.setdefault(resource.api_version, []).append(resource)
    work = (_delete_version(client, namespace, v, r, remains, terminating_seconds) for v, r in versions.items())
    await asyncio.gather(*map(step_limit.inherited, work))
    return remains


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    finalizers: list[str] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    termination_grace_period_seconds: int | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None


class _Partial(msgspec.Struct):
    """Of an object what a list of metadata has of it."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Pod(_Partial):
    spec: _PodSpec | None = None
    status: _PodStatus | None = None

    @property
    def grace(self) -> int:
        """Seconds that the pod may take to end."""
        if self.spec is None or (self.status is not None and self.status.phase in ("Succeeded", "Failed")):
            return 0
        return self.spec.termination_grace_period_seconds or 0


async def _delete_version(
    client: Client,
    namespace: str,
    version: str,
    resources: list[DiscoveredResource],
    remains: Remains,
    terminating_seconds: float,
) -> None:
    """Delete the objects of a group version's resources, which one server serves, a few resources at a time."""
    left = iter(resources)

    async def work() -> None:
        for resource in left:
            await _delete_resource(client, namespace, resource, remains, terminating_seconds)

    try:
        async with asyncio.timeout(VERSION_SECONDS):
            await asyncio.gather(*(step_limit.inherited(work()) for _ in range(min(AT_ONCE, len(resources)))))
    except TimeoutError:
        remains.failures.append(f"{version}: its objects were not deleted within {VERSION_SECONDS:g} seconds")


async def _delete_resource(
    client: Client, namespace: str, resource: DiscoveredResource, remains: Remains, terminating_seconds: float
) -> None:
    number, grace, finalizers, pods = 0, 0, dict[str, int](), resource.target == "pods"
    try:
        if not await _any(client, namespace, resource):
            return
        if "deletecollection" in resource.verbs:
            await client.call("DELETE", resource.path(namespace), body=_BACKGROUND)
        else:
            await _delete_each(client, namespace, resource)
        shape: type[_Partial] = _Pod if pods else _Partial
        async for item in client.each(resource.path(namespace), shape, accept=JSON if pods else METADATA_LIST):
            number += 1
            for name in item.metadata.finalizers or ():
                finalizers[name] = finalizers.get(name, 0) + 1
            # The longest time that one of the pods may take to end, from the namespace's deletion on.
            grace = max(grace, item.grace if isinstance(item, _Pod) else 0)
    except StatusError as error:
        if not error.not_found and error.code != 405:
            remains.failures.append(f"{resource.target}: {error}")
        return
    if not number:
        return
    remains.objects[f"{resource.plural}.{resource.group}"] = number
    for name, count in finalizers.items():
        remains.finalizers[name] = remains.finalizers.get(name, 0) + count
    if not finalizers and not (pods and grace > terminating_seconds):
        gvr = f"{resource.group}/{resource.version}, Resource={resource.plural}"
        remains.failures.append(f"unexpected items still remain in namespace: {namespace} for gvr: {gvr}")


async def _delete_each(client: Client, namespace: str, resource: DiscoveredResource) -> None:
    async for item in client.each(resource.path(namespace), _Partial, accept=METADATA_LIST):
        try:
            await client.call("DELETE", resource.path(namespace, item.metadata.name), body=_BACKGROUND)
        except StatusError as error:
            if not error.not_found:
                raise


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


async def _any(client: Client, namespace: str, resource: DiscoveredResource) -> bool:
    """Return whether a namespace has objects of a resource."""
    path, one = resource.path(namespace), {"limit": "1"}
    try:
        data = await client.call("GET", path, query=one, accept=METADATA_LIST, most_bytes=ONE_OBJECT_BYTES)
    except AnswerTooLong:
        return True  # of an extension server that ignores `limit`
    return bool(answered(data, _Page, path).items)
