"""The label and field selectors of a request's query, parsed once, and only for a user who is authenticated.

A query of 64 KiB holds tens of thousands of terms, which take some tens of milliseconds: many terms are parsed by the thread
for large objects, at the user's turn.
"""

from __future__ import annotations

from typing import NamedTuple

from control.event_loop import offload
from control.http.exchange import Request
from kube import errors, selectors
from kube.selectors import FieldSelector, LabelSelector

TERM = 16
"""Weight of a term in bytes (control/event_loop/weight.py): 2000 terms take 5 ms, as an object does that is large."""
_KEY = "selectors"


class Selectors(NamedTuple):
    """The selectors of a list or a watch."""

    labels: LabelSelector
    fields: FieldSelector


async def parsed(request: Request, user: str) -> Selectors:
    """Return a request's selectors; raises SelectorError."""
    found: Selectors | None = request.extensions.get(_KEY)
    if found is None:
        labels, fields = request.option("labelSelector"), request.option("fieldSelector")
        found = request.extensions[_KEY] = await offload.run(user, weight(labels, fields), _parse, labels, fields)
    return found


def weight(*texts: str) -> int:
    """Return how much work it is to parse selectors."""
    return sum(len(text) + TERM * text.count(",") for text in texts)


def release(request: Request) -> int:
    """Drop a request's selectors once a watch has what it needs of them; return the weight of the query, which it keeps."""
    request.extensions.pop(_KEY, None)
    labels, fields = request.option("labelSelector"), request.option("fieldSelector")
    return len(request.query_string) + weight(labels, fields)


def _parse(labels: str, fields: str) -> Selectors:
    found = Selectors(selectors.parse_labels(labels), selectors.parse_fields(fields))
    found.labels.prepare()
    return found


async def naming(request: Request, user: str) -> FieldSelector:
    """Return the field selector that may name the one object that a list is for, an empty one where there is no such name.

    Upstream decodes all options of a list to find the name: where one of them is wrong, there is no name.
    """
    if "metadata.name" in request.option("fieldSelector"):
        try:
            request.number("limit")
            request.number("timeoutSeconds")
            return (await parsed(request, user)).fields
        except (errors.StatusError, selectors.SelectorError):
            pass  # refused when the list's options are read
    return FieldSelector()
