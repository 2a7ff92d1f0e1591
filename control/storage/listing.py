"""Lists with the semantics of the API: resourceVersion, resourceVersionMatch, limit and continue.

Without a resourceVersion a list contains all writes acknowledged before it; "0" returns the present state of the cache; N
returns the state at N or later, or with Exact (and, as in upstream, with a limit) exactly at N. The first page of a long list
is read from the cache and its token contains the revision; the next pages have the same revision, from the cache while the
resource has not changed since, else from the store's history until compaction removes it (410 Expired).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from control.event_loop.pacing import TimeSlice
from control.storage.cache import WatchCache
from control.storage.entry import Entry, Predicate
from control.storage.resource_cache import ResourceCache, Slice
from control.storage.store import Compacted, FutureRevision, Unreadable
from kube.errors import StatusError, bad_request
from kube.nesting import check_nesting

TOKEN_VERSION = "meta.k8s.io/v1"
PAGE = 500
PAGE_BYTES = 64 << 20
"""Bytes of old states after which a page with a limit ends: unlike present states, they are in memory for one client."""
LATEST = -1
"""Revision of a token that continues with the present state, offered after the list's revision has been compacted."""
_END = 1 << 63
"""First number that is no revision: they are signed and have 64 bits."""

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
_TOO_OLD_BUT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ContinueExpired(StatusError):
    """410 whose ListMeta has a token to continue inconsistently."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", _TOO_OLD_BUT if token else _TOO_OLD)
        self.token = token

    def to_status(self) -> dict[str, Any]:
        status = super().to_status()
        if self.token:
            status["metadata"] = {"continue": self.token}
        return status


class Listing(msgspec.Struct, frozen=True):
    """Content of a list: entries, the list's revision, a token if there is more, and the number of remaining ones if known."""

    entries: Sequence[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


async def list_objects(
    cache: WatchCache,
    resource: ResourceCache,
    prefix: str,
    predicate: Predicate | None = None,
    *,
    resource_version: str = "",
    match: str = "",
    limit: int = 0,
    continue_token: str = "",
    costly: bool = False,
) -> Listing:
    """Return a page of a list of a folder; raises StatusError 400, 410 Expired, 504 Timeout.

    The caller rejects the combinations of parameters that upstream rejects as Invalid. A `costly` predicate takes
    milliseconds for one object.
    """
    if continue_token:
        if resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, start = decode_token(continue_token)
        return await _next_page(cache, resource, prefix, predicate, limit, revision, prefix + start, costly=costly)
    wanted = parse_revision(resource_version)
    if wanted and (match == "Exact" or (limit and not match)):
        try:
            return await _at(cache, resource, prefix, predicate, limit, wanted, "", costly=costly)
        except Compacted as error:
            raise StatusError(410, "Expired", "The resourceVersion for the provided list is too old.") from error
    try:
        if wanted:
            await cache.wait_fresh(wanted)
        elif resource_version == "0":
            await cache.wait_ready()
            limit = 0  # any state is valid and all of it is in memory; upstream does not split such lists either
        else:
            await cache.wait_current()
    except FutureRevision as error:
        raise revision_too_large(error.revision, error.current) from error
    return _listing(await _slice(resource, prefix, predicate, limit, "", costly=costly), prefix, predicate)


async def _slice(
    resource: ResourceCache, prefix: str, predicate: Predicate | None, limit: int, start_after: str, *, costly: bool
) -> Slice:
    if predicate is not None:
        return await resource.choose(prefix, predicate, limit, start_after, costly=costly)
    return resource.list(prefix, None, limit, start_after)


async def _next_page(
    cache: WatchCache,
    resource: ResourceCache,
    prefix: str,
    predicate: Predicate | None,
    limit: int,
    revision: int,
    start_after: str,
    *,
    costly: bool,
) -> Listing:
    if revision == LATEST:
        await cache.wait_current()
        return _listing(await _slice(resource, prefix, predicate, limit, start_after, costly=costly), prefix, predicate)
    try:
        return await _at(cache, resource, prefix, predicate, limit, revision, start_after, costly=costly)
    except Compacted as error:
        raise ContinueExpired(encode_token(LATEST, start_after.removeprefix(prefix))) from error


async def _at(
    cache: WatchCache,
    resource: ResourceCache,
    prefix: str,
    predicate: Predicate | None,
    limit: int,
    revision: int,
    start_after: str,
    *,
    costly: bool,
) -> Listing:
    """List the state at exactly this revision."""
    if resource.changed <= revision <= cache.revision:
        # A compacted revision fails even if the cache still has its state, as in upstream.
        if revision < cache.revision and revision < (compacted := await cache.store.compacted_revision()):
            raise Compacted(revision, compacted)
        if resource.changed <= revision:  # check again: it may have changed during the call of the store
            found = await _slice(resource, prefix, predicate, limit, start_after, costly=costly)
            return _listing(Slice(found.entries, revision, found.more, found.remaining), prefix, predicate)
    entries, total = list[Entry](), 0
    folder, time_slice = prefix.endswith("/"), TimeSlice()
    while True:
        try:
            # One object's key is not a folder: list no other keys that start with it.
            size = limit - len(entries) if limit and predicate is None else PAGE
            page = await cache.store.list(prefix, revision, start_after, size if folder else 1)
        except FutureRevision as error:
            raise revision_too_large(error.revision, error.current) from error
        items = page.items if folder else [item for item in page.items if item.key == prefix]
        for index, item in enumerate(items):
            if item.failure:
                raise Unreadable(item.key, item.failure)
            await time_slice.step(len(item.value))
            entry = resource.entry(item.key, item.value, item.revision)
            if predicate is None or predicate(entry):
                if limit and (len(entries) == limit or total >= PAGE_BYTES):
                    rest = len(items) - index + page.remaining
                    return _listing(Slice(entries, revision, True, rest), prefix, predicate)
                entries.append(entry)
                total += len(entry.data)
        if not page.more or not folder:
            return _listing(Slice(entries, revision), prefix, predicate)
        if limit and predicate is None and (len(entries) == limit or total >= PAGE_BYTES):
            return _listing(Slice(entries, revision, True, page.remaining), prefix, predicate)
        start_after = page.items[-1].key


def _listing(found: Slice, prefix: str, predicate: Predicate | None) -> Listing:
    entries = found.entries
    if not found.more:
        return Listing(entries, found.revision)
    token = encode_token(found.revision, entries[-1].key.removeprefix(prefix))
    # As in upstream: with a selector, the number of remaining matches is unknown.
    return Listing(entries, found.revision, token, found.remaining if predicate is None else None)


def parse_revision(text: str) -> int:
    """Read a resourceVersion parameter; "" and "0" are 0. Raises StatusError 400 (500 upstream)."""
    if not text:
        return 0
    problem = "invalid syntax"
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        if len(digits) <= 20 and (found := int(digits or "0")) < 1 << 64:
            return found
        problem = "value out of range"
    shown = json.dumps(text)
    raise bad_request(f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {problem}")


def revision_too_large(wanted: int, current: int) -> StatusError:
    """Return the 504 for a resourceVersion that this server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, details)


def encode_token(revision: int, last: str) -> str:
    """Return a continue token for the keys after `last`, which is relative to the listed folder."""
    token = msgspec.json.encode({"v": TOKEN_VERSION, "rv": revision, "start": last + "\0"})
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_token(token: str) -> tuple[int, str]:
    """Return a token's revision and the relative key after which it continues; raises StatusError 400."""
    try:
        raw = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
        check_nesting(raw)
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        version, revision, start = fields["v"], fields["rv"], fields["start"]
    except (KeyError, ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if version != TOKEN_VERSION:
        raise bad_request(f"continue key is not valid: server does not recognize this encoded version {version!r}")
    if type(revision) is not int or not 0 < abs(revision) < _END or not isinstance(start, str) or not start:
        raise bad_request("continue key is not valid: incorrect encoded start resourceVersion or start key")
    if start.startswith("/") or ".." in start.split("/"):
        raise bad_request(f"continue key is not valid: {start!r}")
    revision = max(revision, LATEST)  # any number below 0 is the present state, as in upstream
    # Keys are compared as "greater than": what comes after "name\\0" exclusively is what comes after "name".
    return revision, start.removesuffix("\0") if start.endswith("\0") else _before(start)


def _before(start: str) -> str:
    """Return a text that sorts before `start` and after every other key below it."""
    before = 0xD7FF if start[-1] == "\ue000" else ord(start[-1]) - 1  # UTF-8 has no surrogates
    return start[:-1] + chr(before) + "\U0010ffff"
