"""The body of an update is decoded once, and again only for another attempt after a conflict."""

from __future__ import annotations

from typing import Any, cast

from control.auth.user import UserInfo
from control.http.exchange import Request
from control.registry.context import Context
from control.server import replacing
from control.server.handler_support import HandlerSupport
from kube.json_object import Object
from kube.resources import Resource, by_kind


class Server:
    """Decodes each body as the same object, with a warning."""

    max_body = 1000

    def __init__(self) -> None:
        self.decodings = 0

    async def decoded(self, request: Request, resource: Resource) -> Object:
        self.decodings += 1
        request.warnings.append('unknown field "other"')
        return {"metadata": {"name": "a", "namespace": "n", "uid": "u"}}


async def replacement_of(server: Server) -> tuple[Request, replacing.Replacement]:
    async def body(limit: int) -> bytes:
        return b"{}"

    request = Request("PUT", "/api/v1/namespaces/n/configmaps/a", b"", {}, body)
    resource = by_kind("v1", "ConfigMap")
    assert resource is not None
    context = Context(UserInfo("user"))
    return request, await replacing.read(cast(HandlerSupport, cast(Any, server)), request, resource, context)


async def test_the_first_attempt_takes_the_object_that_was_decoded() -> None:
    server = Server()
    _, replacement = await replacement_of(server)
    assert replacement.uid == "u"
    assert (await replacement.take())["metadata"]["name"] == "a"
    assert server.decodings == 1


async def test_further_attempts_get_objects_of_their_own_and_warn_once() -> None:
    server = Server()
    request, replacement = await replacement_of(server)
    first = await replacement.take()
    first["metadata"]["name"] = "changed"
    request.warnings.append("of the first attempt")
    second = await replacement.take()
    assert second["metadata"] == {"name": "a", "namespace": "n", "uid": "u"}
    assert (await replacement.take()) is not second
    assert request.warnings == ['unknown field "other"', "of the first attempt"]
