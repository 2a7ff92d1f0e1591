"""The object that a question is about: `pod/web`, `pods web`, `deploy/web`, `ships.example.org/one`."""

from __future__ import annotations

from typing import Any

import msgspec

from kube import resources
from kube.api import apiextensions_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from wherry.errors import UsageError, WherryError

WRONG = "{}: name one object as KIND/NAME, such as pod/web-1"


class CustomObject(msgspec.Struct, rename="camel"):
    """Fields that objects of all custom resources have."""

    metadata: meta_v1.ObjectMeta
    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def split(words: list[str]) -> tuple[str, str]:
    """Return the kind and the name of arguments: KIND/NAME, or KIND NAME. Raises WherryError."""
    if len(words) == 1 and words[0].count("/") == 1:
        kind, _, name = words[0].partition("/")
    elif len(words) == 2 and not any("/" in word for word in words):
        kind, name = words
    else:
        raise UsageError(WRONG.format(" ".join(words)))
    if not kind or not name:
        raise UsageError(WRONG.format(" ".join(words)))
    return kind, name


async def kind_named(client: Client, text: str) -> type[Any]:
    """Return the type of a kind by any of the names that kubectl accepts. Raises WherryError if there is none."""
    wanted, _, group = text.lower().partition(".")
    for resource in resources.RESOURCES:
        if wanted in {resource.plural, resource.singular, *resource.short_names} and group in ("", resource.group):
            found: type[Any] = resource.type
            return found
    custom = await _defined(client, wanted, group)
    if custom is None:
        raise WherryError(f'the server has no kind "{text}": `kubectl api-resources` lists them')
    return custom


async def _defined(client: Client, wanted: str, group: str) -> type[Any] | None:
    try:
        definitions = await client.list(apiextensions_v1.CustomResourceDefinition)
    except StatusError as error:
        raise WherryError(f"the kinds of the server cannot be read: {error}") from error
    for definition in definitions.items:
        spec = definition.spec
        if spec is None or spec.names is None:
            continue
        names = {spec.names.plural, spec.names.singular or "", spec.names.kind.lower(), *spec.names.short_names}
        if wanted not in names or group not in ("", spec.group):
            continue
        version = next((each.name for each in spec.versions if each.served), "")
        struct = msgspec.defstruct(spec.names.kind, [], bases=(CustomObject,), rename="camel")
        resource = resources.Resource(
            spec.group, version, spec.names.plural, spec.names.kind, "", spec.scope == "Namespaced"
        )
        resources.register_custom(struct, resource)
        return struct
    return None


async def kind_by_target(client: Client, target: str) -> type[Any] | None:
    """Return the type of a kind by the name in the server's messages ("pods.", "ships.example.org"); None if there is none."""
    try:
        return await kind_named(client, target.rstrip("."))
    except WherryError:
        return None
