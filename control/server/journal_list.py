"""GET /wherry/v1/journal without an object: decisions of a time about all objects that the user may list.

Query: namespace (all if there is none), since and until (seconds since 1970), limit. An entry is answered to those who may list
its kind in the namespace; without a namespace, in all. The list of a namespace has no entries about a former namespace of its
name; the list of all has those of denied requests too. The journal is gone through in slices, for it may have 200 000 entries.
"""

from __future__ import annotations

import math

from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision
from control.custom.definitions import Definitions
from control.event_loop.pacing import yield_to_loop
from control.http.exchange import Request
from kube import errors
from kube.journal import DENIED, Entry, Journal, List, Listed
from kube.owners import owner_of
from kube.resources import RESOURCES

MOST_ENTRIES, USUAL_ENTRIES = 500, 200
"""Entries of an answer: the newest ones of the time that was asked for."""
SLICE = 200
"""Entries that are looked at between two yields to the event loop."""
ANY = "*"
"""Resource that is authorized for entries of a kind that is not served (any more)."""


_BUILT_IN = {(each.group, each.kind): each.plural for each in RESOURCES}


class _Newest:
    """The newest entries of those that are added."""

    def __init__(self, limit: int) -> None:
        self._limit, self.more = limit, False
        self._found: list[tuple[float, int, Listed]] = []
        self._number = 0

    def add(self, entry: Listed) -> None:
        self._number += 1
        self._found.append((entry.time, self._number, entry))
        if len(self._found) >= 2 * self._limit + SLICE:
            self._cut()

    def _cut(self) -> None:
        self._found.sort(reverse=True, key=lambda each: each[:2])
        self.more |= len(self._found) > self._limit
        del self._found[self._limit :]

    def entries(self) -> list[Listed]:
        """Return the newest entries, the oldest first."""
        self._cut()
        return [entry for _, _, entry in reversed(self._found)]


async def listed(journal: Journal, custom: Definitions, authorizer: Authorizer, request: Request, begin: float) -> List:
    """Return the answer to a request, with entries from the time `begin` on. Raises 400 for a wrong query."""
    namespace = request.option("namespace") or None
    since, until = _number(request, "since", 0.0), _number(request, "until", math.inf)
    limit = int(min(max(_number(request, "limit", USUAL_ENTRIES), 1), MOST_ENTRIES))
    allowed: dict[tuple[str, str], bool] = {}
    newest, looked = _Newest(limit), 0
    for key, where, name in journal.objects(namespace):
        kind, group = _named(key)
        plural = kind[1:] if kind.startswith("/") else _BUILT_IN.get((group, kind)) or _custom(custom, group, kind)
        if (group, plural) not in allowed:
            allowed[group, plural] = await _may_list(authorizer, request, group, plural, namespace or "")
        for _, entry in journal.about(key, where, name) if allowed[group, plural] else ():
            looked += 1
            if looked % SLICE == 0:
                await yield_to_loop()
            if entry.time <= since or entry.time < begin:
                break
            if entry.time <= until:
                newest.add(_entry(entry, where, group, kind, name))
    complete = journal.complete_since(namespace) if namespace is not None else journal.complete_since_all()
    return List(newest.entries(), max(complete, begin) if begin < math.inf else complete, newest.more)


def _custom(custom: Definitions, group: str, kind: str) -> str:
    """Return the plural name of a custom kind."""
    return next((each.plural for each in custom.every() if (each.group, each.kind) == (group, kind)), ANY)


def _number(request: Request, name: str, default: float) -> float:
    text = request.option(name)
    try:
        found = float(text) if text else default
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise errors.bad_request(f"the query option {name} is a number of seconds or entries, not {text[:40]!r}")
    return found


def _named(key: str) -> tuple[str, str]:
    """Return the kind, or "/" and the plural name, and the group of a key (kube/journal.py)."""
    kind, _, group = key.partition(".")
    return kind, group


async def _may_list(authorizer: Authorizer, request: Request, group: str, plural: str, namespace: str) -> bool:
    wanted = AuthzAttributes(
        user=request.user, verb="list", group=group, version=ANY, resource=plural, namespace=namespace, name=""
    )
    decision, _ = await decide(authorizer, wanted, owner_of(request.user.name), request.until_left)
    return decision is Decision.ALLOW


def _entry(entry: Entry, namespace: str, group: str, kind: str, name: str) -> Listed:
    if namespace == DENIED:
        namespace, _, name = name.rpartition("/")
    named = {"resource": kind[1:]} if kind.startswith("/") else {"kind": kind}
    return Listed(
        time=entry.time,
        actor=entry.actor,
        text=entry.text,
        name=name,
        namespace=namespace,
        group=group,
        uid=entry.uid,
        revision=entry.revision,
        trace=entry.trace,
        **named,
    )
