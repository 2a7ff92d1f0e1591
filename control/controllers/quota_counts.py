"""Numbers of a namespace's objects for quotas such as "count/deployments.apps".

The server tells the number with one object of a list; an extension server may not, and is counted in pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from decimal import Decimal

import msgspec

from control.admission import quota as quotas
from control.controllers.discovery import METADATA_LIST, ONE_OBJECT_BYTES, DiscoveredResource, served
from control.controllers.quota_names import counted_by
from control.event_loop.pacing import TimeSlice
from kube.client import Client, answered
from kube.errors import AnswerTooLong, StatusError, timeout

PAGE = 100
"""Objects listed at a time."""
COUNT_SECONDS = 60.0
"""Seconds for counting the objects of a resource: an extension server's list may have no end."""
_ZERO = Decimal(0)


class _Number(msgspec.Struct):
    """A page of a list, as far as counting needs it."""

    items: list[msgspec.Raw] | None = None
    metadata: _Rest = msgspec.field(default_factory=lambda: _Rest())


class _Rest(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


async def count_objects(
    client: Client, namespace: str, quota_names: Iterable[str], failures: dict[str, StatusError]
) -> quotas.Usage:
    """Count the objects of a namespace that quota names such as "count/deployments.apps" mean; others are left out.

    What a kind that cannot be listed raises is recorded in `failures`, by quota name.
    """
    counts: quotas.Usage = {}
    wanted: dict[tuple[str, str], list[str]] = {}
    time_slice = TimeSlice()
    for name in quota_names:
        if time_slice.over():
            await time_slice.turn()
        if (counted := counted_by(name)) is not None:
            counts[name] = _ZERO
            wanted.setdefault(counted, []).append(name)
    if not wanted:
        return {}
    resources, _ = await served(client)
    for resource in resources:
        names = wanted.pop((resource.plural, resource.group), None) if resource.namespaced else None
        if not names:
            continue
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                number = Decimal(await _number(client, resource, namespace))
            counts |= dict.fromkeys(names, number)
        except (TimeoutError, StatusError) as error:
            what = f"{resource.plural}.{resource.group}".rstrip(".")
            late = timeout(f"{what} could not be counted within {COUNT_SECONDS:g} seconds")
            for name in names:
                failures[name] = late if isinstance(error, TimeoutError) else error
                del counts[name]
    return counts


async def _number(client: Client, resource: DiscoveredResource, namespace: str) -> int:
    """Request one object and the remaining count; if the server omits it, list metadata in pages."""
    found, query, path = 0, {"limit": "1"}, resource.path(namespace)
    limit: int | None = ONE_OBJECT_BYTES
    while True:
        try:
            data = await client.call("GET", path, query=query, accept=METADATA_LIST, most_bytes=limit)
            page = answered(data, _Number, path)
        except AnswerTooLong:
            if limit is None:
                raise
            query, limit = {"limit": str(PAGE)}, None  # the server ignores `limit`: the answer is the whole list
            continue
        except StatusError as error:
            if error.not_found:
                return 0
            raise
        found += len(page.items or ())
        if not page.metadata.continue_:
            return found
        if page.metadata.remaining_item_count is not None:
            return found + page.metadata.remaining_item_count
        query, limit = {"limit": str(PAGE), "continue": page.metadata.continue_}, None
