"""Reading collections: selectors, pages, consistency and watches, as list options ask for them.

Which state a list shows is decided in `control.storage.listing`; here a query is read and checked, the narrowest folder of
the store is found that holds every match, and a watch becomes a stream of lines that ends in time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from control.http.exchange import Request, Response, Stream
from control.pacing import Pace
from control.registry.registry import Registry
from control.registry.storing import storage_error
from control.server import query_selectors
from control.server.converted import split
from control.server.forms import Form
from control.storage.entry import Entry, Predicate
from control.storage.listing import list_objects, parse_revision, too_large
from control.storage.store import Compacted, FutureRevision, StoreError
from control.storage.watcher import Notice
from kube import errors, selectors
from kube.counters import Counter
from kube.resources import Resource

MOST = 1 << 31
"""More objects than any list has: a limit beyond it is one that limits nothing."""
PART = 64 << 10
"""Bytes of objects that become one chunk of a watch."""
MANY = 16
"""Terms of a selector up to which a comparison takes a few microseconds."""
_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(slots=True)
class ListOptions:
    """A list's or a watch's options, checked."""

    labels: selectors.LabelSelector
    fields: selectors.FieldSelector
    revision: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    watch: bool = False
    timeout: int | None = None
    bookmarks: bool = False
    send_initial: bool | None = None

    @property
    def costly(self) -> bool:
        """True if comparing one object with the selectors can take milliseconds."""
        return len(self.labels.requirements) > MANY or len(self.fields.terms) > MANY

    def predicate(self) -> Predicate | None:
        """Return what an entry must fulfil; None where the selectors take everything."""
        labels, fields = self.labels, self.fields
        if labels.empty and fields.empty:
            return None
        if fields.empty:
            return lambda entry: labels.matches(entry.labels)
        if labels.empty:
            return lambda entry: fields.matches(entry.fields)
        return lambda entry: labels.matches(entry.labels) and fields.matches(entry.fields)


async def read_options(request: Request, known: frozenset[str] | None) -> ListOptions:
    """Read list options from a query; raises 400 for selectors and numbers that cannot be read.

    `known` names the selectable fields of the kind besides name and namespace; None: any.
    """
    try:
        labels, fields = await query_selectors.parsed(request, request.user.name)
    except selectors.SelectorError as error:
        raise errors.bad_request(str(error)) from error
    if known is not None:
        for term, _, _ in fields.terms:
            if term not in known and term not in _ALWAYS:
                raise errors.bad_request(f"field label not supported: {term}")
    return ListOptions(
        labels,
        fields,
        request.option("resourceVersion"),
        request.option("resourceVersionMatch"),
        min(max(request.number("limit") or 0, 0), MOST),  # below zero: all, as upstream
        request.option("continue"),
        bool(request.flag("watch")) or request.info.deprecated_watch,
        request.number("timeoutSeconds"),
        bool(request.flag("allowWatchBookmarks")),
        request.flag("sendInitialEvents"),
    )


def check(options: ListOptions) -> None:
    """Refuse combinations of options that have no meaning (apimachinery's ValidateListOptions)."""
    problems = []
    if options.watch:
        if options.send_initial is not None and options.match != "NotOlderThan":
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                )
            )
        elif options.send_initial is None and options.match:
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        if options.match and options.match != "NotOlderThan":
            problems.append(errors.not_supported("resourceVersionMatch", options.match, ("NotOlderThan",)))
        if options.match and options.token:
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                )
            )
    else:
        if options.send_initial is not None:
            problems.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if options.match:
            if not options.revision:
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                    )
                )
            if options.token:
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                    )
                )
            if options.match not in ("Exact", "NotOlderThan"):
                problems.append(
                    errors.not_supported("resourceVersionMatch", options.match, ("Exact", "NotOlderThan", ""))
                )
            if options.match == "Exact" and options.revision == "0":
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                    )
                )
    if problems:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)


WATCH_EVENTS = Counter("apiserver_watch_events", "Events sent to watchers.", "group", "version", "resource")


def _parts(notices: Sequence[Notice]) -> Iterator[Sequence[Notice]]:
    """Cut what a watcher is to be sent into parts of about `PART` bytes: a client that does not read keeps one of them."""
    start = size = 0
    for index, notice in enumerate(notices, 1):
        size += len(notice.entry.data)
        if size >= PART:
            yield notices[start:index]
            start, size = index, 0
    if start < len(notices):
        yield notices[start:] if start else notices


class Listing:
    """Lists and watches over a registry's caches."""

    def __init__(self, registry: Registry, min_watch_timeout: float) -> None:
        self.registry, self.min_watch_timeout = registry, min_watch_timeout

    def folder(self, resource: Resource, namespace: str, options: ListOptions) -> str:
        """Return the narrowest place in the store that holds all matches."""
        prefix = resource.storage_prefix
        if resource.namespaced:
            namespace = namespace or options.fields.exact("metadata.namespace") or ""
            if not namespace:
                return prefix
            prefix = f"{prefix}{namespace}/"
        name = options.fields.exact("metadata.name")
        if name and "/" not in name:
            return prefix + name
        return prefix

    async def list(
        self, resource: Resource, namespace: str, options: ListOptions
    ) -> tuple[list[Entry], dict[str, Any]]:
        """Return a page of objects and the list's metadata; raises 400, 410, 422, 504."""
        check(options)
        strategy = self.registry.strategy(resource)
        options.fields, shown = split(strategy, options.fields)
        folder = self.folder(resource, namespace, options)
        found = await list_objects(
            self.registry.cache,
            self.registry.cached(resource),
            folder,
            options.predicate(),
            resource_version=options.revision,
            match=options.match,
            limit=0 if shown else options.limit,
            continue_token=options.token,
            costly=options.costly,
        )
        if shown is not None:
            found = await shown.page(found, folder, options.limit)
        metadata: dict[str, Any] = {"resourceVersion": str(found.revision)}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if found.remaining is not None:
                metadata["remainingItemCount"] = found.remaining
        return list(found.entries if shown else await strategy.view(found.entries)), metadata

    # -- watch ----------------------------------------------------------------------------------------------------
    async def watch(self, resource: Resource, namespace: str, options: ListOptions, form: Form) -> Response | Stream:
        """Return a stream of events; a revision that is no longer kept gives an ERROR event, as upstream does."""
        check(options)
        cache, cached = self.registry.cache, self.registry.cached(resource)
        strategy = self.registry.strategy(resource)
        options.fields, shown = split(strategy, options.fields)
        folder, predicate = self.folder(resource, namespace, options), options.predicate()
        wanted = parse_revision(options.revision)
        initial = options.send_initial if options.send_initial is not None else wanted == 0
        if options.revision == "" or (options.send_initial and wanted == 0):
            await cache.wait_current()
        elif wanted:
            try:
                await cache.wait_fresh(wanted)
            except FutureRevision as error:
                raise too_large(wanted, error.current) from error
        after = wanted or cache.revision
        watcher = cached.watch(
            after,
            folder,
            predicate,
            bookmarks=options.bookmarks,
            initial=initial,
            initial_end=bool(options.send_initial) and options.bookmarks,
            costly=options.costly,
        )
        timeout = float(options.timeout) if options.timeout else self.min_watch_timeout * (1 + random.random())

        async def chunks() -> AsyncIterator[bytes]:
            loop, pace = asyncio.get_running_loop(), Pace()
            ending = loop.call_later(timeout, watcher.close)
            try:
                async for changes in watcher:
                    WATCH_EVENTS.add(resource.group, resource.version, resource.plural, amount=len(changes))
                    if shown is not None:
                        notices: Sequence[Notice] = await shown.notices(changes)
                    else:
                        notices = changes if strategy.stored_as_served else await strategy.view_notices(changes)
                    for part in _parts(notices):
                        if form.plain:
                            yield b"".join([notice.wire for notice in part])
                        else:
                            lines = []
                            for notice in part:
                                await pace.step(len(notice.entry.data))
                                lines.append(form.event(notice))
                            yield b"".join(lines)
            except Compacted:
                status = errors.expired(f"too old resource version: {wanted} ({cache.revision})").to_status()
                yield form.error(status)
            except StoreError as error:
                yield form.error(storage_error(error).to_status())
            finally:
                ending.cancel()
                await watcher.aclose()

        return Stream(chunks(), form.wanted.content_type)
