"""Parses a request's path and method: resource or not, verb, group, version, namespace, name, subresource.

The rules are those of apiserver's RequestInfoFactory, since RBAC rules are written against its answers. A path is read
once and cached: clients ask the same few thousand again and again.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kube import names, selectors
from kube.bounded_cache import bounded_cache

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class RequestInfo(msgspec.Struct, frozen=True):
    """One request as authorization and routing see it. `rest` is the path behind a proxy subresource."""

    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    rest: str = ""
    deprecated_watch: bool = False


@bounded_cache(8192)
def parse_path(method: str, path: str) -> RequestInfo:
    """Parse the path; the query determines whether a GET of a collection is a list or a watch."""
    outside = RequestInfo(path, method.lower())
    parts = [part for part in path.split("/") if part]
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return outside
    group = ""
    if parts[0] == "apis":
        if len(parts) < 4:
            return outside
        group = parts[1]
        parts = parts[1:]
    version, parts = parts[1], parts[2:]
    verb = _VERBS.get(method, "")
    watching = False
    special = parts[0] in ("watch", "proxy")
    if special:
        if len(parts) < 2:
            return outside
        verb, watching, parts = parts[0], parts[0] == "watch", parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 and verb != "proxy" else ""
    if not name and verb == "delete":
        verb = "deletecollection"
    elif not name and verb == "get":
        verb = "list"
    return RequestInfo(
        path, verb, True, group, version, namespace, parts[0], subresource, name, "/".join(parts[3:]), watching
    )


def with_query(info: RequestInfo, *, watch: bool, fields: selectors.FieldSelector) -> RequestInfo:
    """Refine a GET of a collection by its query: a watch, and the one name that `metadata.name=x` requests.

    A deletion of a collection and the old watch paths take no name from a selector, so a right to one name is not enough
    for them.
    """
    if info.verb != "list":
        return info
    verb = "watch" if watch else "list"
    name = "" if fields.empty else _selected_name(fields)
    return replace(info, verb=verb, name=name) if (verb, name) != (info.verb, info.name) else info


def _selected_name(fields: selectors.FieldSelector) -> str:
    """Return the name that a field selector requires, "" where it requires none that a path could have."""
    name = fields.exact("metadata.name")
    return name if name and not names.path_segment(name) else ""
