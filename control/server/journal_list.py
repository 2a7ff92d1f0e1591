"""GET /wherry/v1/journal without an object: decisions of a time about all objects that the user may list.

Query: namespace (all if there is none), since and until (seconds since 1970), limit. An entry is answered to those who may list
its kind in the namespace; without a namespace, in all. The list of a namespace has no entries about a former namespace of its
name; the list of all has those of denied requests too. To those who may list nothing of it the answer is the same whether a
namespace exists or not. The journal is gone through from its newest end, a millisecond at a time, until the answer is complete.
"""

from __future__ import annotations

import heapq
import math

from control.auth.user import Authorizer
from control.custom.definitions import Definitions
from control.event_loop.pacing import TimeSlice
from control.http.exchange import Request
from control.server.journal_kinds import ListableKinds
from kube import errors
from kube.journal import DENIED, Entry, Journal, decoded, time_of
from kube.journal_lists import List, Listed

MOST_ENTRIES, USUAL_ENTRIES = 500, 200
"""Entries of an answer: the newest ones of the time that was asked for."""


class _Newest:
    """The newest entries of those that are added, which come from the newest to the oldest of each namespace."""

    def __init__(self, limit: int) -> None:
        self._limit, self.more = limit, False
        self._found: list[tuple[float, int, tuple[str, str, str, Entry]]] = []
        self._number = 0

    def add(self, place: str, key: str, name: str, entry: Entry) -> bool:
        """Add an entry; return False if it, and with it all that are older, has no place any more."""
        full = len(self._found) == self._limit
        self.more |= full
        if full and entry.time <= self._found[0][0]:
            return False
        self._number -= 1
        item = (entry.time, self._number, (place, key, name, entry))
        if full:
            heapq.heapreplace(self._found, item)
        else:
            heapq.heappush(self._found, item)
        return True

    def entries(self) -> list[Listed]:
        """Return the newest entries, the oldest first."""
        return [_listed(*each) for _, _, each in sorted(self._found, key=lambda each: each[:2])]


async def listed(journal: Journal, custom: Definitions, authorizer: Authorizer, request: Request, begin: float) -> List:
    """Return the answer to a request, with entries from the time `begin` on. Raises 400 for a wrong query."""
    namespace = request.option("namespace")
    since, until = _number(request, "since", 0.0), _number(request, "until", math.inf)
    limit = int(min(max(_number(request, "limit", USUAL_ENTRIES), 1), MOST_ENTRIES))
    kinds = ListableKinds(custom, authorizer, request, namespace)
    newest, time_slice = _Newest(limit), TimeSlice()
    for place in [namespace] if namespace else journal.namespaces():
        await _add(newest, journal, place, kinds, time_slice, (max(since, math.nextafter(begin, -math.inf)), until))
    if not await kinds.any():
        return List([], journal.began, more=False)
    complete = journal.complete_since(namespace) if namespace else journal.complete_since_all()
    more = newest.more or kinds.left_out
    return List(newest.entries(), max(complete, begin) if begin < math.inf else complete, more)


async def _add(
    newest: _Newest,
    journal: Journal,
    place: str,
    kinds: ListableKinds,
    time_slice: TimeSlice,
    times: tuple[float, float],
) -> None:
    """Add the entries of a namespace that the user may list, of times after the first one until the second one."""
    since, until = times
    allowed: dict[str, bool] = {}
    for block in journal.newest(place):
        await time_slice.step()
        oldest = time_of(block[-1][2])
        if oldest > until:
            continue
        # Of a list without permissions, and of entries that are too new, nothing is decoded but times: they cost the most.
        for key, name, data in block:
            if key not in allowed:
                allowed[key] = await kinds.allowed(key)
            if not allowed[key]:
                continue
            await time_slice.step()
            time = time_of(data)
            if time <= since or (time <= until and not newest.add(place, key, name, decoded(data))):
                return
        if oldest <= since:
            return


def _number(request: Request, name: str, default: float) -> float:
    text = request.option(name)
    try:
        found = float(text) if text else default
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise errors.bad_request(f"the query option {name} is a number of seconds or entries, not {text[:40]!r}")
    return found


def _listed(place: str, key: str, name: str, entry: Entry) -> Listed:
    kind, _, group = key.partition(".")
    if place == DENIED:
        place, _, name = name.rpartition("/")
    named = {"resource": kind[1:]} if kind.startswith("/") else {"kind": kind}
    return Listed(
        time=entry.time,
        actor=entry.actor,
        text=entry.text,
        name=name,
        namespace=place,
        group=group,
        uid=entry.uid,
        revision=entry.revision,
        trace=entry.trace,
        **named,
    )
