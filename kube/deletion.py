"""Deletion of objects that another client may delete first."""

from __future__ import annotations

import msgspec

from kube.client import Client
from kube.errors import StatusError


async def delete_if_present(
    client: Client, kind: type[msgspec.Struct], name: str, namespace: str = "", *, uid: str = ""
) -> None:
    """Delete an object, or do nothing if there is none; raises StatusError 409 if it has another uid than `uid`."""
    try:
        await client.delete(kind, name, namespace, uid=uid)
    except StatusError as error:
        if not error.not_found:
            raise
