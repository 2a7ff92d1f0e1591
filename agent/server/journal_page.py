"""/wherry/v1/journal: decisions of this agent about a pod, or about its node without a namespace.

Query: namespace, name. The path is authorized as nodes/proxy (authorization.py), which the API server is allowed: it merges the
entries into its own answer for those who may get the object.
"""

from __future__ import annotations

from collections import deque

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from kube import serialize
from kube.journal import Journal, Page

PATH = "/wherry/v1/journal"
MOST_ENTRIES = 1000
"""The newest entries about one object are returned."""


class JournalPage:
    """Handler of the path."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def read(self, request: Request) -> Response:
        """Return the entries as JSON, the oldest first."""
        namespace, name = (request.query_params.get(option, "") for option in ("namespace", "name"))
        if not name:
            return PlainTextResponse("name a pod by namespace and name, or a node by its name", 400)
        entries = deque(self._journal.about("Pod" if namespace else "Node", namespace, name), MOST_ENTRIES)
        since = self._journal.complete_since(namespace)
        page = Page(list(entries), max(since, entries[0].time) if len(entries) == MOST_ENTRIES else since)
        return Response(serialize.encode_readable(page), media_type="application/json")
