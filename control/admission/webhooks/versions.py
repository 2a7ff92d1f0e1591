"""The versions of a resource that a webhook may be shown, and an object's way to one of them and back.

Built-in kinds that several groups or versions show are converted as on the way to a client; custom resources as their
definition says, which may itself be a webhook.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from control.custom.resource import CustomResource
from control.registry.conversion import conversion
from kube import serialize
from kube.resources import RESOURCES, Resource

Object = dict[str, Any]


def versions_of(resource: Resource) -> list[Resource]:
    """Return all resources that show the same stored objects."""
    if isinstance(resource, CustomResource):
        names = [version["name"] for version in resource.definition["spec"]["versions"] if version.get("served")]
        return [dataclasses.replace(resource, version=name) for name in names]
    return [other for other in RESOURCES if other.storage_prefix == resource.storage_prefix]


async def shown_as(obj: Object | None, on_path: Resource, shown: Resource) -> Object | None:
    """Return an object of the version that is on the server's path as another version shows it."""
    if obj is None or shown.api_version == on_path.api_version:
        return obj
    if isinstance(on_path, CustomResource):
        return await on_path.parts.strategy.in_version(obj, shown.version)
    way = conversion(shown)
    return obj if way is None else way.to_served(obj)


async def taken_back(obj: Object, on_path: Resource, shown: Resource) -> Object:
    """Return what a webhook made of an object in the version on the path, with the types and fields of its kind.

    Raises msgspec.ValidationError or StatusError where it has none of the kind.
    """
    if isinstance(on_path, CustomResource):
        if shown.version != on_path.version:
            obj = await on_path.parts.strategy.from_version(obj)
        return on_path.parts.decoder.convert(obj, "Ignore", [])
    if obj.get("kind") != shown.kind:
        return dict(obj)  # of a subresource
    typed = serialize.to_dict(serialize.convert(obj, shown.type))
    typed |= {"kind": shown.kind, "apiVersion": shown.api_version}
    way = None if shown.api_version == on_path.api_version else conversion(shown)
    return typed if way is None else way.to_stored(typed)
