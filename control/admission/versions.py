"""The versions of a resource that a webhook may be shown, and an object's way to one of them and back.

Built-in kinds that several groups or versions show are converted as on the way to a client; custom resources as their
definition says, which may itself be a webhook.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from control.decoding.typed import to_object
from control.patch.schema import Node, of_object
from control.registry.served import Executor, run_inline, served
from kube.api import authentication_v1, autoscaling_v1, core_v1, policy_v1
from kube.json_object import Object
from kube.resources import Resource

SUBRESOURCE_TYPES: dict[tuple[str, str], type[msgspec.Struct]] = {
    ("v1", "Binding"): core_v1.Binding,
    ("policy/v1", "Eviction"): policy_v1.Eviction,
    ("autoscaling/v1", "Scale"): autoscaling_v1.Scale,
    ("authentication.k8s.io/v1", "TokenRequest"): authentication_v1.TokenRequest,
}
"""The kinds of objects that are sent to subresources and not stored, by apiVersion and kind."""


def versions_of(resource: Resource) -> Sequence[Resource]:
    """Return all resources that show the same stored objects."""
    return served(resource).versions()


def of_subresource(obj: Object, resource: Resource) -> bool:
    """Return whether an object is of another kind than its resource's: a subresource's own (Binding, Eviction, Scale)."""
    kind, version = obj.get("kind") or resource.kind, obj.get("apiVersion") or resource.api_version
    return (version.rpartition("/")[0], kind) != (resource.group, resource.kind)


def shape_of(obj: Object, on_path: Resource, shown: Resource) -> Node:
    """Return how an object merges in a version; KeyError for a kind that no subresource has."""
    if of_subresource(obj, on_path):
        return of_object(SUBRESOURCE_TYPES[obj["apiVersion"], obj["kind"]])
    return served(on_path if on_path.custom else shown).shape


async def shown_as(obj: Object | None, on_path: Resource, shown: Resource, run: Executor = run_inline) -> Object | None:
    """Return an object of the version that is on the server's path as another version shows it.

    `run` does the work on the whole object.
    """
    if obj is None or shown.api_version == on_path.api_version or of_subresource(obj, on_path):
        return obj
    return await served(on_path).in_version(obj, shown, run)


async def taken_back(
    obj: Object, on_path: Resource, shown: Resource, before: Object, run: Executor = run_inline
) -> Object:
    """Return what a webhook made of `before`, an object in the version on the path, with the types and fields of its kind.

    Raises msgspec.ValidationError or StatusError where it has none of the kind.
    """
    if of_subresource(before, on_path):
        typed: Object = await run(to_object, obj, SUBRESOURCE_TYPES[before["apiVersion"], before["kind"]])
        return typed | {"kind": before["kind"], "apiVersion": before["apiVersion"]}
    return await served(on_path).from_version(obj, shown, run)


def keep_identity(made: Object, before: Object) -> Object:
    """Restore what no admission plugin may change: who owns which field, the identity, and the revision."""
    meta, known = dict(made.get("metadata") or {}), before.get("metadata") or {}
    for key in ("managedFields", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "selfLink"):
        if key in known:
            meta[key] = known[key]
        else:
            meta.pop(key, None)
    return {**made, "metadata": meta}
