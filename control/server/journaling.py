"""Entries of the journal about requests: writes with their users, and refused requests without what they contain.

Objects that change all the time by design (leases, events, endpoints) and statuses are left out: their own fields show them. A
refused request without the name of an object is left out too, since entries are read by it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from control.auth.user import AuthzAttributes
from control.http.exchange import Request
from control.registry.context import Context, Written
from control.server.refusal_text import known_path, text_of
from kube.errors import StatusError
from kube.journal import DENIED, LONGEST_NAME, Journal, denied_name, kind_key, resource_key
from kube.json_object import Object
from kube.resources import Resource, by_path

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEFT_OUT = frozenset(
    ("leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io")
)
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
    namespace, name = info.namespace if resource.namespaced else "", info.name or result.name
    if namespace and NODES in request.user.groups:  # mirror pods: a node may create them in all namespaces
        namespace, name = DENIED, denied_name(namespace, name)
    journal.record(
        kind_key(resource.group, resource.kind),
        namespace,
        name,
        request.user.name,
        _text(operation, info.subresource, context.field_manager),
        uid=result.uid,
        revision=result.revision,
        details={"changed": _grouped(context.changes, resource)} if context.changes else None,
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


def _grouped(changes: Iterable[tuple[str, str]], resource: Resource) -> dict[str, list[str]]:
    """Return the fields that each plugin has set. Those of webhooks and policies may be keys that a client has chosen."""
    found: dict[str, list[str]] = {}
    for plugin, path in dict.fromkeys(changes):
        shown = _field(path, resource) if plugin.startswith(("webhook ", "policy ")) else path
        fields = found.setdefault(plugin, [])
        if shown not in fields:
            fields.append(shown)
    return found


def _field(path: str, resource: Resource) -> str:
    if path.startswith("/"):  # of a JSON patch
        parts = path[1:].split("/")
        path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts if part != "-").removeprefix(".")
    return known_path(path, by_path(resource.group, resource.version, resource.plural))


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
