"""Discovery of kinds that are not built in, or that the server has in another version. Everybody may use its paths."""

from __future__ import annotations

import msgspec

from kube import resources
from kube.client import Client
from kube.errors import StatusError

MOST_GROUPS = 300
"""Limit of the groups of a server that are read."""


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


class _Resource(msgspec.Struct, rename="camel"):
    name: str
    kind: str = ""
    singular_name: str = ""
    namespaced: bool = False
    short_names: list[str] = []


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


async def find(client: Client, wanted: str, group: str = "") -> resources.Resource | None:
    """Return the kind with a plural, singular or short name in lower case, of a group if one is given; None if there is none.

    Raises StatusError if the groups cannot be read; groups of extension servers that do not answer are left out.
    """
    found = msgspec.json.decode(await client.call("GET", "/apis"), type=_Groups)
    for each in found.groups[:MOST_GROUPS]:
        if group and each.name != group:
            continue
        group_version = each.preferred_version.group_version
        try:
            data = await client.call("GET", f"/apis/{group_version}")
        except StatusError:
            continue
        for one in msgspec.json.decode(data, type=_Resources).resources:
            if wanted in {one.name, one.singular_name, one.kind.lower(), *one.short_names} and "/" not in one.name:
                version = group_version.rpartition("/")[2]
                return resources.Resource(each.name, version, one.name, one.kind, "", one.namespaced)
    return None
