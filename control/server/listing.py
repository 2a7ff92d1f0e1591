"""Pages of lists. Which state a list shows is decided in `control.storage.listing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from control.registry.registry import Registry
from control.server.list_options import ListOptions, check
from control.server.served_selectors import split
from control.storage.entry import Entry
from control.storage.listing import list_objects
from kube.resources import Resource


async def list_page(
    registry: Registry, resource: Resource, namespace: str, options: ListOptions
) -> tuple[Sequence[Entry], dict[str, Any]]:
    """Return a page of objects and the list's metadata; raises 400, 410, 422, 504."""
    check(options)
    strategy = registry.strategy(resource)
    options.fields, served_selector = split(strategy, options.fields)
    folder = options.folder(resource, namespace)
    found = await list_objects(
        registry.cache,
        registry.cached(resource),
        folder,
        options.predicate(),
        resource_version=options.revision,
        match=options.match,
        limit=0 if served_selector else options.limit,
        continue_token=options.token,
        costly=options.costly,
    )
    if served_selector is not None:
        found = await served_selector.page(found, folder, options.limit)
    metadata: dict[str, Any] = {"resourceVersion": str(found.revision)}
    if found.continue_token:
        metadata["continue"] = found.continue_token
        if found.remaining is not None:
            metadata["remainingItemCount"] = found.remaining
    return found.entries if served_selector else await strategy.view(found.entries), metadata
