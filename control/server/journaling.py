"""Entries of the journal about requests: writes with their users, and refused requests.

Objects that change all the time by design (leases, events, endpoints) and statuses are left out: their own fields show them. A
refused request without the name of an object is left out too, since entries are read by it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from control.auth.user import AuthzAttributes
from control.http.exchange import Request
from control.registry.context import Context, Written
from kube.errors import StatusError
from kube.journal import LONGEST_NAME, Journal, kind_key, resource_key
from kube.json_object import Object
from kube.resources import Resource, by_path

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEFT_OUT = frozenset(
    ("leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io")
)
DENIED = "(denied)"
"""Namespace of denied requests, and of those of nodes that admission refuses: their users have no part in the namespace that
they name, and must not displace what happened there."""
AUTHORIZED = "authorized"
"""Extension of a request that was authorized."""
NODES = "system:nodes"
_PAST = {
    "create": "created",
    "update": "updated",
    "patch": "patched",
    "delete": "deleted",
    "deletecollection": "deleted",
}


def written(journal: Journal | None, request: Request, resource: Resource, context: Context, result: Written) -> None:
    """Record a write that was carried out."""
    info = request.info
    if journal is None or context.dry_run or info.subresource == "status" or resource.target in LEFT_OUT:
        return
    operation = "applied" if context.operation == "Apply" else _PAST.get(info.verb, info.verb)
    journal.record(
        kind_key(resource.group, resource.kind),
        info.namespace if resource.namespaced else "",
        info.name or result.name,
        request.user.name,
        _text(operation, info.subresource, context.field_manager),
        uid=result.uid,
        revision=result.revision,
        details={"changed": _grouped(context.changes)} if context.changes else None,
    )


def deleted(
    journal: Journal | None, request: Request, resource: Resource, context: Context, obj: Object, result: Written | None
) -> None:
    """Record the deletion of an object, or of one of a collection; `result` is None if the answer does not have it."""
    if journal is not None:
        meta, revision = obj["metadata"], result.revision if result is not None else 0
        written(journal, request, resource, context, Written(b"", False, meta["name"], meta.get("uid", ""), revision))


@functools.lru_cache(256)
def _text(operation: str, part: str, manager: str) -> str:
    """Return the text of a write; many writes share one."""
    return f"{operation}{f' its {part}' if part else ''}{f' with {manager}' if manager else ''}"


def _grouped(changes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the fields that each plugin has set."""
    found: dict[str, list[str]] = {}
    for plugin, path in dict.fromkeys(changes):
        found.setdefault(plugin, []).append(path)
    return found


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
        secret = attributes.resource == "secrets" and not attributes.group
        why = f"{error.reason}, with a message that may contain values" if secret else error.message
        _record(journal, namespace, attributes, f"was refused ({error.code}): {why}")


def _record(journal: Journal, namespace: str, attributes: AuthzAttributes, what: str) -> None:
    group, plural, name = attributes.group, attributes.resource, attributes.name
    if not name or len(name) > LONGEST_NAME:
        return
    known = by_path(group, attributes.version, plural)
    key = kind_key(group, known.kind) if known is not None else resource_key(group, plural)
    target = f"{plural}.{group}" if group else plural
    journal.record(key, namespace, name, attributes.user.name, f"{attributes.verb} {target} {what}")
