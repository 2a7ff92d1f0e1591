"""Decisions of a time, from the control plane's journal, with the visitor's rights."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request

from kube.client import Client
from kube.errors import StatusError
from kube.journal import PATH
from kube.journal_lists import List

NO_JOURNAL = "this control plane keeps no journal of decisions that can be listed"
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def query(request: Request) -> dict[str, str]:
    """Return the query for the journal: `since` and `until`, `namespace` if it is not "". Raise StatusError 400."""
    found = {name: request.query_params.get(name, "") for name in ("since", "until")}
    if any(not _NUMBER.fullmatch(value) for value in found.values()):
        raise StatusError(400, "BadRequest", "since and until are seconds since 1970")
    return found


async def entries(client: Client, namespace: str, wanted: dict[str, str]) -> dict[str, Any]:
    """Return the entries as JSON data, or {"why": ...} if they cannot be read."""
    try:
        data = await client.call("GET", PATH, query=wanted | ({"namespace": namespace} if namespace else {}))
        found = msgspec.json.decode(data, type=List)
    except StatusError as error:
        absent = error.code in (400, 404) or "cannot get path" in error.message
        return {"why": NO_JOURNAL if absent else f"the journal could not be read: {error.message}"}
    except msgspec.MsgspecError:
        return {"why": NO_JOURNAL}
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain
