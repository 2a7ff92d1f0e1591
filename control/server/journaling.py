"""Entries of the journal about requests: writes with their users, and refused requests.

Objects that change all the time by design (leases, events, endpoints) and statuses are left out: their own fields show them. A
refused request without the name of an object is left out too, since entries are read by it.
"""

from __future__ import annotations

import msgspec

from control.auth.user import AuthzAttributes
from control.http.exchange import Request
from control.registry.context import Context, Written
from kube.errors import StatusError
from kube.journal import LONGEST_NAME, Journal, kind_key, resource_key
from kube.resources import Resource, by_path

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEFT_OUT = frozenset(
    ("leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io")
)
MOST_BYTES = 64 << 10
"""Size of an object whose name and revision are read from it: a larger one has those of the request."""
DENIED = "(denied)"
"""Namespace of denied requests, and of those of nodes that admission refuses: their users have no part in the namespace that
they name, and must not displace what happened there."""
AUTHORIZED = "authorized"
"""Extension of a request that was authorized."""
NODES = "system:nodes"
_PAST = {"create": "created", "update": "updated", "patch": "patched", "delete": "deleted"}
_WEBHOOK = "mutation.webhook.admission.k8s.io/"


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
        kind_key(resource.group, resource.kind),
        info.namespace if resource.namespaced else "",
        info.name or head.name,
        request.user.name,
        f"{applied}{part}{manager}",
        uid=head.uid,
        revision=int(head.resourceVersion) if head.resourceVersion.isdigit() else 0,
        details=_webhooks(context),
    )


def _webhooks(context: Context) -> dict[str, str] | None:
    """Return the webhooks that were shown an object, and whether they changed it. Other notes are for the audit log only."""
    found = {key: value for key, value in context.annotations.items() if key.startswith(_WEBHOOK)}
    return found or None


def denied(journal: Journal | None, attributes: AuthzAttributes, error: StatusError) -> None:
    """Record a request that was not authorized."""
    if journal is not None and attributes.is_resource:
        _record(journal, DENIED, attributes, f"was denied ({error.code}): {error.message}")


def refused(journal: Journal | None, request: Request, error: StatusError) -> None:
    """Record a write that was refused although it was authorized."""
    if journal is None or AUTHORIZED not in request.extensions or error.conflict or error.not_found:
        return
    attributes = request.attributes
    if attributes.is_resource and attributes.verb in WRITES and not error.already_exists:
        namespace = DENIED if NODES in attributes.user.groups else attributes.namespace
        _record(journal, namespace, attributes, f"was refused ({error.code}): {error.message}")


def _record(journal: Journal, namespace: str, attributes: AuthzAttributes, what: str) -> None:
    group, plural, name = attributes.group, attributes.resource, attributes.name
    if not name or len(name) > LONGEST_NAME:
        return
    known = by_path(group, attributes.version, plural)
    key = kind_key(group, known.kind) if known is not None else resource_key(group, plural)
    target = f"{plural}.{group}" if group else plural
    journal.record(key, namespace, name, attributes.user.name, f"{attributes.verb} {target} {what}")
