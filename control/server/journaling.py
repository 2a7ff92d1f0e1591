"""Entries of the journal about requests: writes with their users, and refused requests.

Objects that change all the time by design (leases, events, endpoints) and statuses are left out: their own fields show them.
"""

from __future__ import annotations

import msgspec

from control.auth.user import AuthzAttributes
from control.http.exchange import Request
from control.registry.context import Context, Written
from kube.errors import StatusError
from kube.journal import Journal
from kube.resources import Resource, by_path

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEFT_OUT = frozenset(
    ("leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io")
)
MOST_BYTES = 64 << 10
"""Size of an object whose name and revision are read from it: a larger one has those of the request."""
DENIED = "(denied)"
"""Namespace of denied requests: they cannot displace what happened in a namespace that their users have no part in."""
_PAST = {"create": "created", "update": "updated", "patch": "patched", "delete": "deleted"}


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""
    uid: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def written(
    journal: Journal | None, request: Request, resource: Resource, context: Context, result: Written | None
) -> None:
    """Record a write that was carried out; `result` is None if the answer has no object."""
    info = request.info
    if journal is None or context.dry_run or info.subresource == "status" or resource.target in LEFT_OUT:
        return
    small = result is not None and len(result.data) <= MOST_BYTES
    head = msgspec.json.decode(result.data, type=_Head).metadata if small and result is not None else _Metadata()
    part = f" its {info.subresource}" if info.subresource else ""
    manager = f" with {context.field_manager}" if context.field_manager else ""
    applied = "applied" if context.operation == "Apply" else _PAST.get(info.verb, info.verb)
    journal.record(
        resource.kind,
        info.namespace if resource.namespaced else "",
        info.name or head.name,
        request.user.name,
        f"{applied}{part}{manager}",
        uid=head.uid,
        revision=int(head.resourceVersion) if head.resourceVersion.isdigit() else 0,
        details=_admission(context),
        size=sum(map(len, context.annotations.values())) + 80 * len(context.changes),
    )


def _admission(context: Context) -> dict[str, object] | None:
    """Return what admission notes about a write for the audit log, and the fields that plugins have set.

    Webhooks and policies that changed the object or warned are in the notes.
    """
    if not context.annotations and not context.changes:
        return None
    found: dict[str, object] = dict(context.annotations)
    if context.changes:
        changed: dict[str, list[str]] = {}
        for plugin, path in dict.fromkeys(context.changes):
            changed.setdefault(plugin, []).append(path)
        found["changed"] = changed
    return found


def refused(journal: Journal | None, request: Request, error: StatusError) -> None:
    """Record a write that was refused, and every request that was denied."""
    attributes: AuthzAttributes | None = getattr(request, "attributes", None)
    if journal is None or attributes is None or not attributes.is_resource or error.conflict or error.not_found:
        return
    denied = error.code == 403 and f'User "{attributes.user.name}" cannot' in error.message
    if not denied and (attributes.verb not in WRITES or error.already_exists):
        return
    target = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    text = f"{attributes.verb} {target} was {'denied' if denied else 'refused'} ({error.code}): {error.message}"
    namespace = DENIED if denied else attributes.namespace
    known = by_path(attributes.group, attributes.version, attributes.resource)
    journal.record(known.kind if known is not None else target, namespace, attributes.name, attributes.user.name, text)
