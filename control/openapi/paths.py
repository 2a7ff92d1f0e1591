"""The operations of a resource as OpenAPI paths; clients look them up before they send a request (kubectl: support of
`fieldValidation` and `dryRun`).

One neutral description is made and then written in the manner of v2 or v3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from control.openapi import publishing, resource_metrics
from control.openapi.definitions import Style
from control.registry.served import served
from kube import schema
from kube.client import JSON
from kube.resources import Resource

Paths = dict[str, dict[str, Any]]
Kind = dict[str, str]
SCALE = "io.k8s.api.autoscaling.v1.Scale"
SCALE_KIND: Kind = {"group": "autoscaling", "kind": "Scale", "version": "v1"}
POSTED: dict[str, tuple[str, Kind]] = {
    "binding": ("io.k8s.api.core.v1.Binding", {"group": "", "kind": "Binding", "version": "v1"}),
    "eviction": ("io.k8s.api.policy.v1.Eviction", {"group": "policy", "kind": "Eviction", "version": "v1"}),
    "token": (
        "io.k8s.api.authentication.v1.TokenRequest",
        {"group": "authentication.k8s.io", "kind": "TokenRequest", "version": "v1"},
    ),
}
"""Subresources that are only created: the definition of what is sent and answered, and its kind."""

DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"

_PRETTY = ("pretty", "string")
"""Every operation takes it."""
_WRITE = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_LIST = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_DELETE = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)
_DESCRIPTIONS = {
    "allowWatchBookmarks": "Send BOOKMARK events with the current resourceVersion in a watch.",
    "continue": "Token of the previous page, for the next one.",
    "dryRun": "All: process the request without storing anything.",
    "fieldManager": "Name of the client, which owns the fields that it sets.",
    "fieldSelector": "Fields that restrict the list of returned objects, as metadata.name=web.",
    "fieldValidation": "Handling of unknown and duplicate fields: Ignore, Warn or Strict.",
    "force": "Take fields of other managers over in an apply.",
    "gracePeriodSeconds": "Seconds until the object is deleted; 0: at once.",
    "labelSelector": "Labels that restrict the list of returned objects, as app=web.",
    "limit": "Maximum number of objects in a page.",
    "orphanDependents": "Deprecated: use propagationPolicy.",
    "pretty": "true: indent the response.",
    "propagationPolicy": "Deletion of dependents: Orphan, Background or Foreground.",
    "resourceVersion": "Version from which a watch starts, or that a list is of.",
    "resourceVersionMatch": "Meaning of resourceVersion in a list: Exact or NotOlderThan.",
    "sendInitialEvents": "Begin a watch with the present objects as events.",
    "timeoutSeconds": "Seconds after which a list or watch ends.",
    "watch": "Watch for changes to the described resources: send events instead of a list.",
}
"""Query parameter -> its description. Upstream's test of the document looks for words of the selectors and of `watch`."""


class Operation(msgspec.Struct, frozen=True):
    """One method on one path."""

    method: str
    action: str
    id: str
    query: tuple[tuple[str, str], ...] = ()
    body: str = ""
    body_types: tuple[str, ...] = (JSON, "application/yaml")
    answer: str = ""
    codes: tuple[int, ...] = (200,)
    shown: Kind | None = None
    """The kind that goes over the wire, where it is not the resource's: clients go by it when they choose a patch."""


def definition(resource: Resource) -> str:
    """Return the OpenAPI name of the resource's type."""
    if name := resource_metrics.name(resource):
        return name
    return publishing.name(resource) if resource.custom else schema.facts(resource.type).id


def of(resource: Resource, style: Style) -> Paths:
    """Return all paths of a resource, subresources too."""
    kind = definition(resource)
    scope = "Namespaced" if resource.namespaced else ""
    suffix = f"{_camel(resource.group.removesuffix('.k8s.io'))}{resource.version.capitalize()}"
    paths: Paths = {}

    def add(path: str, operations: Iterator[Operation], where: dict[str, str]) -> None:
        found = {o.method: _render(o, resource, style) for o in operations}
        if found:
            paths[path] = found | _parameters([_parameter(n, "path", "string", style, d) for n, d in where.items()])

    in_namespace = {"namespace": "object name and auth scope, such as for teams and projects"}
    named = {"name": f"name of the {resource.kind}"}
    where = in_namespace if resource.namespaced else {}
    collection = resource.path("{namespace}" if resource.namespaced else "")
    add(collection, _collection(resource, kind, suffix, f"{scope}{resource.kind}"), where)
    add(f"{collection}/{{name}}", _item(resource, kind, f"{suffix}{scope}{resource.kind}"), {**named, **where})
    if resource.namespaced and "list" in resource.verbs:
        every = Operation("get", "list", f"list{suffix}{resource.kind}ForAllNamespaces", _LIST, answer=f"{kind}List")
        add(resource.path(), iter([every]), {})
    for sub in resource.subresources:
        if sub in ("status", "scale", "resize", "ephemeralcontainers", "approval", "finalize"):
            body, shown = (SCALE, SCALE_KIND) if sub == "scale" else (kind, None)
            name = f"{suffix}{scope}{resource.kind}{_camel(sub)}"
            part = list(_part(resource, body, name, shown))
            if sub == "finalize":
                part = [operation for operation in part if operation.method == "put"]
            add(f"{collection}/{{name}}/{sub}", iter(part), {**named, **where})
        elif sub in POSTED:
            body, shown = POSTED[sub]
            name = f"create{suffix}{scope}{resource.kind}{_camel(sub)}"
            post = Operation("post", "post", name, _WRITE, body, answer=body, codes=(200, 201, 202), shown=shown)
            add(f"{collection}/{{name}}/{sub}", iter([post]), {**named, **where})
    return paths


def _collection(resource: Resource, kind: str, version: str, type_: str) -> Iterator[Operation]:
    name = version + type_
    if "list" in resource.verbs:
        yield Operation("get", "list", f"list{name}", _LIST, answer=f"{kind}List")
    if "create" in resource.verbs:
        yield Operation("post", "post", f"create{name}", _WRITE, kind, answer=kind, codes=(200, 201, 202))
    if "deletecollection" in resource.verbs:
        # Upstream's names have the version behind the verb, and the verb is "delete".
        name = f"delete{version}Collection{type_}"
        yield Operation("delete", "deletecollection", name, _DELETE + _LIST[1:-1], DELETE_OPTIONS, answer=STATUS)


def _item(resource: Resource, kind: str, name: str) -> Iterator[Operation]:
    if "get" in resource.verbs:
        yield Operation("get", "get", f"read{name}", answer=kind)
    if "update" in resource.verbs:
        yield Operation("put", "put", f"replace{name}", _WRITE, kind, answer=kind, codes=(200, 201))
        yield _patch(resource, kind, name)
        yield Operation("delete", "delete", f"delete{name}", _DELETE, DELETE_OPTIONS, answer=STATUS, codes=(200, 202))


def _part(resource: Resource, kind: str, name: str, shown: Kind | None) -> Iterator[Operation]:
    yield Operation("get", "get", f"read{name}", answer=kind, shown=shown)
    yield Operation("put", "put", f"replace{name}", _WRITE, kind, answer=kind, codes=(200, 201), shown=shown)
    yield _patch(resource, kind, name, shown)


def _patch(resource: Resource, kind: str, name: str, shown: Kind | None = None) -> Operation:
    query = (*_WRITE, ("force", "boolean"))
    types = tuple(sorted(served(resource).patch_types))
    return Operation("patch", "patch", f"patch{name}", query, PATCH, types, kind, (200, 201), shown)


def _camel(text: str) -> str:
    return "".join(part.capitalize() for part in text.split(".")) if text else "Core"


def _render(operation: Operation, resource: Resource, style: Style) -> dict[str, Any]:
    parameters = [
        _parameter(name, "query", type_, style, _DESCRIPTIONS[name]) for name, type_ in (*operation.query, _PRETTY)
    ]
    if style == "v2" and operation.body:
        body = {"$ref": f"#/definitions/{operation.body}"}
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
    out: dict[str, Any] = {
        "description": operation.id,
        "operationId": operation.id,
        "tags": [f"{(resource.group or 'core').removesuffix('.k8s.io').replace('.', '_')}_{resource.version}"],
        **_parameters(parameters),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.shown
        or {"group": resource.group, "kind": resource.kind, "version": resource.version},
    }
    answers = [JSON, "application/yaml"]
    if style == "v2":
        out["schemes"] = ["https"]
        out["produces"] = answers
        out["consumes"] = list(operation.body_types) if operation.body else ["*/*"]
        out["responses"] = {
            str(code): {"description": _MEANING[code], "schema": {"$ref": f"#/definitions/{operation.answer}"}}
            for code in operation.codes
        }
    else:
        if operation.body:
            reference = {"schema": {"$ref": f"#/components/schemas/{operation.body}"}}
            out["requestBody"] = {"content": dict.fromkeys(operation.body_types, reference), "required": True}
        answer = {"schema": {"$ref": f"#/components/schemas/{operation.answer}"}}
        content = dict.fromkeys(answers, answer)
        out["responses"] = {str(code): {"description": _MEANING[code], "content": content} for code in operation.codes}
    out["responses"]["401"] = {"description": "Unauthorized"}
    return out


def _parameters(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the field; none where it would be empty: Go's client reads an empty list and writes none."""
    return {"parameters": found} if found else {}


_MEANING = {200: "OK", 201: "Created", 202: "Accepted"}


def _parameter(name: str, place: str, type_: str, style: Style, description: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "in": place}
    if description:
        out["description"] = description
    if place == "path":
        out["required"] = True
    if style == "v2":
        return {**out, "type": type_, "uniqueItems": True}
    return {**out, "schema": {"type": type_, "uniqueItems": True}}
