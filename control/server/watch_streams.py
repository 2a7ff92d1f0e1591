"""Watches as streams of lines that end in time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from control.event_loop.pacing import TimeSlice
from control.http.chunks import Chunks, Release
from control.http.exchange import Response, Stream
from control.registry.registry import Registry
from control.registry.storing import storage_error
from control.server.forms import Form
from control.server.list_options import ListOptions, check
from control.server.selector_budget import SelectorBudget
from control.server.served_selectors import split
from control.storage.cache import WatchCache
from control.storage.listing import parse_revision, revision_too_large
from control.storage.store import Compacted, FutureRevision, StoreError
from control.storage.watcher import WatchEvent
from kube import errors
from kube.counters import Counter
from kube.owners import owner_of
from kube.resources import Resource

PART = 64 << 10
"""Bytes of objects that become one chunk of a watch."""
WATCH_EVENTS = Counter("apiserver_watch_events", "Events sent to watchers.", "group", "version", "resource")


def _parts(watch_events: Sequence[WatchEvent]) -> Iterable[Sequence[WatchEvent]]:
    """Cut what a watcher is to be sent into parts of about `PART` bytes: a client that does not read keeps one of them."""
    if len(watch_events) == 1:
        return (watch_events,)
    return _cut(watch_events)


def _cut(watch_events: Sequence[WatchEvent]) -> Iterator[Sequence[WatchEvent]]:
    start = size = 0
    for index, watch_event in enumerate(watch_events, 1):
        size += len(watch_event.entry.data)
        if size >= PART:
            yield watch_events[start:index]
            start, size = index, 0
    if start < len(watch_events):
        yield watch_events[start:] if start else watch_events


class WatchStreams:
    """Opens watches on a registry's caches; a watch without a timeout ends after once to twice `min_timeout` seconds."""

    def __init__(self, registry: Registry, min_timeout: float) -> None:
        self.registry, self.min_timeout = registry, min_timeout
        self._budget = SelectorBudget()

    async def open(
        self, resource: Resource, namespace: str, options: ListOptions, form: Form, user: str, size: int
    ) -> Response | Stream:
        """Return a stream of events; a revision older than the history gives an ERROR event with 410 Expired, as upstream.

        `size` is the weight of the query (query_selectors.release). Raises 429 if the user's watches have large ones already.
        """
        check(options)
        cache, cached = self.registry.cache, self.registry.cached(resource)
        strategy = self.registry.strategy(resource)
        options.fields, served_selector = split(strategy, options.fields)
        if served_selector is not None:
            options.key = b""  # `fields` are only a part of those in the query now
        folder, selector = options.folder(resource, namespace), options.selector()
        wanted = parse_revision(options.revision)
        initial = options.send_initial if options.send_initial is not None else wanted == 0
        await _wait(cache, options, wanted)
        reservation = self._budget.hold(user, size)
        after = wanted or cache.revision
        watcher = cached.watch(
            after,
            folder,
            selector,
            owner=owner_of(user),
            bookmarks=options.bookmarks,
            initial=initial,
            initial_end=bool(options.send_initial) and options.bookmarks,
        )
        timeout = float(options.timeout) if options.timeout else self.min_timeout * (1 + random.random())
        ending = asyncio.get_running_loop().call_later(timeout, watcher.close)

        async def release() -> None:
            ending.cancel()
            reservation.release()
            with contextlib.suppress(RuntimeError):  # a step of the past was stopped
                await watcher.aclose()

        async def chunks(release: Release) -> AsyncIterator[bytes]:
            time_slice = TimeSlice()
            try:
                async for changes in watcher:
                    WATCH_EVENTS.add(resource.group, resource.version, resource.plural, amount=len(changes))
                    if served_selector is not None:
                        watch_events: Sequence[WatchEvent] = await served_selector.watch_events(changes)
                    else:
                        watch_events = changes if strategy.stored_as_served else await strategy.view_events(changes)
                    for part in _parts(watch_events):
                        if form.plain:
                            yield part[0].wire if len(part) == 1 else b"".join([each.wire for each in part])
                        else:
                            yield await _written(part, form, user, time_slice)
            except Compacted:
                status = errors.expired(f"too old resource version: {wanted} ({cache.revision})").to_status()
                yield form.error(status)
            except StoreError as error:
                yield form.error(storage_error(error).to_status())
            finally:
                await release()

        return Stream(Chunks(chunks, release), form.wanted.content_type)


async def _wait(cache: WatchCache, options: ListOptions, wanted: int) -> None:
    """Wait until the cache has the revision that a watch starts with; raises 504 if it does not get it in time."""
    if options.revision == "" or (options.send_initial and wanted == 0):
        await cache.wait_current()
    elif wanted:
        try:
            await cache.wait_fresh(wanted)
        except FutureRevision as error:
            raise revision_too_large(wanted, error.current) from error


async def _written(part: Sequence[WatchEvent], form: Form, user: str, time_slice: TimeSlice) -> bytes:
    """Return events in a form that each of them has to be converted to."""
    lines = []
    for watch_event in part:
        await time_slice.step(len(watch_event.entry.data))
        lines.append(await form.written_event(user, watch_event))
    return b"".join(lines)
