"""/wherry/v1/journal: decisions of this agent about a pod, or about its node without a namespace.

Query: namespace, name. The path is authorized as nodes/proxy (authorization.py), which the API server is allowed: it merges the
entries into its own answer for those who may get the object.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from kube import serialize
from kube.journal import Journal, kind_key


class JournalPage:
    """Handler of the path."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def read(self, request: Request) -> Response:
        """Return the entries as JSON, the oldest first."""
        namespace, name = (request.query_params.get(option, "") for option in ("namespace", "name"))
        if not name:
            return PlainTextResponse("name a pod by namespace and name, or a node by its name", 400)
        page = self._journal.page((kind_key("", "Pod" if namespace else "Node"),), namespace, name)
        return Response(serialize.encode(page), media_type="application/json")
