"""Deletion of objects that another client may delete first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.api import core_v1
from kube.client import Client, Response
from kube.deletion import delete_if_present
from kube.errors import StatusError


class Server:
    """Transport to a server that answers each request alike."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        self.requests: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes = b"", **more: Any) -> Response:
        self.requests.append((method, path, json.loads(body)))
        answer = {"kind": "Status", "apiVersion": "v1", "code": self.status, "reason": self.reason}
        return Response(self.status, {"Content-Type": "application/json"}, json.dumps(answer).encode())


async def delete(server: Server) -> None:
    await delete_if_present(Client(server), core_v1.Secret, "s", "default", uid="u")  # type: ignore[arg-type]


async def test_an_object_is_deleted_if_it_still_has_its_uid() -> None:
    server = Server(200, "")
    await delete(server)
    ((method, path, options),) = server.requests
    assert (method, path) == ("DELETE", "/api/v1/namespaces/default/secrets/s")
    assert options["preconditions"] == {"uid": "u"}


async def test_an_object_that_is_gone_is_no_error() -> None:
    await delete(Server(404, "NotFound"))


async def test_other_errors_are_raised() -> None:
    for code, reason in ((409, "Conflict"), (403, "Forbidden"), (500, "InternalError")):
        with pytest.raises(StatusError) as refused:
            await delete(Server(code, reason))
        assert refused.value.code == code
