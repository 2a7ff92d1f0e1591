"""A PATCH request as a change: which of the four kinds it is, and how its outcome becomes an object of the type again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control.registry.registry import Context
from control.server.decode import Decoder
from control.server.exchange import Request
from kube.resources import Resource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """`change` maps the present object to the patched one; `creates`: an absent object is made (apply)."""

    change: Callable[[Object | None], Awaitable[Object]]
    creates: bool = False


def read(request: Request, body: bytes, resource: Resource, decoder: Decoder, context: Context, now: datetime) -> Patch:
    """Read a patch; raises 400 for one that cannot be read and 415 for a kind that is not known."""
    from kube import errors

    raise errors.unsupported_media_type("application/json-patch+json, application/merge-patch+json")
