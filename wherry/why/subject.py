"""The object that a question is about: `pod/web`, `pods web`, `deploy/web`, `ships.example.org/one`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kube import resources
from kube.api import meta_v1
from kube.client import Client
from kube.errors import StatusError
from wherry.errors import UsageError, WherryError
from wherry.why import discovery

_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
WRONG = "name one object as KIND/NAME, such as pod/web-1"


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
        kind, name = "", ""
    if not kind or not name:
        raise UsageError(f"{' '.join(words)}: {WRONG}" if any(words) else WRONG)
    return kind, name


async def kind_named(client: Client, text: str) -> type[Any]:
    """Return the type of a kind by any of the names that kubectl accepts. Raises WherryError if there is none."""
    wanted, group = _parts(text)
    for resource in resources.RESOURCES:
        if wanted in {resource.plural, resource.singular, *resource.short_names} and group in ("", resource.group):
            found: type[Any] = resource.type
            return found
    return await served_kind(client, text)


async def served_kind(client: Client, text: str) -> type[Any]:
    """Return the type of a kind in the version that the server prefers, also of extensions. Raises WherryError."""
    wanted, group = _parts(text)
    try:
        resource = await discovery.find(client, wanted, group)
    except StatusError as error:
        raise WherryError(f"the kinds of the server cannot be read: {error}") from error
    if resource is None:
        raise WherryError(f'the server has no kind "{text}": `kubectl api-resources` lists them')
    struct = msgspec.defstruct(resource.kind, [], bases=(CustomObject,), rename="camel")
    resources.register_custom(struct, resource)
    return struct


def _parts(text: str) -> tuple[str, str]:
    """Return a kind's name and its group: KIND, KIND.GROUP or KIND.VERSION.GROUP."""
    wanted, _, group = text.lower().partition(".")
    first, _, rest = group.partition(".")
    return wanted, rest if rest and _VERSION.fullmatch(first) else group


async def kind_by_target(client: Client, target: str) -> type[Any] | None:
    """Return the type of a kind by the name in the server's messages ("pods.", "ships.example.org"); None if there is none."""
    try:
        return await kind_named(client, target.rstrip("."))
    except WherryError:
        return None
