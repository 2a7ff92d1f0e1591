"""Entries of the journal about requests: writes with their users, and refused requests without what they contain.

Objects that change all the time by design (leases, events, endpoints) and statuses are left out: their own fields show them. A
refused request without the name of an object is left out too, since entries are read by it.
"""

from __future__ import annotations

import msgspec

from control.auth.user import AuthzAttributes
from control.http.exchange import Request
from control.registry.context import Context, Written
from control.server.refusal_text import text_of
from kube.errors import StatusError
from kube.journal import DENIED, LONGEST_NAME, Journal, denied_name, kind_key, resource_key
from kube.resources import Resource, by_path

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEFT_OUT = frozenset(
    ("leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io")
)
MOST_BYTES = 1 << 20
"""Size of an object whose name, UID and revision are read from it (within 2 ms): a larger one has those of the request."""
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
    namespace, name = info.namespace if resource.namespaced else "", info.name or head.name
    if namespace and NODES in request.user.groups:  # mirror pods: a node may create them in all namespaces
        namespace, name = DENIED, denied_name(namespace, name)
    journal.record(
        kind_key(resource.group, resource.kind),
        namespace,
        name,
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
    """Record a request that was not authorized; the message has what the request line has, nothing of a body."""
    if journal is not None and attributes.is_resource:
        _record(journal, attributes, f"was denied ({error.code}): {error.message}", apart=True)


def refused(journal: Journal | None, request: Request, error: StatusError) -> None:
    """Record a write that was refused although it was authorized."""
    if journal is None or AUTHORIZED not in request.extensions or error.conflict or error.not_found:
        return
    attributes = request.attributes
    if attributes.is_resource and attributes.verb in WRITES and not error.already_exists:
        known = by_path(attributes.group, attributes.version, attributes.resource)
        text = f"was refused {text_of(error, known)}"
        _record(journal, attributes, text, apart=NODES in attributes.user.groups)


def _record(journal: Journal, attributes: AuthzAttributes, what: str, *, apart: bool) -> None:
    """Record a request; `apart`: its user has no part in the namespace, and must not displace what happened there."""
    group, plural, name = attributes.group, attributes.resource, attributes.name
    if not name or len(name) > LONGEST_NAME:
        return
    known = by_path(group, attributes.version, plural)
    key = kind_key(group, known.kind) if known is not None else resource_key(group, plural)
    target = f"{plural}.{group}" if group else plural
    namespace = attributes.namespace if known is None or known.namespaced else ""
    if apart:
        namespace, name = DENIED, denied_name(namespace, name)
    journal.record(key, namespace, name, attributes.user.name, f"{attributes.verb} {target} {what}")
